"""Questions on heads (Wang & Li, 001, Section 4.5): do they fragment embeddings, and how redundant are they?

Run `python -m experiments heads`; it writes experiments/results/heads.json and the tables in docs/findings/heads.md.
What is
measured is kept in experiments/results/work as it is finished: a run that was stopped goes on.
"""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.inputs.batching import row
from duat_jax.inputs.prompts import Prompt, draw
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.circuits.run import OF_LANGUAGE
from experiments.heads.pairs import (
    Heads,
    all_heads,
    corrupted,
    interactions,
    predicted,
    similarities,
    singles,
    singles_and_pairs,
)
from experiments.heads.reading import Words, layer_numbers, streams_and_mixed
from experiments.heads.report import ANOTHER, UNTRAINED, numbers
from experiments.kept_models import measure_models
from experiments.markdown import Fields
from experiments.pruning.run import EMBEDDED, SMOLLM2
from experiments.texts import held_out_sources, manual

RESULTS, WORK = Path("experiments/results/heads.json"), Path("experiments/results/work")
SEED = 1
"""The seed of the prompts; those of seed 0 were looked at when the code was written."""
SELECTING = 2
"""Prompts of each task on which its top heads are chosen; these aren't measured."""
LEFT_OUT = 1
"""First tokens of a window that are left out: the stream of the first is unlike all others."""
DIGITS = 5
"""Digits after the decimal point of every number that is kept."""

Plain = dict[str, Any]
"""Measurements as plain data."""


class Settings(NamedTuple):
    """Sizes of the measurements on one model.

    Args:
        windows: windows of text whose reading is measured.
        tokens: tokens of each.
        tasks: the tasks.
        prompts: prompts of each task.
        top: heads with the largest effects on each task.
        others: heads drawn at random for each task; all other heads if absent.
    """

    windows: int
    tokens: int
    tasks: tuple[str, ...]
    prompts: int
    top: int
    others: int | None


OF_CODE = "parameter", "bracket", "repetition", "greater than"
"""All tasks of which the embedded model answers enough prompts."""
SETTINGS = {
    EMBEDDED: Settings(24, 65, OF_CODE, 10, 6, None),
    SMOLLM2: Settings(24, 65, OF_LANGUAGE, 4, 6, 6),
}


def _loaded(name: str) -> tuple[Transformer, Any]:
    path = smollm2.path() if name == SMOLLM2 else None
    return duat.load(path), duat.load_tokenizer(path)


def _rounded(found: Any) -> Any:
    return jax.tree.map(lambda number: round(float(number), DIGITS), found)


def untrained(model: Transformer) -> Transformer:
    """Return a model of the same shape with random initial weights."""
    return Transformer(model.config, rngs=nnx.Rngs(0))


def reading(model: Transformer, ids: np.ndarray, journal: Journal, name: str = "") -> list[Plain]:
    """Return the measurements on each layer's heads; what is finished isn't measured again."""
    words = Words(ids[:, LEFT_OUT:])
    written = cache(partial(streams_and_mixed, model, ids))

    def of_layer(layer: int) -> Plain:
        x, y = (of[layer][:, LEFT_OUT:].reshape(-1, *of.shape[3:]) for of in written())
        return _rounded(layer_numbers(model.stack.blocks[layer], x, y, words, layer))

    return [journal.once(f"{name}layer {layer}", partial(of_layer, layer)) for layer in range(model.config.layers)]


def effects(model: Transformer, prompt: Prompt) -> np.ndarray:
    """Return the effect of corrupting each head of a model alone."""
    heads = all_heads(model)
    runs = corrupted(model, prompt, heads, singles(len(heads.layers)))
    return runs[0] - runs[1:]


def chosen(sizes: np.ndarray, settings: Settings, seed: int) -> list[int]:
    """Return heads by their place among all: those with the largest effects first, and then others drawn at random."""
    order = np.argsort(-sizes, kind="stable").tolist()
    others = np.random.default_rng(seed).permutation(order[settings.top :])
    return [*order[: settings.top], *others[: settings.others].tolist()]


def measured(model: Transformer, prompt: Prompt, heads: Heads, top: int, other: Prompt) -> Plain:
    """Return the interaction of every pair of heads on a prompt, and what says it beforehand."""
    count = len(heads.layers)
    pairs = np.triu_indices(count, 1)
    *runs, of_top = corrupted(model, prompt, heads, np.vstack([singles_and_pairs(count), np.arange(count) < top]))
    of_heads, measured = interactions(np.array(runs), count)

    def read_pairs(function: Any, prompt: Prompt) -> dict[str, np.ndarray]:
        return {name: np.asarray(table)[pairs] for name, table in function(model, prompt, *heads).items()}

    tables = read_pairs(predicted, prompt) | read_pairs(similarities, prompt)
    tables |= {f"{name}{ANOTHER}": table for name, table in read_pairs(predicted, other).items()}
    of_sets = {"effects": list(of_heads), "together": runs[0] - of_top, "measured": list(measured)}
    return _rounded({"clean": runs[0], **of_sets}) | {
        name: [float(f"{number:.3g}") for number in table] for name, table in tables.items()
    }


def pairs(model: Transformer, drawn: dict[str, Prompt], settings: Settings, journal: Journal) -> dict[str, Plain]:
    """Return for each task its heads and every prompt's measurements; what is finished isn't measured again."""
    every, names = all_heads(model), list(drawn)

    def choose(seed: int, prompts: Prompt) -> list[int]:
        sizes = [np.abs(effects(model, row(prompts, i))) for i in range(SELECTING)]
        return chosen(np.mean(sizes, 0), settings, seed)

    def units(seed: int, task: str, heads: Heads) -> Iterator[Plain]:
        other = drawn[names[(seed + 1) % len(names)]]
        for i in range(SELECTING, len(drawn[task].clean)):
            piece = partial(measured, model, row(drawn[task], i), heads, settings.top, row(other, i))
            yield journal.once(f"{task}, prompt {i}", piece)

    found = {}
    for seed, (task, prompts) in enumerate(drawn.items()):
        which = journal.once(f"{task}, heads", partial(choose, seed, prompts))
        heads = Heads(every.layers[which], every.numbers[which])
        of_heads = {"layers": heads.layers.tolist(), "numbers": heads.numbers.tolist(), "top": settings.top}
        found[task] = of_heads | {"prompts": list(units(seed, task, heads))}
    return found


def _fragments(name: str, settings: Settings) -> Plain:
    model, tokenizer = _loaded(name)
    # One chapter of the manual stands there by two names.
    texts = list(dict.fromkeys(manual())) if name == SMOLLM2 else held_out_sources()
    ids = windows(stream(tokenizer, texts), settings.windows, settings.tokens, seed=0)
    journal = Journal(WORK / f"heads-reading-{name}.jsonl", {"model": name, "texts": fingerprint(ids)})
    return {
        "tokens": int(ids[:, LEFT_OUT:].size),
        "words": len(Words(ids[:, LEFT_OUT:])),
        "trained": reading(model, ids, journal),
        UNTRAINED: reading(untrained(model), ids, journal, f"{UNTRAINED}, "),
    }


def _pairs(name: str, settings: Settings) -> dict[str, Plain]:
    model, _ = _loaded(name)
    count = SELECTING + settings.prompts
    drawn = {task: draw(model, task, count, seed=SEED).prompts for task in settings.tasks}
    work = {"model": name, "settings": settings._asdict(), "prompts": fingerprint(drawn)}
    return pairs(model, drawn, settings, Journal(WORK / f"heads-pairs-{name}.jsonl", work))


def fields(results: Plain) -> Fields:
    """Return the fields of the documentation page."""
    return numbers(results["models"])


def _measured(name: str) -> Plain:
    return {"fragments": _fragments(name, SETTINGS[name]), "pairs": _pairs(name, SETTINGS[name])}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    WORK.mkdir(parents=True, exist_ok=True)
    measure_models(RESULTS, SETTINGS, _measured)
