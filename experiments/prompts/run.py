"""Question: which parameters of the closed form does a prompt move at the text after it, and do they carry the task?

Run `python -m experiments prompts`; it writes experiments/results/prompts.json and the tables in
docs/findings/prompts.md, which
states beforehand what decides.  What is measured is kept in experiments/results/work as it is finished: a run that was
stopped goes on.
"""

from collections.abc import Iterator
from functools import cache, partial
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments import smollm2
from experiments.kept_results import store
from experiments.prompts.exchanged import EVERYWHERE, TEXT, WORDS, distances, scores
from experiments.prompts.report import BETWEEN_TEXTS, fields
from experiments.prompts.texts import INSTRUCTIONS, Prompts, draw_prompts

__all__ = ["fields", "main"]

WORK = Path("experiments/results/work")
TASKS = list(INSTRUCTIONS)
WORDINGS = 2


class Sizes(NamedTuple):
    """The sizes of the study.

    Args:
        texts: the number of texts.
        length: tokens of each.
        answer: tokens of an answer.
    """

    texts: int = 20
    length: int = 32
    answer: int = 8


@jax.jit
def _next(model: Transformer, ids: Int[Array, "texts tokens"], place: int) -> Int[Array, "texts"]:
    return jax.vmap(model)(ids)[:, place - 1].argmax(-1)


def answers(model: Transformer, ids: Int[np.ndarray, "texts tokens"], count: int) -> Int[np.ndarray, "texts answer"]:
    """Return the most probable tokens after texts, one after another."""
    tokens = ids.shape[1]
    whole = np.concatenate([ids, np.zeros((len(ids), count), ids.dtype)], 1)
    for place in range(tokens, tokens + count):
        whole[:, place] = np.asarray(_next(model, jnp.asarray(whole), place))
    return whole[:, tokens:]


def between(model: Transformer, prompts: Prompts, answered: np.ndarray, own: int, other: int, role: int) -> list[Any]:
    """Return the scores of every kind of run with two prompts' answers, text by text."""
    tokens = prompts.ids.shape[-1] + answered.shape[-1]
    number = jnp.arange(tokens)
    places = {
        WORDS: number < prompts.text.start,
        TEXT: (number >= prompts.text.start) & (number < prompts.text.stop),
        EVERYWHERE: number >= 0,
    }
    found = []
    for text in range(prompts.ids.shape[1]):
        pairs = [
            jnp.array([np.concatenate([prompts.ids[prompt, text], answered[of, text]]) for of in (own, other)])
            for prompt in (own, role)
        ]
        found.append(on_host(scores(model, *pairs, places, count=answered.shape[-1])))
    return [{name: round(float(score), 5) for name, score in of.items()} for of in found]


def apart(model: Transformer, prompts: Prompts, first: int, second: int) -> dict[str, list[float]]:
    """Return how far apart parameters are at the tokens of every text, after two prompts."""
    ids = prompts.ids[first]
    others = np.roll(ids, 1, 0) if first == second else prompts.ids[second]
    place = {"first": prompts.text.start, "last": prompts.text.stop}
    found = on_host(distances(model, jnp.asarray(ids), jnp.asarray(others), **place))
    return {name: [round(float(each), 6) for each in of] for name, of in found.items()}


def pieces(model: Transformer, prompts: Prompts, count: int, journal: Journal) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result of every measurement, those that are finished from the journal."""

    def once(name: str, compute: Any) -> tuple[str, Any]:
        return name, journal.once(name, compute)

    answered = []
    for ids, (task, wording) in zip(prompts.ids, prompts.names, strict=True):
        name, found = once(f"answers, {task} {wording}", lambda ids=ids: answers(model, ids, count).tolist())
        answered.append(np.array(found, np.int32))
        yield name, found
    every = np.stack(answered)
    place = {name: i for i, name in enumerate(prompts.names)}
    for own, other in permutations(TASKS, 2):
        a, b, same = place[own, 0], place[other, 0], place[own, 1]
        yield once(f"{own} to {other}", partial(between, model, prompts, every, a, b, b))
        yield once(f"{own} to {other}, own wording", partial(between, model, prompts, every, a, b, same))
    for i, first in enumerate(TASKS):
        a = place[first, 0]
        yield once(f"apart, {first}, wordings", partial(apart, model, prompts, a, place[first, 1]))
        yield once(f"apart, {first}, {BETWEEN_TEXTS}", partial(apart, model, prompts, a, a))
        for second in TASKS[i + 1 :]:
            yield once(f"apart, {first}, {second}", partial(apart, model, prompts, a, place[second, 0]))


@cache
def _model() -> tuple[Transformer, Any]:
    model = duat.load(smollm2.path())
    return model, model.tokenizer


def measure_all(
    sizes: Sizes = Sizes(),  # noqa: B008
    work: Path = WORK,
    model: Transformer | None = None,
    tokenizer: Any = None,
) -> Any:
    """Run what isn't measured yet, and return the results."""
    if model is None:
        model, tokenizer = _model()
    work.mkdir(parents=True, exist_ok=True)
    prompts = draw_prompts(tokenizer, sizes.texts, sizes.length, seed=0)
    settings = {"sizes": sizes._asdict(), "instructions": {task: list(of) for task, of in INSTRUCTIONS.items()}}
    journal = Journal(work / "prompts", settings)
    total = len(TASKS) * WORDINGS + 2 * len(TASKS) * (len(TASKS) - 1) + 2 * len(TASKS) + len(TASKS)
    found = dict(track(pieces(model, prompts, sizes.answer, journal), "Measurements", total=total))
    return {**settings, "pieces": found}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    store("prompts", measure_all())
