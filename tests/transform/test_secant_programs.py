"""The secant goes through whatever a program is made of, and names what jumps with its line."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, near, numbers
from jax import lax
from two_inputs import X, Y, each, shapley, slope, sums, tanh_slope

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS

FILE = __file__


# --- Control flow, against the recurrences written out --------------------------------------------------------------

W, U = numbers(3, 3, key=7), numbers(3, 2, key=8)
READOUT = numbers(3, key=9)


def recurrent(inputs):
    """Return the hidden states of `h ← tanh(W h + U x_t)`, with what is inside."""
    h, inside = np.zeros(3), []
    for x in inputs:
        inside.append(W @ h + U @ x)
        h = np.tanh(inside[-1])
    return inside


def recurrent_multiplier(x, y):
    multiplier, found = READOUT, []
    for z, other in zip(recurrent(x)[::-1], recurrent(y)[::-1]):
        inside = multiplier * tanh_slope(z, other)
        found.append(U.T @ inside)
        multiplier = W.T @ inside
    return np.stack(found[::-1])


def step(h, x):
    h = jnp.tanh(W @ h + U @ x)
    return h, h[0]


def scanned(x):
    return READOUT @ lax.scan(step, jnp.zeros(3), x)[0]


def scanned_backwards(x):
    return READOUT @ lax.scan(step, jnp.zeros(3), x[::-1], reverse=True)[0]


def nested(x):
    return READOUT @ lax.scan(lambda h, xs: lax.scan(step, h, xs), jnp.zeros(3), x.reshape(3, 2, 2))[0]


def unrolled(x):
    h = jnp.zeros(3)
    for row in x:
        h, _ = step(h, row)
    return READOUT @ h


def by_associative_carry(x):
    """The states come out stacked, and the last is read."""
    return READOUT @ lax.scan(lambda h, x: (step(h, x)[0],) * 2, jnp.zeros(3), x)[1][-1]


@jax.custom_jvp
def own_derivative(z):
    return jnp.tanh(z)


own_derivative.defjvp(lambda z, dz: (jnp.tanh(z[0]), 99 * dz[0]))


@jax.custom_vjp
def own_pullback(z):
    return jnp.tanh(z)


own_pullback.defvjp(lambda z: (jnp.tanh(z), None), lambda _, u: (99 * u,))


def with_activation(activation):
    return lambda x: READOUT @ lax.scan(lambda h, x: (activation(W @ h + U @ x), None), jnp.zeros(3), x)[0]


def by_cond(x):
    """The same function, in a branch that both inputs take."""
    return lax.cond(x[0, 0] > -99, scanned, lambda x: x.sum(), x)


def by_switch(x):
    return lax.switch(jnp.int32(1), [lambda x: x.sum(), scanned], x)


def by_fori(x):
    """A loop over whole numbers, of which JAX makes a scan."""
    return READOUT @ lax.fori_loop(0, len(x), lambda t, h: step(h, x[t])[0], jnp.zeros(3))


RECURRENT = {
    "unrolled": unrolled,
    "scan": scanned,
    "scan, its results read": by_associative_carry,
    "scan in reverse": scanned_backwards,
    "nested scans": nested,
    "fori_loop": by_fori,
    "jit": jax.jit(scanned),
    "remat": jax.checkpoint(scanned),
    "remat in a scan": lambda x: READOUT @ lax.scan(jax.checkpoint(step), jnp.zeros(3), x)[0],
    "custom_jvp": with_activation(own_derivative),
    "custom_vjp": with_activation(own_pullback),
    "vmap": lambda x: jax.vmap(scanned)(jnp.stack([x, x])).mean(),
    "cond": by_cond,
    "switch": by_switch,
}


def test_a_recurrence_is_carried_back_step_by_step():
    x, y = numbers(6, 2, key=1), numbers(6, 2, key=2)
    found, differences = each(RECURRENT, *(dict.fromkeys(RECURRENT, z) for z in (x, y)))
    for name, multiplier in found.multiplier.items():
        close(multiplier, recurrent_multiplier(x, y), layers=10)
        close(found.parts[name].sum(), differences[name], layers=10)
    assert found.completeness.verdict == HOLDS
    assert not any(found.discontinuities.values())


def test_twenty_steps_of_a_pendulum():
    """Position and speed by the symplectic Euler method: `p ← p − h sin q, q ← q + h p`."""
    h, steps = 0.3, 20

    def pendulum(state):
        def euler(state, _):
            q, p = state
            p = p - h * jnp.sin(q)
            return (q + h * p, p), None

        return lax.scan(euler, (state[0], state[1]), None, length=steps)[0][0]

    def angles(q, p):
        found = []
        for _ in range(steps):
            found.append(q)
            p = p - h * np.sin(q)
            q = q + h * p
        return found

    x, y = np.array([1.0, 0.5]), np.array([-0.5, 2.0])
    on_q, on_p = 1.0, 0.0
    for q, other in zip(angles(*x)[::-1], angles(*y)[::-1]):
        on_p = on_p + h * on_q
        on_q = on_q - h * slope(np.sin, np.cos, q, other) * on_p
    found = sums(jax.jit(duat.secant(pendulum))(jnp.array(x), jnp.array(y)))
    close(found.multiplier, np.array([on_q, on_p]), layers=steps)


def test_a_convolution_carries_each_operand_by_the_others_midpoint():
    kernels, rows = numbers(2, 4, key=1), numbers(2, 9, key=2)

    def convolved(arguments):
        kernel, row = arguments
        return jnp.convolve(row, kernel, mode="valid") @ jnp.arange(6.0)

    found = sums(jax.jit(duat.secant(convolved))(*((jnp.array(k), jnp.array(r)) for k, r in zip(kernels, rows))))
    windows = np.lib.stride_tricks.sliding_window_view(rows.mean(0), 4)
    close(found.multiplier[0], (np.arange(6) @ windows)[::-1])
    expected = sum(t * np.pad(kernels.mean(0)[::-1], (t, 5 - t)) for t in range(6))
    close(found.multiplier[1], expected)


# --- What jumps -----------------------------------------------------------------------------------------------------


def line_of(fn, text):
    """Return `file:line (function)` of the first line of a function that has some text."""
    lines, first = inspect.getsourcelines(fn)
    return f"{FILE}:{first + next(i for i, line in enumerate(lines) if text in line)} ({fn.__name__})"


def largest_place(x):
    place = jnp.argmax(x)
    return 2.0 * place.astype(x.dtype) + x.sum()


def chosen_entry(x):
    return x[jnp.argmax(x)] ** 2


def best_two(x):
    values, places = lax.top_k(x, 2)
    return values @ jnp.array([2.0, 1.0]) + jnp.arange(4.0)[places].sum()


def in_order(x):
    return jnp.sort(x) @ jnp.arange(4.0)


def rounded_down(x):
    return jnp.floor(x).sum() + x.sum()


def compared(x):
    return jnp.where(x > 0, 3 * x[::-1] + 1, -x).sum()


def compared_twice(x):
    first = jnp.where(x > 0, 3 * x[::-1] + 1, -x).sum()
    return first + jnp.where(x > 0.5, x, x[::-1]).sum()


def branched(x):
    return lax.cond(x.sum() > 0, lambda x: 3 * x[0], lambda x: x @ x, x)


def counted(x):
    positive = (x > 0).sum()
    return positive.astype(x.dtype) * x[0]


def masked(x):
    keep = jnp.greater(x, 0).astype(x.dtype)
    return (keep * x[::-1]) @ jnp.arange(1.0, 5.0)


def bent(x):
    return jnp.sign(x).sum() * x[1]


JUMPING = {
    largest_place: ("place.astype", "convert_element_type"),
    chosen_entry: ("x[jnp.argmax(x)]", "dynamic_slice"),
    best_two: ("top_k", "top_k"),
    in_order: ("jnp.sort", "sort"),
    rounded_down: ("jnp.floor", "floor"),
    compared: ("jnp.where", "select_n"),
    branched: ("lax.cond", "cond"),
    counted: ("positive.astype", "convert_element_type"),
    masked: ("astype", "convert_element_type"),
    bent: ("jnp.sign", "sign"),
}


def jumps_of(fn, found):
    """Return what jumps in a function, by primitive and line."""
    return {name: part for name, part in found.discontinuities.items() if name.endswith(f" ({fn.__name__})")}


def test_what_jumps_is_a_part_that_is_named_with_its_line():
    functions = {fn.__name__: fn for fn in JUMPING}
    found, differences = each(functions, *(dict.fromkeys(functions, jnp.array(z)) for z in (X, Y)))
    assert found.completeness.verdict == HOLDS
    for fn, (text, primitive) in JUMPING.items():
        discontinuities = jumps_of(fn, found)
        assert discontinuities[f"{primitive} at {line_of(fn, text)}"] != 0
        close(found.parts[fn.__name__].sum() + sum(discontinuities.values()), differences[fn.__name__], layers=10)


@pytest.mark.slow
def test_what_could_jump_and_did_not_has_no_part():
    """Nearby, everything chosen is the same; then the multiplier is the derivative, to the square of the distance."""
    functions, x = {fn.__name__: fn for fn in JUMPING}, jnp.array(X)
    found, _ = each(functions, *(dict.fromkeys(functions, x + h) for h in (1e-5, -1e-5)))
    assert found.completeness.within
    assert not any(found.discontinuities.values())
    for name, fn in functions.items():
        near(found.multiplier[name], jax.jit(jax.grad(fn))(x), within=1e-8)


def test_jumps_of_two_lines_have_two_names():
    """Of one library function, of which JAX keeps one program."""
    found = sums(jax.jit(duat.secant(compared_twice))(jnp.array(X), jnp.array(Y)))
    lines = {line_of(compared_twice, text) for text in ("x > 0,", "x > 0.5")}
    assert {name.removeprefix("select_n at ") for name in found.discontinuities} == lines


def test_a_choice_is_one_player_among_those_it_chooses_from():
    """`where(c, a, b)` is split as Shapley's value does, with the comparison as the third player."""

    def chosen(v):
        return jnp.where(v[2] > 0, v[0], v[1])

    x, y = np.array([2.0, 3.0, 1.0]), np.array([5.0, 11.0, -1.0])
    found = sums(jax.jit(duat.secant(chosen))(jnp.array(x), jnp.array(y)))
    on_a, on_b, on_choice = shapley(lambda a, b, c: a if c > 0 else b, x, y)
    close(found.parts, np.array([on_a, on_b, 0.0]))
    close(sum(found.discontinuities.values()), on_choice)


def test_an_index_that_moved_is_one_player_too():
    def read(v):
        return v[:3][jnp.where(v[3] > 0, 2, 0)]

    x, y = np.array([2.0, 3.0, 7.0, 1.0]), np.array([5.0, 11.0, -4.0, -1.0])
    found = sums(jax.jit(duat.secant(read))(jnp.array(x), jnp.array(y)))
    players = shapley(lambda a, b, c: a if c > 0 else b, [x[2], x[0], 1], [y[2], y[0], -1])
    close(found.parts, np.array([players[1], 0.0, players[0], 0.0]))
    close(sum(found.discontinuities.values()), players[2])


def test_a_jump_in_a_scan_is_the_sum_over_its_steps():
    def stepped(x):
        return lax.scan(lambda c, v: (jnp.where(v > 0, c + v + 1, c - v), None), 0.0, x)[0]

    found = sums(jax.jit(duat.secant(stepped))(jnp.array(X), jnp.array(Y)))
    assert len(found.discontinuities) == 1
    # Of the entries that change their sign, from v + 1 to −v.
    jump = sum(((v + 1 + w + 1) / 2 - (-v - w) / 2) * (1 if v > 0 else -1) for v, w in zip(X, Y) if v * w < 0)
    close(sum(found.discontinuities.values()), jump)


def leaky(x):
    return jnp.where(x > 0, x, 0.1 * x)


PIECEWISE = {
    "leaky relu": (leaky, leaky),
    "elu": (jax.nn.elu, lambda z: np.where(z > 0, z, np.expm1(z))),
    "a choice between far pieces": (
        lambda x: jnp.where(x > 0, 3 * x + 1, -x),
        lambda z: np.where(z > 0, 3 * z + 1, -z),
    ),
    "a removable pole": (
        lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / jnp.where(x == 0, 1.0, x)),
        lambda z: np.sinc(z / np.pi),
    ),
    "pieces of what a call returns": (lambda x: leaky(jax.jit(lambda x: x[::-1])(x))[::-1], leaky),
}


def test_a_function_of_one_number_has_a_secant_though_its_pieces_are_chosen():
    functions = {name: lambda x, fn=fn: fn(x).sum() for name, (fn, _) in PIECEWISE.items()}
    x, y = np.append(X, [0.0, 1e-9]), np.append(Y, [0.5, -2.0])
    found, _ = each(functions, *(dict.fromkeys(functions, z) for z in (x, y)))
    for name, (_, reference) in PIECEWISE.items():
        close(found.multiplier[name], (np.asarray(reference(x)) - np.asarray(reference(y))) / (x - y))
    assert found.completeness.verdict == HOLDS
    assert not any(found.discontinuities.values())
