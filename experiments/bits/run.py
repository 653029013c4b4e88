"""Question: which matrices of a rounded model are worth more bits, by exact parts or by other scores?

Run `python -m experiments bits`; it writes experiments/results/bits.json and the tables in docs/how-to/two-models.md,
which
states beforehand what decides.  What is measured is kept in experiments/results/work as it is finished: a run that was
stopped goes on.
"""

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.models.transformer import Transformer
from duat_jax.weights.rounded import FINER, rounded, sizes_of_matrices, within_budget
from experiments import smollm2
from experiments.bits.report import AT_RANDOM, fields
from experiments.bits.scores import SCORES, scores_of
from experiments.emergence.run import SEEDS, SIZES, Followed
from experiments.emergence.run import WORK as STATES
from experiments.kept_results import store
from experiments.significant import significant
from experiments.texts import held_out_sources, manual

__all__ = ["fields", "main"]

WORK = Path("experiments/results/work")
EMBEDDED, ANOTHER, SMOLLM2 = "embedded model", "its shape, trained on 2 million tokens", "SmolLM2-135M"
BITS, SHARES, DRAWS, RANDOM = (3, 4), (0.1, 0.25, 0.5), 5, 5
"""Bits of a weight, budgets, draws of the texts for the scores, and random choices of each draw."""
TOGETHER = 8
"""Texts that are read together."""


class Settings(NamedTuple):
    """The texts of the measurements on one model.

    Args:
        tokens: of a text.
        texts: that scores are computed on, for each draw.
        run: of these, that the model is run on with single matrices rounded, or set back.
        fresh: others that choices are judged on.
    """

    tokens: int
    texts: int
    run: int
    fresh: int


SETTINGS = {
    EMBEDDED: Settings(128, 16, 8, 128),
    ANOTHER: Settings(128, 16, 8, 128),
    SMOLLM2: Settings(128, 12, 8, 24),
}


@cache
def model_of(name: str) -> Transformer:
    """Return a model."""
    if name == ANOTHER:
        followed = Followed(SIZES, SEEDS[0], STATES)
        return followed.network.model(followed.kept().last)
    return duat.load(smollm2.path() if name == SMOLLM2 else None)


@cache
def texts_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts of every draw, and the fresh ones; none is in two of them."""
    settings = SETTINGS[name]
    path, texts = (smollm2.path(), manual()) if name == SMOLLM2 else (None, held_out_sources())
    count = DRAWS * settings.texts + settings.fresh
    drawn = windows(stream(duat.load_tokenizer(path), texts), count, settings.tokens, seed=0)
    return drawn[settings.fresh :].reshape(DRAWS, settings.texts, -1), drawn[: settings.fresh]


def losses(model: Transformer, ids: np.ndarray) -> list[float]:
    """Return the loss of every text."""
    rows = [
        token_losses(model, jnp.asarray(ids[start : start + TOGETHER])).mean(-1)
        for start in range(0, len(ids), TOGETHER)
    ]
    return [round(float(loss), 6) for loss in np.concatenate([np.asarray(row) for row in rows])]


def references(name: str) -> dict[str, Any]:
    """Return the losses of fresh texts by a model, by it in eight bits, and in few."""
    model, fresh = model_of(name), texts_of(name)[1]
    return {"original": losses(model, fresh)} | {
        str(bits): losses(rounded(model, bits), fresh) for bits in (*BITS, FINER)
    }


def chosen(name: str, bits: int, draw: int) -> dict[str, Any]:
    """Return the losses of fresh texts with the matrices that every score chooses, for every budget."""
    model, (texts, fresh) = model_of(name), texts_of(name)
    scores, sizes = scores_of(model, bits, texts[draw], SETTINGS[name].run), sizes_of_matrices(model)
    random = np.random.default_rng([draw, bits])
    orders = [{of: size * random.random() for of, size in sizes.items()} for _ in range(RANDOM)]

    @cache
    def loss(finer: tuple[str, ...]) -> list[float]:
        return losses(rounded(model, bits, finer), fresh)

    found: dict[str, Any] = {}
    for share in SHARES:
        sets = {score: tuple(sorted(within_budget(scores[score], sizes, share))) for score in SCORES}
        drawn = [loss(tuple(sorted(within_budget(order, sizes, share)))) for order in orders]
        found[str(share)] = {score: loss(of) for score, of in sets.items()}
        found[str(share)][AT_RANDOM] = np.round(np.mean(drawn, 0), 6).tolist()
    return {
        "losses": found,
        "scores": {score: significant([of[each] for each in sizes], 5) for score, of in scores.items()},
    }


def pieces() -> Iterator[tuple[str, Any]]:
    """Yield the measurements."""
    for name in SETTINGS:
        yield f"{name}, references", partial(references, name)
        for draw in range(DRAWS):
            for bits in BITS:
                yield f"{name}, {bits} bits, draw {draw}", partial(chosen, name, bits, draw)


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    asked = {"settings": SETTINGS, "bits": BITS, "shares": SHARES, "draws": DRAWS, "scores": SCORES}
    journal = Journal(WORK / "bits", json.loads(json.dumps(asked)))
    found = {name: journal.once(name, compute) for name, compute in track(list(pieces()), "Budgets")}
    store("bits", {**asked, "pieces": found})
