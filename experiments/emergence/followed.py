"""A training that is followed: made when it is needed, and measured on its kept states."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.evaluation.running_text import mean_loss
from duat_jax.processes import on_host
from duat_jax.training import Kept, train
from experiments.emergence.counted import losses_of_counts
from experiments.emergence.courses import FOLLOWED_TRAINING, RULES, part_of
from experiments.emergence.ledgers import of_segments
from experiments.emergence.moving import MOVEMENT, SHARE, attention_to_copies, moving, parts_of_states
from experiments.emergence.own_texts import OTHER_FILES, READ_BY, own_texts
from experiments.emergence.texts import Sizes, Texts, continued, control, draw_texts
from experiments.emergence.training import (
    DRAWN,
    FOLLOWED,
    REPETITION,
    UNCHANGED,
    WITHOUT,
    Network,
    make_network,
    make_run,
    numbers_of,
)
from experiments.study import Row
from training.train import CONFIG


class Followed:
    """A training, made when it is needed.

    Args:
        sizes: the sizes.
        seed: the seed of weights and texts.
        work: the folder in which states are kept.
        decays: whether the learning rate falls.
        split: the numbers whose change is split.
    """

    def __init__(
        self, sizes: Sizes, seed: int, work: Path, *, decays: bool = True, split: Sequence[str] = FOLLOWED
    ) -> None:
        self.sizes, self.seed, self.work, self.decays, self.split = sizes, seed, work, decays, split
        self.network: Network = make_network(sizes, seed)
        self.texts: Texts = draw_texts(sizes, seed)
        self.numbers = numbers_of(self.network, self.texts)

    def kept(self, kind: str = "") -> Kept:
        """Return the training with its kept states, or another one of the same weights and texts."""
        before = continued(self.texts.training)
        counted = {WITHOUT: ~before, DRAWN: ~control(before, self.seed)}.get(kind)
        frozen = None
        if kind.startswith(UNCHANGED):
            frozen = lambda name: part_of(name) == kind.removeprefix(UNCHANGED)  # noqa: E731
        run = make_run(self.network, self.texts, counted, frozen, decays=self.decays)
        every = self.sizes.steps if kind else self.sizes.every
        name = f"seed-{self.seed}" + f"-{kind.replace(': ', '-').replace(' ', '-')}" * bool(kind)
        return train(run, self.network.weights, self.work / name, every=every)

    def _of_states(self, measure: Callable[[Any], Any]) -> Any:
        """Return what is measured of the model of every kept state, stacked."""
        kept = self.kept()
        rows = [on_host(measure(self.network.model(kept.read(number)[0].weights))) for number in kept.numbers]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    def along(self) -> list[Row]:
        """Return the numbers at every kept state."""
        kept, numbers = self.kept(), jax.jit(lambda weights: {name: of(weights) for name, of in self.numbers.items()})
        values = [on_host(numbers(kept.read(number)[0].weights)) for number in kept.numbers]
        return [self._numbers(FOLLOWED_TRAINING, name, [of[name] for of in values]) for name in self.numbers]

    def again(self, kind: str) -> list[Row]:
        """Return the numbers at the end of another training."""
        last = self.kept(kind).last
        return [self._numbers(kind, name, [jax.jit(of)(last)]) for name, of in self.numbers.items()]

    def _numbers(self, training: str, number: str, values: list[Any]) -> Row:
        return {"training": training, "number": number, "every": self.sizes.every, "values": np.array(values)}

    def frozen(self) -> list[Row]:
        """Return the losses with groups of parameters frozen, and how far these move, at every kept state."""
        ids, means = jnp.asarray(self.texts.frozen), jnp.asarray(self.texts.means)
        movement, losses = self._of_states(lambda model: moving(model, ids, means))
        moved = {group: np.mean(of, 0) for group, of in movement.items()}
        return [{"group": group, "losses": of, "movement": moved.get(group)} for group, of in losses.items()]

    @cached_property
    def segments(self) -> dict[str, Any]:
        """The parts of every number's change, segment by segment."""
        return of_segments(self.network, self.kept(), {name: self.numbers[name] for name in self.split})

    def parts(self) -> list[Row]:
        """Return the parts of the network in every number's change, by every rule."""
        return [
            {"number": number, "rule": rule, "part": part, "parts": parts}
            for number, of in self.segments.items()
            for rule in RULES
            for part, parts in of[rule].items()
        ]

    def parts_of_heads(self) -> list[Row]:
        """Return the parts of heads in the change of repetition."""
        return [
            {"layer": int(layer), "head": head, "part": part}
            for layer, parts in self.segments[REPETITION]["heads"].items()
            for head, part in enumerate(parts.sum(0))
        ]

    def helping(self) -> list[Row]:
        """Return the shares of weights that help in every segment."""
        return [
            {"number": number, "steps": "whole segments", "way": "exact", **of["helping"]}
            for number, of in self.segments.items()
        ]

    def heads(self) -> list[Row]:
        """Return how much every head attends to what follows a copy, at every kept state."""
        found = self._of_states(lambda model: attention_to_copies(model, jnp.asarray(self.texts.copied)))
        return [{"layer": i, "head": j, "attention": found[:, i, j]} for i, j in np.ndindex(found.shape[1:])]

    def form(self) -> list[Row]:
        """Return the closed form's parts of the last states, with the weights of every kept state."""
        found = self._of_states(lambda model: parts_of_states(model, jnp.asarray(self.texts.frozen)))
        share, movement = found[SHARE], found[MOVEMENT]
        return [{"kind": kind, "share": share[kind].sum(-1), "movement": movement[kind].mean(-1)} for kind in share]

    def counts(self) -> list[Row]:
        """Return the losses of counted models on the texts in which parameters are frozen."""
        read = self.texts.training.reshape(-1, self.sizes.tokens + 1)
        losses = losses_of_counts(read, self.texts.means, self.texts.frozen, CONFIG.vocab)
        return [{"model": model, "loss": loss} for model, loss in losses.items()]

    def read_or_not(self, trainings: "Sequence[Followed]") -> list[Row]:
        """Return the final mean losses: of texts that one training alone reads, by stretches, and of other files."""
        model = self.network.model(self.kept().last)
        losses = {OTHER_FILES: [mean_loss(model, self.texts.other_files)]}
        for training in trainings:
            others = [other.texts for other in trainings if other is not training]
            own = own_texts(training.texts, others)
            losses[f"{READ_BY}{training.seed}"] = [mean_loss(model, ids) for ids in own]
        return [{"texts": name, "losses": np.array(of)} for name, of in losses.items()]
