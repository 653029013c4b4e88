"""A training of the embedded model on pieces of text, some of them planted: scores, and trainings without pieces."""

import tempfile
from collections.abc import Iterable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.evaluation.statistics import agreement
from duat_jax.models.transformer import Transformer
from duat_jax.training import Kept, Run, influence, train
from duat_jax.training.next_token import TrainingSettings, learning_rate, optimiser_of, parts_of_pieces, rows_of_step
from duat_jax.training.over_weights.compute import Number
from duat_jax.training.run import Moment
from experiments.retraining.planted_texts import (
    ALONE,
    BOTH,
    CONTRADICTED,
    DECOY,
    LARGEST,
    ORDINARY,
    REPLACED,
    TAUGHT,
    TWIN,
    TWINS,
    WORLDS,
    WRONG,
    Draw,
    draw,
)  # fmt: skip
from experiments.study import Row

DRAWS, LEFT_OUT = 14, 3
"""The number of draws, and of those in which every piece is left out once."""
STEPS, BATCH, RATE, EVERY = 64, 4, 1e-3, 8
REMOVED: dict[str, dict[str, tuple[str, ...]]] = {
    ALONE: {TAUGHT: (TAUGHT,), DECOY: (DECOY,), ORDINARY: (ORDINARY,), LARGEST: (LARGEST,)},
    TWINS: {TAUGHT: (TAUGHT,), TWIN: (TWIN,), BOTH: (TAUGHT, TWIN)},
    CONTRADICTED: {TAUGHT: (TAUGHT,), WRONG: (WRONG,)},
}
"""The sets of pieces without which each training is done again."""
EXACT, ELSEWHERE = "exact ledger", "exact ledger, after other text"
FIRST, LAST = "first order at the beginning", "gradient after all"
TRACIN, COSINE, ALIKE = "TracIn", "cosine of gradients after all", "control: alike tokens"
METHODS = (EXACT, ELSEWHERE, FIRST, LAST, TRACIN, COSINE, ALIKE)
"""The scores of pieces."""
Found = dict[str, Any]


class Reading:
    """A training of the embedded model on pieces of text, any of which may be left out.

    Args:
        drawn: the texts.
        world: which pieces are planted.
        seed: the seed of the order of the pieces.
    """

    def __init__(self, drawn: Draw, world: str, seed: int) -> None:
        self.drawn, self.world, self.model = drawn, world, duat.load()
        self.ids = drawn.pieces(WORLDS[world])
        self.settings = TrainingSettings(STEPS, BATCH, RATE, seed)

        def terms(model: Transformer, batch: tuple[Array, Array]) -> Float[Array, "batch predicted"]:
            rows, counted = batch
            return token_losses(model, rows) * counted[:, None] / rows[:, 1:].size

        self.run = Run(terms, optimiser_of(self.settings), self.batch, STEPS)

    def batch(self, step: int, without: Iterable[int] = (), ids: np.ndarray | None = None) -> tuple[Array, Array]:
        """Return the pieces of a step, and one of each that counts."""
        rows = rows_of_step(step, len(self.ids), self.settings)
        counted = ~np.isin(rows, list(without))
        return jnp.asarray((self.ids if ids is None else ids)[rows]), jnp.asarray(counted, jnp.float32)

    def again(self, without: Iterable[int] = (), ids: np.ndarray | None = None) -> Transformer:
        """Return the model after another training in the same program."""
        moment = Moment(self.model, self.run.optimiser.init(self.model))
        for step in range(STEPS):
            moment = self.run.step(step, moment, self.batch(step, without, ids)).following
        return moment.weights


def number_of(text: list[int], answer: int) -> "Number":
    """Return the mean loss of an answer's tokens and of the mark that closes it, as a function of the model."""
    ids = jnp.array([text])
    return lambda model: token_losses(model, ids)[0, answer - 1 :].mean()


def linear(number: "Number", model: Transformer) -> "Number":
    """Return a number's linear approximation at some weights, without its value there."""
    slope = jax.grad(number)(model)
    return lambda other: optax.tree.vdot(slope, optax.tree.sub(other, model))


def scores(of: Reading, kept: Kept) -> tuple[Found, Found]:
    """Return the scores of all pieces by every method, and what else the exact ledger says."""
    drawn, ids = of.drawn, of.ids
    number = number_of(drawn.text, drawn.answer)
    numbers = {
        EXACT: number,
        ELSEWHERE: number_of([*drawn.before, *drawn.text], len(drawn.before) + drawn.answer),
        FIRST: linear(number, kept.weights),
        LAST: linear(number, kept.last),
    }
    found: Found = {}
    said: Found = {}
    for method, explained in influence(kept, numbers).items():
        if explained.completeness.verdict != "holds":
            raise AssertionError(f"{method}: the parts don't sum to the change: {explained.completeness}")
        tokens, _ = parts_of_pieces(explained, len(ids), of.settings)
        found[method] = tokens.sum(1)
        if method == EXACT:
            answers = {
                name: float(tokens[drawn.places[name]][drawn.is_answer(name)].sum())
                for name in WORLDS[of.world]
                if name in (TAUGHT, WRONG)
            }
            said = {"difference": explained.difference, "kinds": explained.parts, "of answers": answers}
    rows = jnp.asarray(ids)

    @jax.jit
    def products(model: Transformer) -> Array:
        """Return minus the products of the number's gradient with that of every piece's loss."""
        slope = jax.grad(number)(model)
        return -jax.jvp(lambda other: token_losses(other, rows).mean(1), (model,), (slope,))[1]

    @jax.jit
    def norms(model: Transformer) -> Array:
        def norm(row: Array) -> Array:
            return optax.tree.norm(jax.grad(lambda other: token_losses(other, row[None]).mean())(model))

        return jax.lax.map(norm, rows)

    rate = learning_rate(of.settings)
    found[TRACIN] = sum(float(rate(step)) * np.asarray(products(kept.read(step)[0].weights)) for step in kept.numbers)
    found[COSINE] = np.asarray(products(kept.last)) / np.asarray(norms(kept.last))
    of_text, *of_pieces = (np.bincount(each, minlength=int(ids.max()) + 1) for each in (drawn.text, *ids))
    found[ALIKE] = np.array([-(of_text @ each) / np.linalg.norm(each) for each in of_pieces])
    return found, said


def places(of: Float[np.ndarray, "pieces"], piece: int) -> tuple[int, int]:
    """Return the place of a piece from the lowest and from the highest score on, of equal ones the worst.

    Example:
        >>> places(np.array([0.0, -2.0, -2.0, 1.0]), 1), places(np.array([0.0, -2.0, -2.0, 1.0]), 3)
        ((2, 4), (4, 1))
    """
    return int((of <= of[piece]).sum()), int((of >= of[piece]).sum())


@cache
def train_with(seed: int, world: str) -> dict[str, list[Row]]:
    """Return the rows of one training in every frame: ends, pieces, orders, and what leaving each piece out changes."""
    drawn = draw(seed)
    of = Reading(drawn, world, seed)
    number = jax.jit(number_of(drawn.text, drawn.answer))
    with tempfile.TemporaryDirectory() as folder:
        kept = train(of.run, of.model, folder, every=EVERY)
        found, said = scores(of, kept)
        last = kept.last
    ordinary = np.delete(np.arange(len(of.ids)), [drawn.places[name] for name in WORLDS[world]])
    where = drawn.places | {LARGEST: int(ordinary[np.abs(found[EXACT][ordinary]).argmax()])}
    without = {
        name: float(number(of.again([where[piece] for piece in pieces]))) for name, pieces in REMOVED[world].items()
    }
    if world == ALONE:
        replaced = of.ids.copy()
        replaced[where[TAUGHT]] = drawn.ids[where[TAUGHT]]
        without[REPLACED] = float(number(of.again(ids=replaced)))
    other = jax.jit(number_of(*drawn.other_name))
    ends = {"before": number(of.model), "after": number(last), "floor": number(of.again()) - number(last)}
    ends |= {"other_before": other(of.model), "other_after": other(last), "difference": said["difference"]}
    names = dict.fromkeys([*WORLDS[world], ORDINARY, LARGEST, *without])
    left_out: list[Row] = []
    if world == ALONE and seed < LEFT_OUT:
        one_out = np.array([float(number(last)) - float(number(of.again([piece]))) for piece in range(len(of.ids))])
        left_out = [
            {
                "method": method,
                "ordinary": agreement(each[ordinary], one_out[ordinary])[0],
                "all": agreement(each, one_out)[0],
                "place": places(one_out, where[TAUGHT])[0],
            }
            for method, each in found.items()
        ]
    return {
        "trainings": [{**ends, "ordinary": found[EXACT][ordinary].sum(), **said["kinds"]}],
        "pieces": [
            {
                "piece": name,
                "part": float(found[EXACT][where[name]]) if name in where else None,
                "without": without.get(name),
                "answer": said["of answers"].get(name),
            }
            for name in names
        ],
        "orders": [
            {
                "method": method,
                "piece": name,
                **dict(zip(("from_lowest", "from_highest"), places(each, where[name]), strict=True)),
                "margin": (each[ordinary].min() - each[where[TAUGHT]]) / each[ordinary].std(),
            }
            for method, each in found.items()
            for name in WORLDS[world]
        ],
        "left out": left_out,
    }
