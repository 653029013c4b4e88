"""Claim: the parts of an attention score say which sources move the attention when the model is run again.

Run `python -m experiments attends`; it writes experiments/results/attends.json and the tables in
docs/how-to/attention.md.  What is measured is kept in experiments/results/work as it is finished: a run that was
stopped goes on.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.evaluation.journal import Journal, fingerprint
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.attends.replaced import MOVING, RESAMPLED, ZERO, Place, Sources, runs, written
from experiments.attends.report import numbers
from experiments.kept_models import measure_models
from experiments.markdown import Fields
from experiments.pruning.run import EMBEDDED, SMOLLM2
from experiments.texts import held_out_sources, manual

RESULTS, WORK = Path("experiments/results/attends.json"), Path("experiments/results/work")
LARGEST, DRAWN, CONTROLS = 5, 12, 5
"""Sources of a unit: the largest of the query and of the key, those drawn at random, and those with a control."""
BATCH = 2 * LARGEST + DRAWN + CONTROLS
"""The number of sources that are replaced at a time."""
ATTENDED = 0.1
"""The least attention to the key: with less of it, there is little to explain."""
NORMS, SMALL = 2.0, 0.25
"""A control's vector is at most so many times longer or shorter; its part is at most this share of the source's."""
DIGITS = 4
"""Digits after the decimal point of every number that is kept."""

Unit = dict[str, Any]
"""The measurements of one attention, as plain data."""


class Settings(NamedTuple):
    """Sizes of the measurements on one model.

    Args:
        layers: the layers of the heads.
        units: texts of each layer, with one head and one query each.
        tokens: the length of a text.
    """

    layers: tuple[int, ...]
    units: int
    tokens: int


SETTINGS = {EMBEDDED: Settings((2, 3, 4, 5), 25, 32), SMOLLM2: Settings((5, 11, 17, 23), 15, 24)}


class Parts(NamedTuple):
    """All sources of a difference of scores but biases and positions, with what each adds to it.

    Args:
        sources: part and token of each.
        query: the part on the query side, with the whole key.
        key: the part on the key side, with the whole query.
        whole: what the source adds on both sides; what is missing without it, everything held.
    """

    sources: Sources
    query: np.ndarray
    key: np.ndarray
    whole: np.ndarray


def parts_of(score: duat.results.AttentionScore) -> Parts:
    """Return the parts of an explained difference of scores, by source."""

    def by_source(sources: Any, columns: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
        return {
            (0 if source.term is None else source.term.layer + 1, source.token): columns[:, i].astype(float)
            for i, source in enumerate(sources)
            if source.part == "token" or source.term is not None
        }

    queries, keys = by_source(score.query_sources, score.queries), by_source(score.key_sources, score.keys)
    names = sorted(queries.keys() | keys.keys())
    nothing = np.zeros(len(score.queries))
    q, k = (np.array([side.get(name, nothing) for name in names]) for side in (queries, keys))
    of_query, of_key = q @ score.keys.sum(1), k @ score.queries.sum(1)
    # A source of both sides meets itself, in a pair that both sides count.
    whole = of_query + of_key - (q * k).sum(1)
    return Parts(Sources(*np.array(names).T), of_query, of_key, whole)


def drawn_place(pattern: np.ndarray, draw: np.random.Generator) -> Place:
    """Draw a head and a query that attends to a token but the first, and another token that it sees."""
    tokens = pattern.shape[1]
    attending = pattern[..., 1:].max(-1) >= ATTENDED
    attending[:, : tokens // 2] = False
    head, query = draw.choice(np.argwhere(attending)).tolist()
    key = int(pattern[head, query, 1:].argmax()) + 1
    contrast = draw.choice([token for token in range(query + 1) if token not in (key, pattern[head, query].argmax())])
    return Place(head, query, key, int(contrast))


def controls_of(parts: Parts, norms: np.ndarray, chosen: list[int]) -> list[tuple[int, int]]:
    """Return sources with their controls: the same part at another token, as long a vector, but a small share."""
    found = []
    for source in chosen:
        ratio = np.abs(np.log(norms / norms[source]))
        alike = (parts.sources.parts == parts.sources.parts[source]) & (ratio <= np.log(NORMS))
        alike &= np.abs(parts.whole) <= SMALL * np.abs(parts.whole[source])
        if alike.any():
            found.append((source, int(np.where(alike, ratio, np.inf).argmin())))
    return found


def unit(model: Transformer, layer: int, ids: np.ndarray, other: np.ndarray, seed: int) -> Unit:
    """Replace sources of one attention, each alone, and return how it changes, as predicted and as measured."""
    draw = np.random.default_rng(seed)
    (vectors, pattern), (others, _) = (map(np.asarray, written(model, jnp.asarray(of), layer)) for of in (ids, other))
    place = drawn_place(pattern, draw)
    named = {"head": place.head, "key": place.key, "query": place.query, "contrast": place.contrast}
    score = duat.explain_attention(model, ids.tolist(), layer=layer, **named)
    parts = parts_of(score)
    at = parts.sources.parts, parts.sources.tokens
    norms, count = np.linalg.norm(vectors[at], axis=-1), len(parts.whole)

    def largest(sizes: np.ndarray, of: list[int]) -> list[int]:
        return sorted(of, key=lambda source: -abs(sizes[source]))

    everything = list(range(count))
    largest_ones = {*largest(parts.query, everything)[:LARGEST], *largest(parts.key, everything)[:LARGEST]}
    by_lot = draw.choice(count, min(DRAWN, count), replace=False).tolist()
    pairs = controls_of(parts, norms, largest(parts.whole, sorted(largest_ones))[:CONTROLS])
    chosen = sorted({*largest_ones, *by_lot, *(control for _, control in pairs)})
    sources = Sources(*(of[np.resize(chosen, BATCH)] for of in parts.sources))
    values = others[sources.parts, sources.tokens]
    found = runs(model, jnp.asarray(ids), layer, place, sources, values)

    def kept(numbers: Any) -> list[float]:
        return np.round(np.asarray(numbers, float)[: len(chosen)], DIGITS).tolist()

    return {
        **named,
        "layer": layer,
        "attention": kept(pattern[place.head, place.query][[place.key, place.contrast]]),
        "parts": sources.parts[: len(chosen)].tolist(),
        "tokens": sources.tokens[: len(chosen)].tolist(),
        "named": [chosen.index(source) for source in sorted(largest_ones)],
        "drawn": [chosen.index(source) for source in sorted(by_lot)],
        "controls": [[chosen.index(source) for source in pair] for pair in pairs],
        "part": kept(parts.whole[chosen]),
        "norm": kept(norms[chosen]),
        "change": kept(np.linalg.norm((others - vectors)[at], axis=-1)[chosen]),
        "attended": kept(pattern[place.head, place.query][parts.sources.tokens[chosen]]),
        "lot": draw.permutation(len(chosen)).tolist(),
        "predicted": dict(zip((RESAMPLED, ZERO), map(kept, found.predicted), strict=True)),
        "gradient": dict(zip((RESAMPLED, ZERO), map(kept, found.gradient), strict=True)),
        "measured": dict(zip(MOVING, map(kept, found.resampled), strict=True)),
        "zero": kept(found.zero),
        "error": float(np.abs(found.resampled[0] - found.predicted[0]).max()),
        "explained": float(np.abs(found.predicted[1][: len(chosen)] + parts.whole[chosen]).max()),
    }


def measure(model: Transformer, pieces: np.ndarray, settings: Settings, journal: Journal) -> Iterator[Unit]:
    """Yield every unit of a model; what is finished isn't run again."""
    for i, layer in enumerate(settings.layers):
        for j in range(settings.units):
            seed = i * settings.units + j
            ids, other = pieces[2 * seed : 2 * seed + 2]
            yield journal.once(f"layer {layer}, unit {j}", partial(unit, model, layer, ids, other, seed))


def units_of(name: str) -> list[Unit]:
    """Return all units of a model on held-out text, those in its journal and those that are measured now."""
    WORK.mkdir(parents=True, exist_ok=True)
    path, settings = smollm2.path() if name == SMOLLM2 else None, SETTINGS[name]
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    # One chapter of the manual stands there by two names.
    texts = list(dict.fromkeys(manual())) if name == SMOLLM2 else held_out_sources()
    count = 2 * settings.units * len(settings.layers)
    pieces = windows(stream(tokenizer, texts), count, settings.tokens, seed=0)
    work = {"model": name, "settings": settings._asdict(), "texts": fingerprint(pieces)}
    return list(measure(model, pieces, settings, Journal(WORK / f"attends-{name}.jsonl", work)))


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    return numbers(results["models"])


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    measure_models(RESULTS, SETTINGS, lambda name: {"units": units_of(name)})
