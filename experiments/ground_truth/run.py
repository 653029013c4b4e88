"""Does the secant rank the units of a compiled program's circuit better than integrated gradients?

When a program is compiled into a Transformer, its circuit is known: the compiler says which variable of the program
each neuron and each head computes. Each of eight models was compiled by tracr 1.0.0 (Lindner et al., "Tracr", 2023)
and computes two programs on five tokens side by side: A, after which a model is named, and another one, B. From both
results the neurons of the last layer compute (a, b) -> a, which ignores B. Tests compare the weights with the
compiler's own model.

Every method scores every neuron and every head on 32 pairs of texts that differ in one token and in what A says at the
last one; a unit's score is the sum of the sizes of its scores over tokens, and its mean over pairs. Reported is the
area under the ROC curve: the probability that a unit of the circuit scores higher than one outside of it, where ties
count half; 1 is a perfect ranking, 0.5 chance. Left out are units that have the same value in both texts of every
pair. Scores below a millionth count as zero. Everything is in float64.

"Alone": the read-out is the result of A; the circuit consists of the neurons and heads from which a path of weights
leads to it. "Ignoring": the read-out is that of (a, b) -> a, and the neurons of the last layer are added; paths of
weights lead from B to the result too, but the result doesn't depend on B's value. There what B adds to one neuron it
takes from another; where both move, the secant gives each half of the step, for it splits each operation by itself and
only between the two texts.
"""

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import duat_jax as duat
from duat_jax.attribution.unit_values import Scores
from duat_jax.evaluation.circuits import METHODS
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from experiments.ground_truth.programs import LAST, NOTHING, OWN, PROGRAMS
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table
from experiments.verdict import above

READ = ALONE, IGNORING = ("alone", "ignoring")
"""The read-outs of a compiled model: the result of A; or that of `(a, b) ↦ a`, for which B is read and ignored."""
LEAST = 1e-6
"""The size below which numbers count as zero: a unit that moves by less doesn't move, and scores below are ties."""
SORTING = "sort"
"""The program in which attention patterns decide."""
GRADIENTS = "integrated gradients, 10 steps", "gradient x change"
"""Methods whose scores are tiny there."""


class Compiled(NamedTuple):
    """A compiled model and pairs of texts.

    Args:
        model: the model.
        clean: token ids, `[pairs, tokens]`.
        corrupted: the same with one token changed, and another result at the last one.
        right: what the program says of the clean text, `[pairs]`.
        wrong: what it says of the other.
        neurons: of each neuron what it writes, `[layers, neurons]`.
        heads: of each head, `[layers, heads]`.
        states: what the compiler's own model computes for the clean texts, `[pairs, tokens, features]`.
    """

    model: duat.models.Transformer
    clean: jax.Array
    corrupted: jax.Array
    right: jax.Array
    wrong: jax.Array
    neurons: np.ndarray
    heads: np.ndarray
    states: np.ndarray


def names() -> list[str]:
    """Return the names of all programs."""
    return [file.stem.replace("-", " ") for file in sorted(PROGRAMS.glob("*.npz"))]


def load(name: str, read: str) -> Compiled:
    """Return a compiled program, in float64."""
    file = np.load(PROGRAMS / f"{name.replace(' ', '-')}.npz")
    layers, features, neurons = file["mlp_input"].shape
    heads = file["head_roles"].shape[1]
    block = BlockConfig(
        arrangement="pre-norm",
        features=features,
        heads=heads,
        head_features=file["query"].shape[-1] // heads,
        neurons=neurons,
        causal=False,
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        activation="relu",
        norm="none",
    )
    rows = file[read]
    head = Head(kind="masked token", outputs=len(rows))
    vocab, positions = len(file["token"]), len(file["position"])
    config = duat.models.Config(
        family="compiled", blocks=(block,) * layers, vocab=vocab, positions=positions, final_norm=False, head=head
    )
    model = duat.models.Transformer(config, dtype=jnp.float64, rngs=None)
    model.embedding.token[...], model.embedding.position[...] = (
        jnp.asarray(file[k], jnp.float64) for k in ("token", "position")
    )
    model.head.unembedding[...] = jnp.asarray(rows, jnp.float64)
    for i, layer in enumerate(model.stack.blocks):
        for part in ("query", "key", "value", "output"):
            getattr(layer.attention, part).kernel[...] = jnp.asarray(file[part][i], jnp.float64)
        layer.mlp.input.kernel[...] = jnp.asarray(file["mlp_input"][i], jnp.float64)
        layer.mlp.output.kernel[...] = jnp.asarray(file["mlp_output"][i], jnp.float64)
    ids = (jnp.asarray(file[k]) for k in ("clean", "corrupted", "right", "wrong"))
    return Compiled(model, *ids, file["neuron_roles"], file["head_roles"], file["states"])


def area_under_curve(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the area under the ROC curve: how often the circuit's units score above others; ties count half."""
    higher = np.sign(scores[truth][:, None] - scores[~truth])
    return float((1 + higher).mean() / 2)


def circuit_scores(compiled: Compiled, scores: Scores, least: float = LEAST) -> tuple[np.ndarray, np.ndarray]:
    """Return a score and the role of each neuron and head that writes something."""
    kinds = ((scores.neurons, compiled.neurons), (scores.heads, compiled.heads))
    scores_of_kinds = [np.abs(np.asarray(of_units)).sum(2).mean(0)[roles != NOTHING] for of_units, roles in kinds]
    sizes = np.concatenate(scores_of_kinds)
    return np.where(sizes < least, 0, sizes), np.concatenate([roles[roles != NOTHING] for _, roles in kinds])


RUN = {name: jax.jit(jax.vmap(method, in_axes=(None, 0, 0, 0, 0))) for name, method in METHODS.items()}


def areas(name: str, read: str, methods: Iterable[str] = METHODS, least: float = LEAST) -> dict[str, float]:
    """Return each method's area under the ROC curve for units that take part in a program."""
    # Units that have the same value in both texts of every pair are left out: nothing could tell what they are for.
    compiled = load(name, read)
    arguments = compiled.model, compiled.clean, compiled.corrupted, compiled.right, compiled.wrong
    change, roles = circuit_scores(compiled, RUN["norm of change x W_out"](*arguments))
    moves = change > 0
    truth = (roles == OWN) | ((roles == LAST) & (read == "ignoring"))
    scores = {method: circuit_scores(compiled, RUN[method](*arguments), least)[0] for method in methods}
    return {method: area_under_curve(unit_scores[moves], truth[moves]) for method, unit_scores in scores.items()}


def tiny_gradients(name: str) -> dict[str, float]:
    """Return the median gradient of a program's units that a gradient misses, and the secant's scores of these."""
    compiled = load(name, "alone")
    arguments = compiled.model, compiled.clean, compiled.corrupted, compiled.right, compiled.wrong
    gradient, roles = circuit_scores(compiled, RUN["gradient x change"](*arguments), 0)
    secant = circuit_scores(compiled, RUN["secant"](*arguments))[0]
    missed = (roles == OWN) & (gradient < LEAST) & (secant > 0)
    found = np.median(gradient[missed]), secant[missed].min(), secant[missed].max()
    return dict(zip(("median_gradient", "smallest_secant", "largest_secant"), map(float, found), strict=True))


def rows_of_program(name: str, read: str, methods: Iterable[str] = METHODS, least: float = LEAST) -> list[Row]:
    """Return the area of every method on one program."""
    return [{"method": method, "area": area} for method, area in areas(name, read, methods, least).items()]


def measure() -> Measurements:
    """Yield every program with both read-outs, and some methods' scores without a least size."""
    jax.config.update("jax_enable_x64", True)
    for read in READ:
        for name in names():
            keys = {"read": read, "ties": True, "program": name}
            yield Piece("areas", keys, partial(rows_of_program, name, read))
    for name in names():
        keys = {"read": READ[0], "ties": False, "program": name}
        yield Piece("areas", keys, partial(rows_of_program, name, READ[0], GRADIENTS, 0))
    yield Piece("gradients", {"program": SORTING}, partial(tiny_gradients, SORTING))


def of_read(read: str, areas: pd.DataFrame) -> pd.DataFrame:
    """Return the areas for one read-out, the method with the largest mean first."""
    found = areas[(areas["read"] == read) & areas.ties]
    rank = -found.groupby("method").area.transform("mean")
    return found.assign(rank=rank).sort_values("rank", kind="stable")


def lead(read: str) -> Measure:
    """Return the measure of the secant's lead over integrated gradients with ten steps."""

    def values(frames: Frames) -> np.ndarray:
        found = of_read(read, frames["areas"]).pivot(index="program", columns="method", values="area")
        return (found["secant"] - found[GRADIENTS[0]]).to_numpy()

    return Measure(f"area of the secant minus that of {GRADIENTS[0]}, {read}", values, 2, "+")


STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: circuits that are known, of compiled programs (Lindner et al., 2023)",
    unit="programs",
    stated="after the run",
    predictions=(
        Prediction(
            "one program is read: the secant ranks the units of its circuit better than integrated gradients",
            "confirmed if the interval of the difference of areas over programs is above zero, refuted if below",
            (lead(ALONE),),
            above,
        ),
        Prediction(
            "a second program is read and ignored: the secant ranks better than integrated gradients",
            "confirmed if the interval of the difference of areas over programs is above zero, refuted if below",
            (lead(IGNORING),),
            above,
        ),
    ),
    control=lead(IGNORING),
    headline="Of one compiled program the secant's ranking has an area under the ROC curve larger by {outcome} than"
    " that of integrated gradients; beside one that is ignored, by {control} ({n} programs).",
    against="Where a second program is read and ignored, the secant is near chance"
    " ({Areas of both read-outs / secant / ignoring}, integrated gradients"
    " {Areas of both read-outs / integrated gradients, 10 steps / ignoring}); and if scores below a millionth were"
    " ranked too, integrated gradients would have"
    " {Without a least size / integrated gradients, 10 steps / False} where one is read.",
    limits="Eight small programs, whose compiled patterns are so sharp that gradients vanish; trained models have"
    " softer ones.",
    tables={
        "Areas of both read-outs": Table(
            "areas",
            ("method",),
            {"": Cell("area", 2)},
            columns="read",
            prepare=lambda areas: pd.concat([of_read(read, areas) for read in READ]),
        ),
        "Without a least size": Table(
            "areas",
            ("method",),
            {"": Cell("area", 2)},
            columns="ties",
            prepare=lambda areas: areas[(areas["read"] == ALONE) & areas.method.isin(GRADIENTS)],
            note="True: scores below a millionth count as zero; False: they are ranked, as float64 allows.",
        ),
    },
    measure=measure,
)
