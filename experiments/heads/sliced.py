"""Question: do heads that see slices of the features lose what heads of the whole stream have (version 001, 4.5)?

Run `python -m experiments heads_sliced`; it writes experiments/results/heads_sliced.json and the tables of
docs/findings/heads.md, which states beforehand what decides.  Beside the networks stand those with full attention of
`python -m
experiments long_context_trained`.
"""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from duat_jax.models.layer_parts import blocks
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, alike, initial
from experiments.approximation.selection import matched
from experiments.kept_results import journal_of, kept, store
from experiments.long_context.choice import SEEDS, best, sizes_of
from experiments.long_context.measures import measure, rounded
from experiments.long_context.networks import FULL, Sizes, losses_of, network, train
from experiments.long_context.tasks import TRAINING, held_out_texts, training_texts
from experiments.markdown import Fields, cells, table

RATES, STEPS, TRIAL_SEED = (0.5, 1.0, 2.0), 6000, 3
SLICED = "slices"
BOUND = 0.02
"""The difference of losses from which on it counts as one, in nats a byte."""
MEASURES = {"loss": "late", "gain by far bytes": "gain", "loss of a word's second copy": "64"}

Results = dict[str, Any]


@final
class SlicedProjection(nnx.Module):
    """Project each head's slice of the features: `y_h = x_h W_h`, with matrices of `M/h × M/h` (Wang & Li, Eq. 7).

    Args:
        features: width `M` of the stream.
        heads: number of heads `h`.
        rngs: source of the random initial weights; zeros without it.
    """

    def __init__(self, features: int, heads: int, *, rngs: nnx.Rngs | None) -> None:
        size = features // heads
        # Fewer inputs, of which outputs shall be as large as those of the whole stream.
        self.kernel = initial((heads, size, size), jnp.float32, rngs)
        self.kernel[...] *= heads**0.5

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Project the slices."""
        kernel = alike(self.kernel[...], x)
        slices = x.reshape(*x.shape[:-1], len(kernel), -1)
        return jnp.einsum("...hd,hde->...he", slices, kernel, precision=PRECISION).reshape(x.shape)


def sliced(sizes: Sizes, rngs: nnx.Rngs | None) -> Transformer:
    """Return a language model whose heads' queries, keys and values are made from slices of the features."""
    model = network(sizes, rngs)
    for block in blocks(model):
        attention: Any = block.attention
        for part in ("query", "key", "value"):
            setattr(attention, part, SlicedProjection(sizes.features, sizes.heads, rngs=rngs))
    return model


def count(sizes: Sizes) -> int:
    """Return the number of a network's parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(sliced, sizes, None))))


def sizes() -> Sizes:
    """Return the sizes of a network with as many parameters as the one with full attention."""
    parameters: int = kept("long_context_trained")["kinds"][FULL]["untrained"]["parameters"]
    return matched(replace(sizes_of(FULL), neurons=1), parameters, count)


def trained(rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network, with the texts that full attention was trained on."""
    texts = jnp.asarray(training_texts(TRAINING, steps, seed))
    return train(sliced(sizes(), nnx.Rngs(seed)), texts, jnp.asarray(rate))[0]


def trial(rate: float) -> float:
    """Return the validation loss after a quarter of the steps."""
    model = trained(rate, TRIAL_SEED, STEPS // 4)
    return rounded(losses_of(model, held_out_texts(TRAINING.tokens, 0)[0]).mean())


def measured(rate: float, seed: int) -> dict[str, Any]:
    """Return what is measured on a trained network, text by text."""
    return measure(trained(rate, seed, STEPS))


def means(seeds: list[dict[str, Any]], name: str) -> np.ndarray:
    """Return a measurement of every seed."""
    return np.array([np.mean(seed[name] if name in seed else seed["recall"][name]) for seed in seeds])


def _verdict(more: IntervalEstimate) -> str:
    return "lost" if more.low > BOUND else "nothing lost" if more.high < BOUND else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    full = kept("long_context_trained")["kinds"][FULL]
    parameters = full["untrained"]["parameters"]
    rows = [[FULL, f"{parameters:,}", f"{full['rate']:g}"]]
    rows[0] += [
        text for name in MEASURES.values() for text in (students_mean(means(full["seeds"], name)).written(), "")
    ]
    rows[0].append("")
    row = [SLICED, f"{results['parameters']:,}", f"{results['rate']:g}"]
    for name in MEASURES.values():
        own, other = means(results["seeds"], name), means(full["seeds"], name)
        row += [students_mean(own).written(), students_mean(own - other).written(sign="+")]
    more = students_mean(means(results["seeds"], "late") - means(full["seeds"], "late"))
    rows.append([*row, _verdict(more)])
    head = ["network", "parameters", "rate"]
    head += [text for name in MEASURES for text in (name, f"{name}, more than full attention's")]
    text = "\n".join(["### Heads that read slices", "", *table([*head, "of the loss"], rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, and store the results."""
    settings = {"rates": RATES, "steps": STEPS, "seeds": SEEDS, "training": TRAINING._asdict()}
    journal = journal_of("heads_sliced", settings)
    trials = {rate: journal.once(f"rate {rate}", partial(trial, rate)) for rate in RATES}
    rate = best(trials)
    results = {
        "settings": settings,
        "sizes": asdict(sizes()),
        "parameters": count(sizes()),
        "trials": list(trials.items()),
        "rate": rate,
        "seeds": [journal.once(f"seed {seed}", partial(measured, rate, seed)) for seed in SEEDS],
    }
    store("heads_sliced", results)
