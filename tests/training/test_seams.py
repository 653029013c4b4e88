"""Segments of a training are joined only where they meet: arrays of the same names, the same weights, one number."""

import dataclasses
from typing import NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.serialization import to_state_dict
from helpers import near

import duat_jax as duat
from duat_jax.errors import DuatError
from duat_jax.training import begin, follow

LAYERS = 12
"""Of more than ten layers the order of texts isn't that of numbers."""


class Record(NamedTuple):
    """Layers in a named tuple."""

    layers: list


class Module(nnx.Module):
    """Layers in a module."""

    def __init__(self, layers):
        self.layers = nnx.List([nnx.Param(layer) for layer in layers])


def layers_at(time):
    return [jnp.array([float(i), time]) for i in range(LAYERS)]


CONTAINERS = {
    "list": lambda layers: {"layers": layers},
    "tuple": lambda layers: {"layers": tuple(layers)},
    "texts": lambda layers: to_state_dict({"layers": layers}),
    "numbers": lambda layers: {"layers": dict(enumerate(layers))},
    "shuffled": lambda layers: {"layers": dict(sorted(((str(i), x) for i, x in enumerate(layers)), reverse=True))},
    "frozen": lambda layers: flax.core.freeze({"layers": to_state_dict(layers)}),
    "record": Record,
    "state": lambda layers: nnx.state(Module(layers)),
    "pure": lambda layers: nnx.to_pure_dict(nnx.state(Module(layers))),
}


def by_number(weights):
    """Weigh every layer by its number, whatever contains it."""
    steps = {
        jax.tree_util.keystr(p, simple=True, separator="."): x for p, x in jax.tree_util.tree_leaves_with_path(weights)
    }
    of = {int(name.removesuffix(".value").rpartition(".")[2]): x for name, x in steps.items()}
    return sum((i + 1.0) * (of[i] ** 2).sum() for i in range(LAYERS))


@pytest.mark.parametrize("name", CONTAINERS)
def test_weights_are_aligned_by_name(name):
    """The right parts are those of `Σ (i + 1) t²` from time 1 to 2, in whatever container each end is."""
    ledger = begin(by_number, CONTAINERS["list"](layers_at(1.0)))
    ledger = follow(by_number, ledger, CONTAINERS[name](layers_at(2.0)))
    for i in range(LAYERS):
        near(ledger.parts[f"layers.{i}"], [0, 3 * (i + 1)], 1e-12)
    assert list(ledger.groups) == [f"layers.{i}" for i in range(LAYERS)]
    back = follow(by_number, ledger, CONTAINERS["texts"](layers_at(1.0)))
    assert back.difference == 0 and back.overall.verdict != "fails"


def product(w):
    return (w["a"] * w["b"]).sum()


def weights(a, b=1.0, dtype=jnp.float64):
    return {"a": jnp.full(3, a, dtype), "b": jnp.array(b, dtype)}


def segment(first, last, number=product):
    return follow(number, begin(number, first), last)


REFUSED = {
    r"a\[0\] is 2.0 where the first .* and 5.0 where": lambda: segment(weights(1.0), weights(2.0)).then(
        segment(weights(5.0), weights(7.0))
    ),
    r"b is 3.0 where the first .* and 1.0 where": lambda: segment(weights(1.0), weights(2.0, 3.0)).then(
        segment(weights(2.0), weights(7.0))
    ),
    r"a\[1\] is 2.0 .* and 2.0000000000000004": lambda: segment(weights(1.0), weights(2.0)).then(
        segment({**weights(2.0), "a": jnp.array([2.0, np.nextafter(2.0, 3), 2.0])}, weights(7.0))
    ),
    "b is .* of float64, and then .* of float32": lambda: follow(
        product, begin(product, weights(1.0)), {**weights(2.0), "b": jnp.ones((), jnp.float32)}
    ),
    r"b is \(\) of float64, and then \(3,\) of float64": lambda: segment(
        weights(1.0), {**weights(2.0), "b": jnp.ones(3)}
    ),
    "c differ": lambda: segment(weights(1.0), {**weights(2.0), "c": jnp.ones(3)}),
    "the number is 6 where the ledger ends and 24 at": lambda: follow(
        lambda w: (w["a"] ** 3).sum(), segment(weights(1.0), weights(2.0)), weights(3.0)
    ),
    "the number is 6 where the ledger ends and 7 at": lambda: segment(weights(1.0), weights(2.0)).then(
        segment(weights(2.0), weights(3.0), lambda w: product(w) + 1)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_does_not_meet_is_refused_with_both_values(message):
    with pytest.raises(DuatError, match=f"^[^\n]*{message}[^\n]*$"):
        REFUSED[message]()


def test_the_whole_is_judged_at_the_level_that_is_shown(tmp_path):
    """Of many weights no single part is larger than the rounding of the number, and their sum is."""
    drawn = np.random.default_rng(0).normal(size=20_000)
    path = [{"a": jnp.asarray(scale * drawn, jnp.float32)} for scale in (1, 0.5, 2, 1.5)]

    def number(w):
        return 100 + (w["a"] ** 2).mean()

    ledger = begin(number, path[0])
    for each in path[1:]:
        ledger = follow(number, ledger, each)
    assert [each.verdict for each in ledger.completeness] == ["holds"] * 3
    exact = [float(100 + (np.asarray(each["a"], np.float64) ** 2).mean()) for each in path]
    near(ledger.overall.value, exact[-1] - exact[0], 1e-5)
    near(ledger.overall.sum, exact[-1] - exact[0], 1e-4 * abs(exact[-1] - exact[0]))
    assert ledger.overall.verdict == "holds" and "holds" in str(ledger) and "columns" not in str(ledger)
    ledger.save(tmp_path / "kept")
    opened = duat.open(tmp_path / "kept")
    assert opened.overall == ledger.overall
    with pytest.raises(DuatError, match="don't meet"):
        opened.then(opened)
    wrong = {name: sums + np.array([1.0, 0, 0]) for name, sums in ledger.sums.items()}
    shown = dataclasses.replace(ledger, sums=wrong)
    assert shown.overall.verdict == "fails" and "In 2 of 3 columns" in str(shown)
