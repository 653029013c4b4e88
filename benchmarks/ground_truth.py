"""Claim: the secant finds which neurons and heads of a compiled program take part in its result.

Run `make ground-truth`, which writes docs/ground-truth.md. The compiled programs are in
benchmarks/programs; `benchmarks.compile_programs` made them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from benchmarks.compile_programs import LAST, NOTHING, OWN, PROGRAMS
from benchmarks.environment import environment
from duat_jax.analysis.attribution import METHODS, Scores
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig

READ = ("alone", "ignoring")
"""What is read of a compiled model: the result of A; or that of `(a, b) ↦ a`, for which B is read and ignored."""
LEAST = 1e-6
"""What is smaller counts as zero: a unit that moves by less doesn't move, and scores below are ties."""
RESULTS = Path(__file__).parent / "results"
INTRODUCTION = """# Circuits that are known

A program that is compiled into a Transformer has a circuit that needn't be found: of each neuron and each head it is
known which variable of the program it computes. Each model here was compiled by tracr 1.0.0 and computes two programs
on five tokens side by side: *A*, which names the column, and another one, *B*. Out of both results the neurons of the
last layer compute `(a, b) ↦ a`. The weights are in `benchmarks/programs`, and the tests hold them to what the
compiler's own model computes.

Every [method](../duat_jax/analysis/attribution.py) scores every neuron and every head on 32 pairs of texts that differ
in one token and in what *A* says at the last one; a unit's score is the sum of the scores' sizes over tokens, and its
mean over pairs. Shown is the area under the ROC curve: how often a unit that takes part scores higher than one that
doesn't, where ties count half. 1 is a perfect ranking, 0.5 chance. Left out are units that have the same value in both
texts of every pair. Everything is in float64. `make ground-truth` writes this page.

## One program is read, the other isn't

*A*'s own result is read. Those that take part are the neurons and heads from which a path of weights leads to it; from
those of *B* none does.

{}

The secant comes first, alone or with others, on every program. Integrated gradients in 10 steps lose by 0.05 at most
where only counts and steps decide, and are near chance in sorting, where a pattern decides: a compiled pattern is so
sharp that most of its gradients are 1e-19 and less, where the secant's parts are 0.07 to 23. Scores below 1e-6 count
as zero; if they were ranked all the same, as float64 allows, integrated gradients in 10 steps would have a mean of
0.96, and the gradient one of 0.95. Whatever holds the patterns is at chance in sorting. What is missing to 1 are units
of *A* that move without a part in what is said at the last token.

## Both are read, and one is ignored

The result of `(a, b) ↦ a` is read. Those that take part are the same, and the neurons of the last layer. Paths lead
from *B* to the result too, but whatever *B* says, the result is the same.

{}

Here the secant loses to integrated gradients on the mean, and on four of the eight programs it ranks the units of *B*
above those of *A*. A neuron of the last layer fires where *A* says `a` and *B* says `b`, a step of the sum of both.
Where *A* moves alone, the secant sees that what `b` adds to one neuron it takes from another one, and gives *B* nothing
at all (counting a token, the histogram); a gradient, taken at one text, doesn't see it. Where both move, each gets half
of the step. Of the function as a whole *B*'s Shapley value is zero, but the secant splits each operation by itself, and
only between the two texts, not where one variable moved and the other didn't. Half-steps don't mend it. And *B*'s half
is made of large parts that cancel, for its steps are differences of steep ramps.
"""


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

    model: duat.Transformer
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
    """Return a compiled program, in float64.

    Args:
        name: its name.
        read: what is read, a name in `READ`.
    """
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
    config = duat.Config(
        family="compiled", blocks=(block,) * layers, vocab=vocab, positions=positions, final_norm=False, head=head
    )
    model = duat.Transformer(config, dtype=jnp.float64, rngs=None)
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
    """Return how often a unit that takes part scores higher than one that doesn't; a tie counts half.

    Args:
        scores: `[units]`.
        truth: `[units]`.
    """
    higher = np.sign(scores[truth][:, None] - scores[~truth])
    return float((1 + higher).mean() / 2)


def circuit_scores(compiled: Compiled, scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Return one score of each neuron and head that writes something, and what it writes.

    Args:
        compiled: the program.
        scores: of each pair, `[pairs, layers, tokens, units]`.
    """
    kinds = ((scores.neurons, compiled.neurons), (scores.heads, compiled.heads))
    found = [np.abs(np.asarray(of_units)).sum(2).mean(0)[roles != NOTHING] for of_units, roles in kinds]
    sizes = np.concatenate(found)
    return np.where(sizes < LEAST, 0, sizes), np.concatenate([roles[roles != NOTHING] for _, roles in kinds])


RUN = {name: jax.jit(jax.vmap(method, in_axes=(None, 0, 0, 0, 0))) for name, method in METHODS.items()}


def areas(name: str, read: str, methods: Iterable[str] = METHODS) -> dict[str, float]:
    """Return how well methods tell units that take part in a program from those that don't.

    Units that have the same value in both texts of every pair are left out: nothing could tell what they are for.

    Args:
        name: the program.
        read: what is read, a name in `READ`.
        methods: names of methods.
    """
    compiled = load(name, read)
    given = compiled.model, compiled.clean, compiled.corrupted, compiled.right, compiled.wrong
    change, roles = circuit_scores(compiled, RUN["norm of change x W_out"](*given))
    moves = change > 0
    truth = (roles == OWN) | ((roles == LAST) & (read == "ignoring"))
    scores = {method: circuit_scores(compiled, RUN[method](*given))[0] for method in methods}
    return {method: area_under_curve(found[moves], truth[moves]) for method, found in scores.items()}


PAGE = Path(__file__).parents[1] / "docs" / "ground-truth.md"


def table(found: dict[str, dict[str, float]]) -> str:
    """Return a table of methods by programs in Markdown, the best mean first.

    Args:
        found: of each program, each method's area.
    """
    means = {method: np.mean([areas[method] for areas in found.values()]) for method in METHODS}
    head = ["method", "mean", *found]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for method in sorted(METHODS, key=lambda method: -means[method]):
        numbers = [means[method], *(areas[method] for areas in found.values())]
        lines.append("| " + " | ".join([method, *(f"{number:.2f}" for number in numbers)]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure every method on every program and write the page."""
    found = {read: {name: areas(name, read) for name in track(names(), f"{read}: ")} for read in READ}
    PAGE.write_text(INTRODUCTION.format(*(table(found[read]) for read in READ)), encoding="utf-8")
    result = {"environment": environment(), "areas": found}
    (RESULTS / "ground_truth.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
