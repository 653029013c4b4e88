"""Question: do heads that see slices of the features lose what heads of the whole stream have (version 001, 4.5)?

Run `make heads_sliced`; it writes experiments/results/heads_sliced.json and the tables of docs/heads.md, which states
beforehand what decides.  Beside the networks stand those with full attention of `make long_context_trained`.
"""

from dataclasses import asdict, replace
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.evaluation.statistics import Estimate, students_mean
from duat_jax.models.layer_parts import blocks
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION, alike, initial
from experiments.approximation.selection import matched
from experiments.kept_results import journal_of, store
from experiments.long_context.choice import SEEDS, best, sizes_of
from experiments.long_context.measures import measure, rounded
from experiments.long_context.networks import FULL, Sizes, losses_of, network, train
from experiments.long_context.tasks import TRAINING, held_out_texts, training_texts
from experiments.pages import Fields, cells, kept, table

RATES, STEPS, TRIAL_SEED = (0.5, 1.0, 2.0), 6000, 3
SLICED, SMALLER = "slices, wider MLPs", "slices, as wide MLPs"
KINDS = SLICED, SMALLER
BOUND = 0.02
"""The difference of losses from which on it counts as one, in nats a byte."""
MEASURES = {"loss": "late", "gain by far bytes": "gain"}

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
        self.kernel = initial((heads, size, size), jnp.float32, rngs)

    def __call__(self, x: Float[Array, "... tokens features"]) -> Float[Array, "... tokens features"]:
        """Project the slices.

        Args:
            x: `[..., tokens, features]`.
        """
        kernel = alike(self.kernel[...], x)
        slices = x.reshape(*x.shape[:-1], len(kernel), -1)
        return jnp.einsum("...hd,hde->...he", slices, kernel, precision=PRECISION).reshape(x.shape)


def sliced(sizes: Sizes, rngs: nnx.Rngs | None) -> Transformer:
    """Return a language model whose heads' queries, keys and values are made from slices of the features.

    Args:
        sizes: what it is made of.
        rngs: source of the random initial weights; zeros without it.
    """
    model = network(sizes, rngs)
    for block in blocks(model):
        attention: Any = block.attention
        for part in ("query", "key", "value"):
            setattr(attention, part, SlicedProjection(sizes.features, sizes.heads, rngs=rngs))
    return model


def count(sizes: Sizes) -> int:
    """Return the number of a network's parameters.

    Args:
        sizes: what it is made of.
    """
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(partial(sliced, sizes, None))))


def sizes_of_kind(kind: str) -> Sizes:
    """Return the sizes of a network: as many neurons as beside full attention, or as many parameters.

    Args:
        kind: a name in `KINDS`.
    """
    full = sizes_of(FULL)
    if kind == SMALLER:
        return full
    parameters: int = kept("long_context_trained")["kinds"][FULL]["untrained"]["parameters"]
    return matched(replace(full, neurons=1), parameters, count)


def trained(kind: str, rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network, with the texts that full attention was trained on.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
        seed: the seed of its first weights and of what it reads.
        steps: of the training.
    """
    texts = jnp.asarray(training_texts(TRAINING, steps, seed))
    return train(sliced(sizes_of_kind(kind), nnx.Rngs(seed)), texts, jnp.asarray(rate))[0]


def trial(kind: str, rate: float) -> float:
    """Return the validation loss after a quarter of the steps.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
    """
    model = trained(kind, rate, TRIAL_SEED, STEPS // 4)
    return rounded(losses_of(model, held_out_texts(TRAINING.tokens, 0)[0]).mean())


def measured(kind: str, rate: float, seed: int) -> dict[str, Any]:
    """Return what is measured on a trained network, text by text.

    Args:
        kind: a name in `KINDS`.
        rate: the factor of the learning rates.
        seed: the network's seed.
    """
    return measure(trained(kind, rate, seed, STEPS))


def means(seeds: list[dict[str, Any]], name: str) -> np.ndarray:
    """Return a measurement of every seed.

    Args:
        seeds: the measurements of every seed.
        name: `"late"` or `"gain"`.
    """
    return np.array([np.mean(seed[name]) for seed in seeds])


def _verdict(more: Estimate) -> str:
    return "lost" if more.low > BOUND else "nothing lost" if more.high < BOUND else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    full = kept("long_context_trained")["kinds"][FULL]
    parameters = full["untrained"]["parameters"]
    rows = [[FULL, f"{parameters:,}", f"{full['rate']:g}"]]
    rows[0] += [
        text for name in MEASURES.values() for text in (students_mean(means(full["seeds"], name)).written(), "")
    ]
    rows[0].append("")
    for kind, of in results["kinds"].items():
        row = [kind, f"{of['parameters']:,}", f"{of['rate']:g}"]
        for name in MEASURES.values():
            own, other = means(of["seeds"], name), means(full["seeds"], name)
            row += [students_mean(own).written(), students_mean(own - other).written(sign="+")]
        more = students_mean(means(of["seeds"], "late") - means(full["seeds"], "late"))
        rows.append([*row, _verdict(more)])
    head = ["network", "parameters", "rate"]
    head += [text for name in MEASURES for text in (name, f"{name}, more than full attention's")]
    text = "\n".join(["### Heads that read slices", "", *table([*head, "of the loss"], rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, store the results, and write the page."""
    settings = {"rates": RATES, "steps": STEPS, "seeds": SEEDS, "training": TRAINING._asdict()}
    journal = journal_of("heads_sliced", settings)
    kinds: Results = {}
    for kind in KINDS:
        trials = {rate: journal.once(f"{kind}, rate {rate}", partial(trial, kind, rate)) for rate in RATES}
        rate, sizes = best(trials), sizes_of_kind(kind)
        seeds = [journal.once(f"{kind}, seed {seed}", partial(measured, kind, rate, seed)) for seed in SEEDS]
        of = {"sizes": asdict(sizes), "parameters": count(sizes), "trials": list(trials.items()), "rate": rate}
        kinds[kind] = {**of, "seeds": seeds}
    store("heads_sliced", {"settings": settings, "kinds": kinds})


if __name__ == "__main__":
    main()
