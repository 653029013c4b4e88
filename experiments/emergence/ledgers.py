"""Ledgers of weights, heads, steps and tokens along a training, and the model run again with weights set back."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from duat_jax.evaluation.statistics import agreement
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import secant
from duat_jax.processes import on_host
from duat_jax.training import Kept, influence
from duat_jax.training.over_weights.compute import Number
from duat_jax.training.update import Weights, names_of
from duat_jax.weights.units import units_of
from experiments.emergence.courses import DOUBLE, SECANT, SIMPSON, part_of
from experiments.emergence.texts import SINGLE, Texts, continued, control, stands_before
from experiments.emergence.training import FOLLOWED, HELD_OUT, OWN, REPETITION, TRAINED_ON, Network
from experiments.study import Row

ROUNDING = 1e-5
"""The rounding of a difference of two losses, in nats: they cancel, which no part shows."""
SHOWN = 8
"""The number of texts with the largest parts that are kept on either side."""
Found = dict[str, Any]


def require_sum(name: str, completeness: Completeness) -> None:
    """Raise unless parts sum to the change of a number."""
    if abs(float(completeness.error)) > float(completeness.tolerance) + ROUNDING:
        raise AssertionError(f"{name}: parts sum to {float(completeness.sum)}, the change is {completeness.value}")


def _simpson(number: "Number", after: Weights, before: Weights) -> Weights:
    """Return for every weight its change times the gradients at both ends and the middle, weighted as by Simpson."""
    middle = jax.tree.map(lambda a, b: (a + b) / 2, before, after)
    slopes = [jax.grad(number)(at) for at in (before, middle, after)]
    return jax.tree.map(lambda a, b, p, q, r: (p + 4 * q + r) / 6 * (b - a), before, after, *slopes)


def of_segments(network: Network, kept: Kept, numbers: dict[str, "Number"]) -> dict[str, Found]:
    """Return of every number, in every segment, the parts of the network by each rule, those of heads, and helping."""

    def by_part(parts: Weights) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for name, part in zip(names_of(parts), jax.tree.leaves(parts), strict=True):
            found[part_of(name)] = found.get(part_of(name), 0) + part.sum()
        return found

    @partial(jax.jit, static_argnames="name")
    def exact(after: Weights, before: Weights, name: str) -> Found:
        found = secant(numbers[name])(after, before)
        heads: dict[str, Array] = {}
        for unit, part in units_of(network.model(found.parts)).heads.items():
            layer = unit.split(".")[1]
            heads[layer] = heads.get(layer, 0) + part
        return {
            SECANT: by_part(found.parts),
            "heads": heads,
            "helping": helping(found.parts),
            "completeness": found.completeness,
        }

    @partial(jax.jit, static_argnames="name")
    def by_simpson(after: Weights, before: Weights, name: str) -> dict[str, Array]:
        return by_part(_simpson(numbers[name], after, before))

    @cache
    def weights(number: int) -> Weights:
        return kept.read(number)[0].weights

    def stacked(ends: list[tuple[int, int]], split: Callable[..., Any], name: str) -> Any:
        rows = [on_host(split(weights(last), weights(first), name=name)) for first, last in ends]
        for row in rows:
            if "completeness" in row:
                require_sum(name, row.pop("completeness"))
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)

    single = list(kept.segments())
    double = list(zip(kept.numbers[:-1:2], kept.numbers[2::2], strict=True))
    return {
        name: stacked(single, exact, name)
        | {DOUBLE: stacked(double, exact, name)[SECANT], SIMPSON: stacked(single, by_simpson, name)}
        for name in filter(numbers.__contains__, FOLLOWED)
    }


def helping(parts: Weights) -> dict[str, Array]:
    """Return the share of the weights that lower a number, of those with a part, and the same of the sizes of parts."""
    flat, _ = ravel_pytree(parts)
    lowering = flat < 0
    sizes = jnp.abs(flat)
    return {"weights": lowering.sum() / (flat != 0).sum(), "sizes": (sizes * lowering).sum() / sizes.sum()}


def of_single_steps(kept: Kept, numbers: dict[str, "Number"]) -> list[Row]:
    """Return the shares of weights that help at the second step of every segment, by the secant and to first order."""

    @partial(jax.jit, static_argnames="name")
    def shares(after: Weights, before: Weights, batch: Any, name: str) -> Found:
        number = (lambda weights: kept.run.terms(weights, batch).sum()) if name == OWN else numbers[name]
        exact = secant(number)(after, before)
        gradient = jax.grad(number)(before)
        first_order = jax.tree.map(lambda slope, a, b: slope * (b - a), gradient, before, after)
        end, start = exact.values
        return {"changes": end - start, "exact": helping(exact.parts), "first order": helping(first_order)}

    steps = []
    for first, _ in kept.segments():
        moment, _ = kept.read(first)
        for number in range(first, first + SINGLE + 1):
            step = kept.run.step(number, moment, kept.run.batch(number))
            moment = step.following
        batch, ends = kept.run.batch(step.number), (step.following.weights, step.before.weights)
        steps.append({name: on_host(shares(*ends, batch, name=name)) for name in (OWN, TRAINED_ON, HELD_OUT)})
    found = jax.tree.map(lambda *leaves: np.stack(leaves), *steps)
    return [
        {"number": name, "steps": "single", "way": way, **of[way], "changes": of["changes"]}
        for name, of in found.items()
        for way in ("exact", "first order")
    ]


def set_back(network: Network, kept: Kept, numbers: dict[str, "Number"]) -> list[Row]:
    """Return what is lost of each number's change if a part of the network, or a head, gets its first weights again."""
    last, first = kept.last, network.weights
    values = jax.jit(lambda weights: {name: number(weights) for name, number in numbers.items()})
    after = values(last)
    names = names_of(last)

    def mixed(chosen: Callable[[str, Array], Array | bool]) -> Weights:
        leaves = [
            jnp.where(chosen(name, a), a, b)
            for name, a, b in zip(names, jax.tree.leaves(first), jax.tree.leaves(last), strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(last), leaves)

    heads = network.model(first).config.blocks[0].heads

    def of_part(part: str, name: str, _: Array) -> bool:
        return part_of(name) == part

    def of_head(layer: int, head: int, name: str, leaf: Array) -> Array | bool:
        if part_of(name) != f"layer {layer} attention" or (name.endswith("output.bias")):
            return False
        size = leaf.shape[0 if "output" in name else -1] // heads
        own = jnp.arange(size * heads) // size == head
        return own[:, None] if "output" in name else own

    chosen: dict[str, Callable[[str, Array], Array | bool]] = {
        part: partial(of_part, part) for part in dict.fromkeys(map(part_of, names))
    }
    chosen |= {
        f"head {layer}:{head}": partial(of_head, layer, head)
        for layer in range(len(network.model(first).config.blocks))
        for head in range(heads)
    }
    return [
        {"part": part, "number": name, "lost": after[name] - value}
        for part, of in chosen.items()
        for name, value in values(mixed(of)).items()
    ]


def ledger_of_tokens(kept: Kept, numbers: dict[str, "Number"]) -> dict[str, Any]:
    """Return what every token of every step did to repetition and to the loss of held-out text."""
    explained = influence(kept, {name: numbers[name] for name in (REPETITION, HELD_OUT)})
    for name, of in explained.items():
        require_sum(name, of.completeness)
    return dict(explained)


def of_kinds(explained: dict[str, Any], texts: Texts, seed: int) -> list[Row]:
    """Return the parts of kinds of tokens, step by step."""
    before = continued(texts.training)
    kinds = {
        "after one that stands before, the same again": before & stands_before(texts.training, 2),
        "after one that stands before, another": before & ~stands_before(texts.training, 2),
        "after one that doesn't": ~before,
        "as many drawn tokens": control(before, seed),
    }
    return [
        {"number": name, "kind": kind, "tokens": which.sum(), "parts": (of.examples * which).sum((1, 2))}
        for name, of in explained.items()
        for kind, which in kinds.items()
    ]


def of_whole(explained: dict[str, Any], texts: Texts) -> list[Row]:
    """Return the sums of a ledger's parts by kind, and whether a text's part goes with its share of such tokens."""
    share = continued(texts.training).mean(-1).reshape(-1)
    return [
        {"number": name, **of.parts, "agreement": agreement(share, of.rows.reshape(-1))[0], "steps": of.of_steps}
        for name, of in explained.items()
    ]


def largest_texts(explained: dict[str, Any], texts: Texts) -> list[Row]:
    """Return the texts with the largest parts on either side."""
    ids = texts.training.reshape(-1, texts.training.shape[-1])
    orders = {name: np.argsort(of.rows.reshape(-1)) for name, of in explained.items()}
    return [
        {"number": name, "step": row // texts.training.shape[1], "part": of.rows.reshape(-1)[row], "ids": ids[row]}
        for name, of in explained.items()
        for row in [*orders[name][:SHOWN], *orders[name][-SHOWN:]]
    ]
