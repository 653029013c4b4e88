"""Claim: the secant finds which neurons and heads of a compiled program take part in its result.

Run `python -m experiments ground_truth`, which writes docs/findings/ground-truth.md. A method that
experiments/results/ground_truth.json has isn't measured again: remove the file to measure anew. The compiled programs
are in experiments/ground_truth/compiled; `experiments.ground_truth.programs` made them.
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
from duat_jax.attribution.unit_values import Scores
from duat_jax.evaluation.circuits import METHODS
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from experiments.environment import environment
from experiments.ground_truth.programs import LAST, NOTHING, OWN, PROGRAMS
from experiments.markdown import Fields, cells, table

READ = ("alone", "ignoring")
"""The read-outs of a compiled model: the result of A; or that of `(a, b) ↦ a`, for which B is read and ignored."""
LEAST = 1e-6
"""The size below which numbers count as zero: a unit that moves by less doesn't move, and scores below are ties."""
SORTING = "sort"
"""The program in which attention patterns decide, and the word in the names of its like."""
GRADIENTS = "integrated gradients, 10 steps", "gradient x change"
"""Methods whose scores are tiny there."""
KEPT = Path(__file__).parents[1] / "results" / "ground_truth.json"


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
    sizes = {"smallest secant": secant[missed].min(), "largest secant": secant[missed].max()}
    return {"median gradient": float(np.median(gradient[missed])), **{k: float(size) for k, size in sizes.items()}}


def areas_table(areas_of: dict[str, dict[str, float]]) -> str:
    """Return a table of methods by programs in Markdown, the best mean first."""
    means = {
        method: np.mean([areas[method] for areas in areas_of.values()]) for method in next(iter(areas_of.values()))
    }
    head = ["method", "mean", *areas_of]
    rows = [
        [method, *(f"{number:.2f}" for number in (means[method], *(areas[method] for areas in areas_of.values())))]
        for method in sorted(means, key=lambda method: -means[method])
    ]
    return "\n".join(table(head, rows))


def fields(results: dict[str, dict]) -> Fields:
    """Return the fields of the documentation pages."""
    tables = {read: areas_table(results["areas"][read]) for read in READ}
    behind = {
        name: areas["secant"] - areas["integrated gradients, 10 steps"]
        for name, areas in results["areas"]["alone"].items()
    }
    sizes = results["tiny gradients"]
    tables["most behind but in sorting"] = f"{max(gap for name, gap in behind.items() if SORTING not in name):.2f}"
    tables |= {
        f"without ties, {method}": f"{np.mean(untied):.2f}" for method, untied in results["without ties"].items()
    }
    tables |= {name: f"{sizes[name]:{'.0e' if 'gradient' in name else '.2g'}}" for name in sizes}
    return tables | cells("\n\n".join(f"# {read}\n\n{areas}" for read, areas in tables.items() if read in READ))


def main() -> None:
    """Run missing measurements of every method on every program in float64, and store the results."""
    jax.config.update("jax_enable_x64", True)
    results = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"environment": environment()}
    kept = results.get("areas", {})

    def measured(name: str, read: str) -> dict[str, float]:
        known = kept.get(read, {}).get(name, {})
        results = known | areas(name, read, [method for method in METHODS if method not in known])
        return {method: results[method] for method in METHODS}

    results["areas"] = {read: {name: measured(name, read) for name in track(names(), f"{read}: ")} for read in READ}
    if "without ties" not in results:
        untied = [areas(name, "alone", GRADIENTS, least=0) for name in track(names(), "without ties: ")]
        results["without ties"] = {method: [each[method] for each in untied] for method in GRADIENTS}
        results["tiny gradients"] = tiny_gradients(SORTING)
    KEPT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
