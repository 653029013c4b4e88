"""The parts of a function by `jax.grad` alone: with everything held stopped, a part is its gradient times its value.

Nothing of record and replay is used, and no key of theirs: each mark that a function makes is replaced while it runs,
a hold by `stop_gradient(x)`, an activation by `stop_gradient(σ(z)) + tap`, a bias by `stop_gradient(b) + tap`, with
taps that are zero, in which the gradient is taken.  So that every mark runs as often as it is computed, loops and calls
of the function itself are plain Python here: `scan` is unrolled, `jit` and `checkpoint` do nothing, and a function with
a derivative of its own is differentiated through its body.  Not covered: a mark under a `vmap` inside the function.
"""

from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient

import duat_jax
from duat_jax.models import head
from duat_jax.nn import experts, mlp
from duat_jax.transform import marks

RUNS_TERMS = (duat_jax, marks, mlp, head)
"""Where `term` is called by its name."""


class Parts(NamedTuple):
    """What a read-out is the sum of.

    Args:
        value: the read-out.
        parts: by label, `input[0]`, `term layers.0.mlp`, `offset …`; marks in scans have their steps first.
        sizes: of the same shapes, the root of the sum of squares of what was added up in each part.
    """

    value: np.ndarray
    parts: dict[str, np.ndarray]
    sizes: dict[str, np.ndarray]


class _Marks:
    """What replaces the library's marks while a function runs."""

    def __init__(self, taps, *, neurons, forgotten, share):
        self.taps, self.neurons, self.forgotten, self.share = taps, neurons, forgotten, share
        self.holds = Counter()
        self.labels, self.values = [], []
        self.scope, self.iteration, self.number = (), (), Counter()

    def tap(self, kind, name, x):
        """Stop the gradient in `x`, and add a zero in which it is taken."""
        key = (kind, self.scope, name)
        number, self.number[key] = self.number[key], self.number[key] + 1
        path = ".".join((*self.scope, name)) + (f"[{number}]" if number else "")
        label = f"{'offset' if kind == marks.OFFSET else 'term'} {path}"
        self.labels.append((kind, label, self.iteration))
        self.values.append(stop_gradient(jnp.asarray(x)))
        held = self.values[-1]
        return held if self.taps is None else held + self.taps[len(self.labels) - 1]

    def bind(self, x, kind, name):
        if kind == marks.HOLD:
            occurrence, self.holds[name] = self.holds[name], self.holds[name] + 1
            return x if self.forgotten in ((name, occurrence), (name, None)) else stop_gradient(x)
        if kind in (marks.ACTIVATION, marks.OFFSET) or (kind == marks.TERM_OUTPUT and not self.neurons):
            return self.tap(kind, name, x)
        return x

    def collapsed_term(self, activation, z, name, outer=None):
        """`slope · z + σ(0)`, both stopped, in place of `σ(z)`."""
        at, derivative = jax.jvp(activation, (jnp.zeros_like(z),), (jnp.ones_like(z),))
        slope = jnp.where(z == 0, derivative, (activation(z) - at) / jnp.where(z == 0, 1, z))
        y = stop_gradient(slope) * z + self.tap(marks.ACTIVATION, name, at)
        return y if outer is None else outer(y)

    def shared_term(self, activation, gate, factor, outer):
        """A gated term of whose product the factor carries a share."""
        by_gate = self.collapsed_term(activation, gate, "mlp") * stop_gradient(factor)
        return outer((1 - self.share) * by_gate + self.share * stop_gradient(activation(gate)) * factor)

    @contextmanager
    def named_scope(self, name):
        before, self.scope = self.scope, (*self.scope, name)
        try:
            yield
        finally:
            self.scope = before

    def scan(self, f, init, xs=None, length=None, reverse=False, unroll=1):
        length = len(jax.tree.leaves(xs)[0]) if length is None else length
        before, numbers, carry, ys = self.iteration, self.number, init, [None] * length
        for i in reversed(range(length)) if reverse else range(length):
            # The marks of a step are the same marks in every step.
            self.iteration, self.number = (*before, i), Counter(numbers)
            carry, ys[i] = f(carry, jax.tree.map(lambda leaf, i=i: leaf[i], xs))
        self.iteration = before
        return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *ys)

    @contextmanager
    def in_place(self, *, collapsed):
        replaced = [
            (marks, "bind_mark", self.bind),
            (jax, "named_scope", self.named_scope),
            (jax.lax, "scan", self.scan),
            *((jax, name, lambda fn, **_: fn) for name in ("jit", "checkpoint")),
            *((jax, name, _Body) for name in ("custom_jvp", "custom_vjp")),
            *((module, "term", self.collapsed_term) for module in RUNS_TERMS if collapsed),
            *((module, "gated_term", self.shared_term) for module in (mlp, experts) if self.share),
        ]
        with ExitStack() as stack:
            for where, name, new in replaced:
                stack.enter_context(mock.patch.object(where, name, new))
            yield


class _Body:
    """A function with a derivative of its own, without it."""

    def __init__(self, fn):
        self.fn = fn

    def defjvp(self, *_):
        pass

    defvjp = defjvp

    def __call__(self, *args):
        return self.fn(*args)


def _is_float(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def _gradients(fn, x, *, neurons=True, collapsed=False, forgotten=None, share=0.0):
    """Return the value, and of every argument and every tap the label, the value and the gradient."""
    leaves, tree = jax.tree.flatten(x)
    floats = {i: jnp.asarray(leaf) for i, leaf in enumerate(leaves) if _is_float(leaf)}
    labels = []

    def run(floats, taps):
        replaced = _Marks(taps, neurons=neurons, forgotten=forgotten, share=share)
        with replaced.in_place(collapsed=collapsed):
            value = fn(jax.tree.unflatten(tree, [floats.get(i, leaf) for i, leaf in enumerate(leaves)]))
        labels[:] = replaced.labels
        return value, replaced.values

    shapes = jax.eval_shape(lambda floats: run(floats, None)[1], floats)
    taps = [jnp.zeros(s.shape, s.dtype) for s in shapes]
    (value, values), (on_floats, on_taps) = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)(floats, taps)
    inputs = [(f"input[{i}]", leaf, on_floats.get(i)) for i, leaf in enumerate(leaves)]
    return value, inputs, list(zip(labels, values, on_taps))


def _product(value, gradient, dtype):
    return np.zeros(np.shape(value), dtype) if gradient is None else np.asarray(gradient * value)


def held_parts(fn, x, *, neurons=True, forgotten=None):
    """Return the parts of a marked function's scalar: input, terms (by neuron or by token), biases.

    Args:
        fn: the function.
        x: its argument.
        neurons: whether to split down to neurons.
        forgotten: a hold that isn't stopped: its name, and which of those that are called so (all, if `None`).
    """
    value, inputs, taps = _gradients(fn, x, neurons=neurons, forgotten=forgotten)
    parts = {label: _product(leaf, gradient, value.dtype) for label, leaf, gradient in inputs}
    sizes = {label: np.abs(part) for label, part in parts.items()}
    steps = defaultdict(dict)
    coarse = {label for (kind, label, _), _, _ in taps if kind == marks.TERM_OUTPUT}
    for (kind, label, iteration), leaf, gradient in taps:
        part = np.asarray(gradient * leaf)
        over = ()
        if kind == marks.OFFSET:
            over = tuple(range(part.ndim))
        elif kind == marks.TERM_OUTPUT:
            over = (-1,) if part.ndim else ()
        elif label in coarse:
            continue
        steps[label][iteration] = part.sum(over), np.sqrt((part**2).sum(over))
    for label, found in steps.items():
        lengths = tuple(n + 1 for n in max(found))
        for into, which in ((parts, 0), (sizes, 1)):
            stacked = [found[step][which] for step in np.ndindex(lengths)]
            into[label] = np.stack(stacked).reshape(lengths + stacked[0].shape)
    return Parts(np.asarray(value), parts, sizes)


def collapsed_parts(fn, x, *, share=0.0):
    """Return the parts of the collapse, every slope stopped: input and one bias.

    Args:
        fn: the function.
        x: its argument.
        share: how much of a gated MLP's product its factor carries.
    """
    value, inputs, taps = _gradients(fn, x, collapsed=True, share=share)
    parts = {label: _product(leaf, gradient, value.dtype) for label, leaf, gradient in inputs}
    sizes = {label: np.abs(part) for label, part in parts.items()}
    constants = [np.asarray(gradient * leaf) for _, leaf, gradient in taps]
    parts["bias"] = np.asarray(sum((c.sum() for c in constants), np.zeros_like(value)))
    sizes["bias"] = np.sqrt(np.asarray(sum(((c**2).sum() for c in constants), np.zeros_like(value))))
    return Parts(np.asarray(value), parts, sizes)
