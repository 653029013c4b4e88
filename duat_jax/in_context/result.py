"""What a part of a text adds to what comes after it, as an account that shows itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.display.result import Plotted
from duat_jax.forms.completeness import Completeness
from duat_jax.in_context.parameters import Moved
from duat_jax.transform.keys import Key, Marked

if TYPE_CHECKING:
    pass

PATTERN = "attention.pattern"

COLUMNS = (
    "parameters at the part",
    "attention to the part",
    "attention to other tokens",
    "norm scales",
    "gates and others",
)
"""The dynamic parameters that move, in groups: all that stand at the part's own tokens, then those at the others."""


@dataclass(frozen=True, eq=False)
class Ledger(Plotted):
    """What a part of a text adds to a mean log-probability, `f(first run) − f(second run)`, as sums over what moved.

    Args:
        values: the number of both runs, each from a plain forward pass.
        hidden: true for the tokens of the part, `[tokens]`.
        inputs: parts of each token's moved embedding, `[tokens]`; absent where the part is masked: nothing moves then.
        within: parts of every dynamic parameter that moved at the part's own tokens, by key.
        patterns: parts of each head's moved attention to each token, over the queries outside of the part, `[layers,
            heads, tokens]`.
        held: parts of every other dynamic parameter that moved outside of the part, such as norm scales and gates.
        jumps: parts of what has no slope between both runs, such as a router's choice, by name and place.
        heads: parts of what each head mixes, `[layers, heads]`; no cut: what one brings another may take back.
        reads: parts of what each layer reads of the part, where nothing is held and everything flows, `[layers]`.
        form: the same difference in the parameters of the closed form.
        again_at: by how much less is added where one layer reads the part as in the second run, the model run again,
            `[layers]`; absent if it wasn't.
        again_from: the same where that layer and all later ones do, `[layers]`.
        completeness: the difference of the plain forward passes, the sum of `inputs`, `within`, `patterns`, `held` and
            `jumps`, error and tolerance.
        reads_completeness: the same of `reads`.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    values: tuple[float, float]
    hidden: Bool[np.ndarray, "tokens"]
    inputs: Float[np.ndarray, "tokens"] | None
    within: Marked[float]
    patterns: Float[np.ndarray, "layers heads tokens"]
    held: Marked[float]
    jumps: dict[str, float]
    heads: Float[np.ndarray, "layers heads"]
    reads: Float[np.ndarray, "layers"]
    form: Moved
    again_at: Float[np.ndarray, "layers"] | None
    again_from: Float[np.ndarray, "layers"] | None
    completeness: Completeness
    reads_completeness: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The number of the first run minus that of the second one."""
        return float(self.completeness.value)

    @property
    def layers(self) -> Float[np.ndarray, "rows 5"]:
        """The parts of every layer in the columns of `COLUMNS`; the last row is what comes after all layers.

        The first row has the norm of the embeddings, too, in models that have one.
        """
        found = np.zeros((len(self.patterns) + 1, len(COLUMNS)))
        by_token = self.patterns.astype(np.float64).sum(1)
        for key, part in self.within.items():
            found[_layer_of(key, len(found) - 1), 0] += part
        found[:-1, 1], found[:-1, 2] = by_token[:, self.hidden].sum(-1), by_token[:, ~self.hidden].sum(-1)
        for key, part in self.held.items():
            found[_layer_of(key, len(found) - 1), 3 if key.name.endswith(".scale") else 4] += part
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, for JSON.

        | field | what it is |
        |---|---|
        | `first`, `second`, `difference` | the mean log-probability of both runs, from plain forward passes |
        | `completeness` | `sum` of all parts, `error`, `tolerance`, `largest` part, and the `verdict` |
        | `notes` | what to know of the parts though they sum; none as a rule |
        | `inputs` | the parts of every token's moved embedding; absent where the part is masked |
        | `columns`, `layers` | the parts of moved parameters by layer; the last row is what comes after all layers |
        | `tokens` | the parts of attention to every token, by layer |
        | `within`, `held` | the parts of dynamic parameters at the part's tokens, and of others at those after it |
        | `jumps` | the parts of what jumped, by name |
        | `heads` | the parts of what each head mixes, by layer |
        | `reads` | the parts of what each layer reads of the part, where nothing is held |
        | `form` | the difference in the closed form's parameters; pairs are other tokens and the hidden part's |
        | `again_at`, `again_from` | how much less is added where a layer, or all from it on, read the second run's |
        """
        form = self.form._asdict() | {"completeness": self.form.completeness.as_dict()}
        return {
            "first": self.values[0],
            "second": self.values[1],
            "difference": self.difference,
            "completeness": self.completeness.as_dict(),
            "notes": list(self.notes),
            "inputs": None if self.inputs is None else self.inputs.tolist(),
            "columns": list(COLUMNS),
            "layers": self.layers.tolist(),
            "tokens": self.patterns.sum(1).tolist(),
            "within": {str(key): part for key, part in self.within.items()},
            "held": {str(key): part for key, part in self.held.items()},
            "jumps": self.jumps,
            "heads": self.heads.tolist(),
            "reads": self.reads.tolist(),
            "form": {
                name: part if isinstance(part, dict) else np.asarray(part).tolist() for name, part in form.items()
            },
            "again_at": None if self.again_at is None else self.again_at.tolist(),
            "again_from": None if self.again_from is None else self.again_from.tolist(),
        }

    def __repr__(self) -> str:
        return f"Ledger({self.difference:+.6g}, error {float(self.completeness.error):+.1e})"


def _layer_of(key: Key, after: int) -> int:
    """Return the layer in which a mark stands, the first one for the embeddings' norm, or what comes after all."""
    if key.name.startswith("embedding_norm"):
        return 0
    layers = [int(scope.removeprefix("layers.")) for scope in key.scope if scope.startswith("layers.")]
    return layers[0] if layers else after
