"""Question: how does a Transformer become what it is, step by step, weight by weight and text by text?

Run `python -m experiments emergence`; it writes experiments/results/emergence.json and the tables in
docs/findings/emergence.md,
which states beforehand what decides.  Trainings and what is measured are kept in experiments/results/work as they are
finished: a run that was stopped goes on.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import mean_loss
from duat_jax.processes import on_host
from duat_jax.training import Kept, train
from experiments.emergence.counted import losses_of_counts
from experiments.emergence.ledgers import of_segments, of_single_steps, of_tokens, set_back
from experiments.emergence.moving import FORM, attention_to_copies, moving, parts_of_states
from experiments.emergence.own_texts import MEASURED, OTHER_FILES, READ_BY, own_texts
from experiments.emergence.parts import part_of
from experiments.emergence.report import fields
from experiments.emergence.seeds import hurting
from experiments.emergence.texts import Sizes, Texts, continued, control, draw_texts
from experiments.emergence.training import DRAWN, UNCHANGED, WITHOUT, Network, make_network, make_run, numbers_of
from experiments.kept_results import store
from experiments.significant import significant
from training.train import CONFIG

__all__ = ["fields", "main"]

WORK = Path("experiments/results/work/emergence")
SIZES, SEEDS = Sizes(), (5, 6, 7)
Found = dict[str, Any]


class Followed:
    """A training, made when it is needed.

    Args:
        sizes: the sizes.
        seed: the seed of weights and texts.
        work: the folder in which states are kept.
        decays: whether the learning rate falls.
    """

    def __init__(self, sizes: Sizes, seed: int, work: Path, *, decays: bool = True) -> None:
        self.sizes, self.seed, self.work, self.decays = sizes, seed, work, decays
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

    def states(self) -> Found:
        """Return what is measured on every kept state."""
        kept, numbers = self.kept(), jax.jit(lambda weights: {name: of(weights) for name, of in self.numbers.items()})
        texts = self.texts
        rows = []
        for number in kept.numbers:
            weights = kept.read(number)[0].weights
            model = self.network.model(weights)
            movement, losses = moving(model, jnp.asarray(texts.frozen), jnp.asarray(texts.means))
            heads = attention_to_copies(model, jnp.asarray(texts.copied))
            rows.append(on_host({"movement": movement, "frozen": losses, "heads": heads, "numbers": numbers(weights)}))
        return significant(jax.tree.map(lambda *leaves: np.stack(leaves), *rows))

    def parts_of_states(self) -> Found:
        """Return what the closed form's parts are of the last states, with the weights of every kept state."""
        kept, ids = self.kept(), jnp.asarray(self.texts.frozen)
        models = (self.network.model(kept.read(number)[0].weights) for number in kept.numbers)
        found = [on_host(parts_of_states(model, ids)) for model in models]
        return significant(jax.tree.map(lambda *leaves: np.stack(leaves), *found))

    def counts(self) -> Found:
        """Return the losses of counted models on the texts in which parameters are frozen."""
        read = self.texts.training.reshape(-1, self.sizes.tokens + 1)
        return losses_of_counts(read, self.texts.means, self.texts.frozen, CONFIG.vocab)

    def read_or_not(self, trainings: "Sequence[Followed]") -> dict[str, list[float]]:
        """Return the final mean losses: of texts that one training alone reads, by stretches, and of other files."""
        model = self.network.model(self.kept().last)
        losses = {OTHER_FILES: [mean_loss(model, self.texts.other_files)]}
        for training in trainings:
            others = [other.texts for other in trainings if other is not training]
            own = own_texts(training.texts, others)
            losses[f"{READ_BY}{training.seed}"] = [mean_loss(model, ids) for ids in own]
        return {name: significant(np.array(each)) for name, each in losses.items()}

    def trained_again(self, kind: str) -> Found:
        """Return the numbers at the end of another training."""
        last = self.kept(kind).last
        return {name: significant(np.asarray(jax.jit(of)(last))) for name, of in self.numbers.items()}


def pieces(sizes: Sizes, seeds: tuple[int, ...], work: Path, journal: Journal) -> Iterator[tuple[str, Any]]:
    """Yield the name and the result of every measurement, those that are finished from the journal."""
    followed = cache(partial(Followed, sizes, work=work))

    def once(seed: int, name: str, compute: Any) -> tuple[str, Any]:
        whole = f"seed {seed}, {name}"
        return whole, journal.once(whole, lambda: compute(followed(seed)))

    for seed in seeds:
        yield once(seed, "states", lambda of: of.states())
        yield once(seed, FORM, lambda of: of.parts_of_states())
        yield once(seed, "counts", lambda of: of.counts())
        yield once(seed, "segments", lambda of: of_segments(of.network, of.kept(), of.numbers))
        yield once(seed, "single steps", lambda of: of_single_steps(of.kept(), of.numbers))
        yield once(seed, "set back", lambda of: set_back(of.network, of.kept(), of.numbers))
        yield once(seed, MEASURED, lambda of: of.read_or_not(list(map(followed, seeds))))
    first = seeds[0]
    for kind in (WITHOUT, DRAWN):
        yield once(first, kind, lambda of, kind=kind: of.trained_again(kind))
    yield once(first, "tokens", lambda of: of_tokens(of.kept(), of.numbers, of.texts, first))
    segments = [journal.once(f"seed {seed}, segments", dict) for seed in seeds]
    if (part := hurting(segments)) is not None:
        yield once(first, UNCHANGED + part, lambda of: of.trained_again(UNCHANGED + part))


def measure_all(sizes: Sizes = SIZES, seeds: tuple[int, ...] = SEEDS, work: Path = WORK) -> Found:
    """Run what isn't measured yet, and return the results."""
    work.mkdir(parents=True, exist_ok=True)
    settings = {"sizes": sizes._asdict(), "seeds": list(seeds)}
    journal = Journal(work / "journal", settings)
    found = dict(track(pieces(sizes, seeds, work, journal), "Measurements", total=7 * len(seeds) + 3))
    return {**settings, "pieces": found}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    store("emergence", measure_all())
