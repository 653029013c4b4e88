"""Claim: language models are "confined to function fitting based on the majority of corpora" (version 001, 4.5).

Of texts; for functions see `make generalization`.  Run `make generalization_rare`; it writes
experiments/results/generalization_rare.json and the tables of docs/generalization.md, which states beforehand what
decides.
"""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Int

from duat_jax.evaluation.running_text import windows
from duat_jax.evaluation.statistics import Estimate, students_mean
from experiments.kept_results import journal_of, store
from experiments.long_context.choice import sizes_of
from experiments.long_context.measures import rounded
from experiments.long_context.networks import FULL, losses_of, network, train
from experiments.long_context.tasks import TRAINING, held_out_stream, trained_stream
from experiments.pages import Fields, cells, table
from experiments.texts import manual
from training.corpus import unseen

SEEDS, STEPS, RATE, TESTED = range(3), 1500, 0.5, 256
SHARES = 0.0, 0.01, 0.1, 0.5
"""The shares of training texts that are of the rare kind."""
ALONE = 0.01, 0.1
"""The shares whose texts of the rare kind are also trained on alone, in as many steps as they fill."""
BOUNDS = 1 / 3, 2 / 3
"""The part of the gain by a share of a half up to which the rare kind isn't fitted, and from which on it is."""

Results = dict[str, Any]


@cache
def rare_streams() -> tuple[Int[np.ndarray, "trained"], Int[np.ndarray, "tested"]]:
    """Return the bytes of chapters of Python's manual to train on, and of others that share few lines with them."""
    chapters = {str(i): text for i, text in enumerate(dict.fromkeys(manual()))}
    trained = {name: text for name, text in chapters.items() if int(name) % 4}
    tested = unseen(trained, {name: text for name, text in chapters.items() if not int(name) % 4})
    first, second = (
        np.frombuffer("".join(of.values()).encode(), np.uint8).astype(np.int32) for of in (trained, tested)
    )
    return first, second


def texts_of(share: float, seed: int) -> Int[np.ndarray, "steps batch tokens"]:
    """Return the texts of every step, of which a share is of the rare kind, at random places.

    Args:
        share: of the texts of the rare kind.
        seed: the seed of the draw.
    """
    number = STEPS * TRAINING.batch
    texts = windows(trained_stream(), number, TRAINING.tokens, seed=seed)
    places = np.random.default_rng(seed).permutation(number)[: round(share * number)]
    texts[places] = rare_texts(len(places), seed)
    return texts.reshape(STEPS, TRAINING.batch, -1)


def rare_texts(number: int, seed: int) -> Int[np.ndarray, "number tokens"]:
    """Return texts of the rare kind, in passes over all of them.

    Args:
        number: how many.
        seed: the seed of the order.
    """
    once = windows(rare_streams()[0], None, TRAINING.tokens, seed=seed)
    return np.resize(once, (number, once.shape[1])) if number else once[:0]


def losses(texts: Int[np.ndarray, "steps batch tokens"], seed: int) -> dict[str, Any]:
    """Return the losses of a network that is trained on texts: on the rare kind and on the frequent one.

    Args:
        texts: of every step.
        seed: the seed of its first weights.
    """
    model = train(network(sizes_of(FULL), nnx.Rngs(seed)), jnp.asarray(texts), jnp.asarray(RATE))[0]
    streams = {"rare": rare_streams()[1], "frequent": held_out_stream()}
    return {
        kind: rounded(losses_of(model, windows(stream, TESTED, TRAINING.tokens, seed=0)).mean())
        for kind, stream in streams.items()
    }


def mixed(share: float, seed: int) -> dict[str, Any]:
    """Return the losses after training on a mixture.

    Args:
        share: of the texts of the rare kind.
        seed: of the network.
    """
    return losses(texts_of(share, seed), seed)


def alone(share: float, seed: int) -> dict[str, Any]:
    """Return the losses after training on nothing but the rare texts of a mixture.

    Args:
        share: of the texts of the rare kind in the mixture.
        seed: of the network.
    """
    steps = round(share * STEPS)
    return losses(rare_texts(steps * TRAINING.batch, seed).reshape(steps, TRAINING.batch, -1), seed)


def recovered(results: Results, share: float) -> Estimate:
    """Return which part of the gain by a share of a half another share has, on the rare kind.

    Args:
        results: what was kept.
        share: the other share.
    """
    none, some, half = (
        np.array([seed["rare"] for seed in results["mixed"][str(of)]]) for of in (SHARES[0], share, SHARES[-1])
    )
    return students_mean((none - some) / (none - half))


def _verdict(part: Estimate) -> str:
    return "confined" if part.high < BOUNDS[0] else "not confined" if part.low > BOUNDS[1] else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    rows = []
    for way in ("mixed", "alone"):
        for share, seeds in results[way].items():
            written = [
                students_mean(np.array([seed[kind] for seed in seeds])).written() for kind in ("rare", "frequent")
            ]
            rows.append([f"{float(share):.0%}", "both kinds" if way == "mixed" else "the rare kind alone", *written])
    head = ["of the rare kind", "trained on", "loss, rare kind", "loss, frequent kind"]
    verdicts = []
    for share in SHARES[1:-1]:
        part = recovered(results, share)
        verdicts.append([f"{share:.0%}", part.written(2), _verdict(part)])
    lines = [
        "### Verdicts on rare texts",
        "",
        *table(["of the rare kind", "part of the gain", "verdict"], verdicts),
        "",
    ]
    text = "\n".join([*lines, "### Losses by the share of rare texts", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Train the networks, store the results, and write the page."""
    settings = {"seeds": len(SEEDS), "steps": STEPS, "rate": RATE, "tested": TESTED, "training": TRAINING._asdict()}
    journal = journal_of("generalization_rare", settings)
    results: Results = {"mixed": {str(share): [] for share in SHARES}, "alone": {str(share): [] for share in ALONE}}
    for seed in SEEDS:
        for name, compute in (("mixed", mixed), ("alone", alone)):
            for share, seeds in results[name].items():
                once = partial(compute, float(share), seed)
                seeds.append(journal.once(f"{name}, {share}, seed {seed}", once))
    store("generalization_rare", {"settings": settings, **results})


if __name__ == "__main__":
    main()
