"""The states of a training run that are kept on disk, and the training that keeps them."""

import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from duat_jax.errors import DuatError, NotFinite
from duat_jax.evaluation.journal import fingerprint
from duat_jax.files import path_of, write_file
from duat_jax.sealed import seal, unseal_file
from duat_jax.training.run import Moment, Run, TrainingStep
from duat_jax.training.update import SHOWN, Update, Weights, named_arrays, names_of


class Kept:
    """The states of a run that are kept in a folder, and the losses on the way to each.

    Args:
        run: the run.
        weights: the first weights.
        folder: the folder; it is made if it isn't there.
        every: the number of steps between two of them; about the root of all steps if absent, so that as many states
            are on disk as are in memory when a segment is run again.
        state: the optimiser's state before the first step; a fresh one if absent.

    Raises:
        DuatError: if the weights aren't arrays of floats, the terms aren't one array with a forward derivative, the
            optimiser's update isn't linear, or the state isn't one of this optimiser and these weights.
    """

    def __init__(
        self, run: Run, weights: Weights, folder: Path | str, *, every: int | None = None, state: Any = None
    ) -> None:
        self.folder = path_of(folder, "a folder for the states of a training")
        every = max(1, math.isqrt(run.steps)) if every is None else every
        if every < 1:
            raise DuatError(f"a state is kept every {every} steps: give at least 1")
        named_arrays(weights)
        self.run = run
        self.weights = jax.tree.map(jnp.asarray, weights)
        self.numbers = [*range(0, run.steps, every), run.steps]
        self.update = Update(run.optimiser, self.weights)
        self.shape = _shape_of_terms(run, self.weights, run.batch(0))
        self._beginning = Moment(self.weights, _state(run.optimiser, self.weights, state))
        program = jax.make_jaxpr(run.program)(*self._beginning, run.batch(0))
        text = re.sub(r" at 0x[0-9a-f]+", "", str(program.jaxpr))
        self._identity = {
            "steps": run.steps,
            "every": every,
            "weights": fingerprint(self.weights),
            "state": None if state is None else fingerprint(_named(self._beginning.state)),
            "batches": fingerprint([run.batch(number) for number in self.numbers[:-1]]),
            "program": fingerprint(program.consts, text),
        }
        self.folder.mkdir(parents=True, exist_ok=True)

    def _file(self, number: int) -> Path:
        return self.folder / f"after-{number:08d}.safetensors"

    def _head(self, number: int) -> dict[str, Any]:
        """Return what a state belongs to: its run, and the number of steps before it."""
        return {"run": self._identity, "step": number}

    @property
    def done(self) -> int:
        """The number of steps up to the first state that isn't kept."""
        there = takewhile(lambda number: number == 0 or self._file(number).exists(), self.numbers)
        return max(there)

    @property
    def last(self) -> Weights:
        """The weights after the last step."""
        return self.read(self.run.steps)[0].weights

    def keep(self, number: int, moment: Moment, losses: list[float]) -> None:
        """Keep a state.

        Args:
            number: how many steps came before it.
            moment: weights and state.
            losses: the losses of the steps since the state before.
        """
        arrays = _named(moment) | {"losses": np.array(losses)}
        write_file(self._file(number), seal(arrays, self._head(number)))

    def read(self, number: int) -> tuple[Moment, Float[np.ndarray, "steps"]]:
        """Return a kept state, and the losses of the steps since the one before.

        Args:
            number: how many steps came before it.

        Raises:
            DuatError: if the file isn't there, is damaged, or is of another run or step.
        """
        if number == 0:
            return self._beginning, np.zeros(0)
        file = self._file(number)
        if not file.exists():
            raise DuatError(f"{file} isn't there: train the run, train(run, weights, folder), before it is explained")
        remedy = (
            "remove it and train the run again, or give another folder to a run with other steps, every, first weights"
            " or state, terms, optimiser or batches"
        )
        _, arrays = unseal_file(file, self._head(number), remedy)
        leaves, structure = jax.tree.flatten(self._beginning)
        kept = [_like(leaf, arrays[name]) for leaf, name in zip(leaves, names_of(self._beginning), strict=True)]
        return jax.tree.unflatten(structure, kept), arrays["losses"]

    def require_shape(self, number: int, batch: Any) -> None:
        """Raise unless the terms of a step have the shape of those of the first one.

        Args:
            number: how many steps come before it.
            batch: its batch.
        """
        shape = _shape_of_terms(self.run, self.weights, batch)
        if shape != self.shape:
            raise DuatError(
                f"the terms of step {number} are {shape}, and those of step 0 {self.shape}: give batches of one shape,"
                " with terms of zero where one is shorter"
            )

    def segments(self) -> Iterator[tuple[int, int]]:
        """Return the numbers of the kept states on both sides of each segment."""
        return pairwise(self.numbers)

    def step(self, number: int, moment: Moment, batch: Any) -> TrainingStep:
        """Do one step, after which everything is on the devices on which it began, as it is after it is read.

        Args:
            number: how many steps come before it.
            moment: weights and state before it.
            batch: its batch.
        """
        step = self.run.step(number, moment, batch)
        return step._replace(following=jax.tree.map(_placed_as, self._beginning, step.following))

    def again(self, first: int, last: int) -> list[TrainingStep]:
        """Run a segment again from the kept state before it, and return its steps.

        Args:
            first: the number of the state before it.
            last: the number of the state after it.

        Raises:
            DuatError: if the run ends otherwise than it did.
        """
        steps: list[TrainingStep] = []
        moment, _ = self.read(first)
        for number in range(first, last):
            steps.append(self.step(number, moment, self.run.batch(number)))
            moment = steps[-1].following
        again, kept = _named(moment), _named(self.read(last)[0])
        other = [name for name, array in kept.items() if array.tobytes() != again[name].tobytes()]
        if other:
            more = f" and {len(other) - SHOWN} more" * (len(other) > SHOWN)
            raise DuatError(
                f"run again from the state after {first} steps, {', '.join(other[:SHOWN])}{more} after {last} steps"
                " aren't what they were, bit by bit: batches(number) and between(number, weights) must return the same"
                " whenever they are asked, and the run, the machine and the versions must be those of the training"
            )
        return steps


def train(
    run: Run,
    weights: Weights,
    folder: Path | str,
    *,
    every: int | None = None,
    state: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Kept:
    """Train, and keep states in a folder from which the run can be run again; an interrupted training goes on there.

    Args:
        run: the run.
        weights: the first weights, a pytree of floats.
        folder: the folder of the states.
        every: the number of steps between two states; about the root of all steps if absent.
        state: the optimiser's state before the first step, where the recording begins in the middle of a training; a
            fresh one if absent. Its running means get a part of their own.
        progress: called with the number of steps done and of all.

    Returns:
        The run with its kept states; `last` are the trained weights.

    Raises:
        DuatError: if the folder holds another run, the terms of steps differ in shape, or `Kept` refuses the run.
        NotFinite: naming the first step whose loss isn't finite.

    Example:
        >>> import jax.numpy as jnp, optax, tempfile
        >>> run = Run(lambda w, batch: (w - batch) ** 2, optax.sgd(0.25), [jnp.ones(1), jnp.zeros(1)], steps=2)
        >>> train(run, jnp.array(3.0), tempfile.mkdtemp()).last.tolist()
        1.0
    """
    kept = Kept(run, weights, folder, every=every, state=state)
    moment, _ = kept.read(done := kept.done)
    shapes = _shapes(run.batch(0))
    for first, last in kept.segments():
        if last <= done:
            continue
        losses, beginning = [], moment
        for number in range(first, last):
            if _shapes(batch := run.batch(number)) != shapes:
                kept.require_shape(number, batch)
            step = kept.step(number, moment, batch)
            moment = step.following
            losses.append(step.loss)
            if progress is not None:
                progress(number + 1, run.steps)
        numbers = [float(loss) for loss in losses]
        _require_finite(kept, beginning, numbers, first, moment)
        kept.keep(last, moment, numbers)
    return kept


def _require_finite(kept: Kept, beginning: Moment, losses: list[float], first: int, moment: Moment) -> None:
    """Raise unless the losses of a segment's steps are finite, but for those of steps that the optimiser skipped."""
    wrong = [i for i, loss in enumerate(losses) if not math.isfinite(loss)]
    for i in range(max(wrong) + 1 if wrong else 0):
        step = kept.step(first + i, beginning, kept.run.batch(first + i))
        if i in wrong and not is_skipped(step):
            raise NotFinite(f"the loss of step {first + i} is {losses[i]}: choose a lower learning rate")
        beginning = step.following
    if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(moment.weights)):
        raise NotFinite(
            f"weights aren't finite after step {first + len(losses) - 1}, though its loss is: choose a lower learning"
            " rate"
        )


def is_skipped(step: TrainingStep) -> bool:
    """Return whether a step's gradients aren't finite and its optimiser left the weights as they were."""
    pairs = zip(jax.tree.leaves(step.before.weights), jax.tree.leaves(step.after.weights), strict=True)
    finite = all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(step.gradients))
    return not finite and all(jnp.array_equal(before, after) for before, after in pairs)


def _state(optimiser: optax.GradientTransformation, weights: Weights, state: Any) -> Any:
    """Return the optimiser's state before the first step; raise unless a given one is of its kind."""
    fresh = jax.tree.map(jnp.asarray, optimiser.init(weights))
    if state is None:
        return fresh
    structures: list[Any] = [jax.tree.structure(each) for each in (state, fresh)]
    if structures[0] != structures[1] or _shapes(state) != _shapes(fresh):
        raise DuatError(
            "state isn't one of this optimiser for these weights: give what optimiser.update returned with them"
        )
    return jax.tree.map(jnp.asarray, state)


def _shapes(batch: Any) -> Any:
    return jax.tree.map(lambda leaf: (np.shape(leaf), jnp.result_type(leaf)), batch)


def _shape_of_terms(run: Run, weights: Weights, batch: Any) -> tuple[int, ...]:
    """Return the shape of a step's terms; raise unless they are one array of floats with a forward derivative."""
    terms = jax.eval_shape(run.terms, weights, batch)
    if not hasattr(terms, "dtype") or not jnp.issubdtype(terms.dtype, jnp.floating):
        raise DuatError("the terms aren't one array of floats: return the losses whose sum is the loss of the step")
    forwards = jax.make_jaxpr(lambda w: jax.jvp(lambda w: run.terms(w, batch), (w,), (w,)))(weights)
    if "custom_lin" in str(forwards):  # how JAX writes what it can't differentiate
        raise DuatError("the terms have no derivative in forward mode: write them without custom_vjp")
    return tuple(terms.shape)


def _named(tree: Any) -> dict[str, np.ndarray]:
    """Return every array of a pytree by its name, and of a random key its numbers."""
    plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(tree)]
    return dict(zip(names_of(tree), map(np.asarray, plain), strict=True))


def _like(leaf: Any, array: np.ndarray) -> Array:
    """Return a kept array as what it was: a random key, or an array on the devices of the first one."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return _placed_as(leaf, jnp.asarray(array))


def _placed_as(leaf: Array, array: Array) -> Array:
    """Return an array divided among devices as another one, if that was put on devices."""
    return jax.device_put(array, leaf.sharding) if leaf.committed and not _is_key(leaf) else array


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
