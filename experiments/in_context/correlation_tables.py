"""Tables of docs/findings/in-context.md on the correlation of the elements of attention's matrix."""

import numpy as np

from experiments.in_context.cells import MODELS, Pieces, draws, mean, table
from experiments.in_context.correlation import APART, INPUTS, KINDS, NULL, SAME_KEY, TEXT, TEXTS, TOKENS

UNTRAINED = "untrained, text"
CONTROLS = (*INPUTS, UNTRAINED)
WITHIN, BY_THEMSELVES = "within", "within, heads by themselves"


def _groups(pieces: Pieces, model: str, inputs: str, kind: str) -> np.ndarray:
    """Return the mean size of correlations, of each group and layer."""
    return np.array([group[kind] for group in draws(pieces, f"correlation, {model}, {inputs}, {{}}")])


def correlation(pieces: Pieces) -> str:
    """Return the tables."""
    measured = [
        (model, inputs) for model in MODELS[:2] for inputs in CONTROLS if len(_groups(pieces, model, inputs, APART)) > 1
    ]
    if not measured:
        return ""
    rows, apart = [], []
    for model, inputs in measured:
        kinds = {kind: _groups(pieces, model, inputs, kind) for kind in (*KINDS, NULL, WITHIN, BY_THEMSELVES)}
        of_layers = kinds[APART].mean(0)
        columns = [mean(kinds[kind].mean(1), sign="") for kind in (*KINDS, NULL)]
        beyond_chance = mean((kinds[APART] - kinds[NULL]).mean(1), 3)
        rows.append(
            [
                *(model, inputs, *columns, beyond_chance, f"{of_layers.min():.2f} to {of_layers.max():.2f}"),
                *(mean(kinds[kind].mean(1), sign="") for kind in (WITHIN, BY_THEMSELVES)),
            ]
        )
        if inputs != TEXT and (model, TEXT) in measured:
            apart.append(
                [
                    *(model, inputs),
                    *(
                        mean((_groups(pieces, model, TEXT, kind) - kinds[kind]).mean(1))
                        for kind in (SAME_KEY, APART, WITHIN)
                    ),
                ]
            )
    return "\n".join(
        [
            "### Correlations of elements",
            "",
            f"Mean sizes of Pearson's correlations over {TEXTS} texts of {TOKENS} tokens, by what both elements' blocks"
            " share; and over the entries of two blocks of one matrix that share neither. The mean over layers; the"
            " unit is a group of texts.",
            "",
            *table(
                [
                    *("model", "inputs", *KINDS, f"neither, {NULL}", "neither − the same exchanged"),
                    "neither, by layer",
                    "two blocks of one matrix",
                    "the same, heads permuted separately",
                ],
                rows,
            ),
            *table(
                ["model", "control", *(f"text minus it: {of}" for of in (SAME_KEY, APART, "two blocks of one matrix"))],
                apart,
            ),
        ]
    )
