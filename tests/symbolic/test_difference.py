"""The difference of two inputs: proved for every stack and block, and the plain difference of two real passes."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import BLOCK_NAMES, make_input, make_stack, modern
from sympy import Rational, ZeroMatrix

import duat_jax as duat
from duat_jax.nn import ACTIVATIONS, ARRANGEMENTS
from duat_jax.reference.blocks import residual_terms
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import unroll_terms
from duat_jax.verification.routes import held_by_layer
from symbolic import Block, activation, diag, held, matrix, vector
from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.catalogue import derive
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal
from symbolic.equality.two_inputs import change, difference_of, midpoint, second_value
from symbolic.evaluation.bridge import name_of, to_jax
from symbolic.expressions.latex import typeset
from symbolic.expressions.operations import Diagonal
from symbolic.expressions.parameter import Held, Parameter
from symbolic.theorems import difference as theorem
from symbolic.theorems.difference import TwoInputs, difference
from symbolic.theorems.residual_stack import ResidualStack, i, j

S = ResidualStack()
FORM = TwoInputs(S)
K = i + 1
STACKS = {
    "no term": ResidualStack(neurons=()),
    "one term": S,
    "two terms of two functions": ResidualStack(width=5, neurons=(3, 4), functions=("gelu", "tanh")),
    "one term flows into another": ResidualStack(neurons=(3, 4), couplings=((2, 1),)),
    "three terms, each into the next ones": ResidualStack(neurons=(3, 4, 5), couplings=((2, 1), (3, 1), (3, 2))),
}


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_the_difference_form_is_proved_for_every_depth(stack):
    derivation = difference(stack)
    assert derivation.verified, derivation
    hypotheses = [step for step in derivation.steps if step.verified is None and step.relation == "="]
    assert len(hypotheses) == len(stack.sizes) + 1  # a secant for every term, and the induction's


def network_rules(stack):
    """The network at both inputs in every layer, with every activation written by its secant."""
    form = TwoInputs(stack)
    secants = [
        Definition(h, second_value(h) + Diagonal(form.slope(K, t)) * difference_of(form.z(K, t)), (i,))
        for t in stack.terms
        for h in (form.h(K, t),)
    ]
    return (*secants, *form.values, *form.moves, *form.recursions)


DEPTHS = dict(zip(STACKS, (4, 3, 2, 2, 1), strict=True))  # at greater ones there are tens of thousands of words


@pytest.mark.parametrize(("name", "depth"), DEPTHS.items())
def test_the_unrolled_form_is_one_network_minus_the_other(name, depth):
    stack = STACKS[name]
    rules, unrolled = network_rules(stack), TwoInputs(stack).unrolled(depth)
    assert equal(difference_of(stack.x(depth)), unrolled, rules)
    assert not equal(difference_of(stack.x(depth)), unrolled + TwoInputs(stack).mu(1), rules)


@pytest.mark.parametrize(("name", "gated"), list(product(BLOCKS, (False, True))))
def test_every_block_has_its_difference_form(name, gated):
    block = transformer_block(name, gated=gated)
    derivation = block.difference()
    assert derivation.verified, derivation
    assert derive("difference", block=f"{name}-gated" if gated else name) == (derivation,)
    lefts = [step.left for step in derivation.steps]
    entries = {entry.left: entry for entry in block.parameters}
    own = list(entries)
    moving_first = sorted(own, key=lambda left: not entries[left].right.atoms(Held))
    assert lefts[: 2 * len(own)] == [*map(midpoint, own), *map(change, moving_first)]
    # At both inputs every parameter of the stack is defined by the block's own letters, which constants keep.
    defined = {equation.left for step in derivation.given for equation in (step, *step.states)}
    sides = [side for step in derivation.steps for side in (step.left, step.right)]
    letters = {letter.letter for parameter in FORM.parameters for letter in (parameter, second_value(parameter))}
    used = {parameter for side in sides for parameter in side.atoms(Parameter) if parameter.letter in letters}
    assert used and used <= defined
    constant = [entry.left for entry in block.parameters if not entry.right.atoms(Held)]
    assert not used & set(map(second_value, constant))


def test_the_letters_of_two_inputs_are_typeset():
    letters = [typeset(letter(S.W(K, 1))) for letter in (second_value, midpoint, change)]
    accents = [r"\widetilde{\mathbf{W}}", r"\overline{\mathbf{W}}", r"\Delta \mathbf{W}"]
    assert letters == [accent + "'_{i + 1,1}" for accent in accents]
    assert str(midpoint(S.W(K, 1))) == "W\u0304′ᵢ₊₁,₁"


def test_only_midpoints_and_changes_of_parameters_are_in_what_carries_and_what_is_brought():
    letters = {parameter.letter.strip("'") for rule in (PSI, MU) for parameter in rule.right.atoms(Parameter)}
    assert letters == {"kappa", "W\u0304", "x\u0304", "h\u0304", "ΔW", "Δb"}


def test_what_stands_still_brings_nothing():
    brought = [step.right for step in transformer_block("convolution").difference().steps if step.left == FORM.mu(K)]
    assert brought == 2 * [ZeroMatrix(S.width, 1)]  # its definition, and the last line of the theorem


def test_anyones_block_with_coupled_terms_has_its_difference_form():
    F, G, T = matrix("F", 8, 4), matrix("G", 4, 8), matrix("T", 8, 8)
    gate, bias = diag(held("g", 8)), vector("f", 8)

    def layer(x):
        inner = gate * activation(F * x + bias)
        return x + G * inner + G * activation(T * inner + F * x, "tanh")

    block = Block(layer, shape=(4, 1))
    derivation = block.difference()
    assert derivation.verified, derivation
    (moved,) = (s.right for s in derivation.steps if s.left == change(block.stack.coupling(K, 2, 1)))
    assert str(moved) == "Tᵢ₊₁ diag(Δgᵢ₊₁)"


PSI, MU = FORM.recursions[0], FORM.recursions[1]
STEPS = Diagonal(FORM.slope(K))
WRONG = {
    "Psi_without_the_term": (PSI.left, midpoint(S.W(K, 1))),
    "Psi_without_the_slopes": (PSI.left, midpoint(S.W(K, 1)) + midpoint(S.W(K, 3)) * midpoint(S.W(K, 2))),
    "Psi_at_one_input": (PSI.left, S.W(K, 1) + S.W(K, 3) * STEPS * S.W(K, 2)),
    "Psi_with_a_wrong_sign": (PSI.left, midpoint(S.W(K, 1)) - midpoint(S.W(K, 3)) * STEPS * midpoint(S.W(K, 2))),
    "mu_without_the_outer_bias": (MU.left, MU.right - change(S.b(K, 3))),
    "mu_without_the_path": (MU.left, MU.right - change(S.W(K, 1)) * midpoint(S.x(i))),
    "mu_with_a_wrong_sign": (MU.left, MU.right - 2 * change(S.W(K, 1)) * midpoint(S.x(i))),
    "mu_without_the_outer_matrix": (MU.left, MU.right - change(S.W(K, 3)) * midpoint(FORM.h(K))),
    "mu_without_the_inner_bias": (MU.left, MU.right - midpoint(S.W(K, 3)) * STEPS * change(S.b(K, 2))),
    "mu_at_one_input": (MU.left, MU.right + Rational(1, 2) * change(S.W(K, 1)) * change(S.x(i))),
    "mu_that_stays": (MU.left, MU.right + Parameter("m", (K,), S.width, 1)),
    "Phi_not_carried": (FORM.Phi(j, K), FORM.Phi(j, i)),
    "Phi_in_swapped_order": (FORM.Phi(j, K), FORM.Phi(j, i) * FORM.Psi(K)),
    "Phi_carried_by_the_wrong_layer": (FORM.Phi(j, K), FORM.Psi(i) * FORM.Phi(j, i)),
    "Phi_from_nothing": (FORM.Phi(i, i), ZeroMatrix(S.width, S.width)),
}


def put_in(left, right):
    """The recursions with another right side of one."""
    return tuple(
        Definition(rule.left, right, rule.variables, rule.where) if rule.left == left else rule
        for rule in FORM.recursions
    )


@pytest.mark.parametrize("name", WRONG)
def test_the_checker_refuses(name, monkeypatch):
    wrong = put_in(*WRONG[name])
    assert wrong != FORM.recursions
    monkeypatch.setattr(TwoInputs, "recursions", property(lambda self: wrong))
    derivation = theorem.difference()
    assert not derivation.verified
    assert "NOT PROVED" in derivation.verdict


TOKENS = 3
LAYERS = 8
EPS = np.finfo(np.float64).eps
NETWORKS = {name: name for name in BLOCK_NAMES} | {
    f"gated {name}": lambda name=name, **sizes: replace(modern(**sizes), arrangement=name) for name in ARRANGEMENTS
}


def terms_at(stack, x):
    """The dense residual term of every layer, with what it holds at an input."""
    return residual_terms(stack, held_by_layer(duat.record(stack)(x).dynamics, len(stack.blocks)))


def secant_slopes(sigma, z, z_other):
    """`Δσ(z) / Δz`, and the derivative at the midpoint where `Δz` is lost in rounding."""
    moved, middle = z - z_other, (z + z_other) / 2
    lost = jnp.abs(moved) <= 8 * EPS * jnp.abs(middle)
    slopes = (sigma(z) - sigma(z_other)) / jnp.where(lost, 1, moved)
    return jnp.where(lost, jax.jvp(sigma, (middle,), (jnp.ones_like(z),))[1], slopes)


def slopes_at_one_input(sigma, z, z_other):
    return jax.jvp(sigma, (z,), (jnp.ones_like(z),))[1]


def arrays_of(terms, x, letter):
    arrays = {letter(S.x(0)): vec(x)}
    for k, term in enumerate(terms, 1):
        arrays |= {
            letter(S.W(k, 1)): term.path,
            letter(S.b(k, 3)): term.path_bias,
            letter(S.W(k, 2)): term.inner,
            letter(S.b(k, 2)): term.inner_bias,
            letter(S.W(k, 3)): term.outer,
        }
    return {name_of(parameter): array for parameter, array in arrays.items()}


class Evaluated:
    """The difference form of a stack at two inputs, in numbers, by the definitions that are proved and printed."""

    def __init__(self, terms, x, terms_elsewhere, y, sigma, slopes=secant_slopes, recursions=FORM.recursions):
        depth = len(terms)
        arrays = arrays_of(terms, x, lambda p: p) | arrays_of(terms_elsewhere, y, second_value)
        layers = range(1, depth + 1)
        inside = {name_of(p): p for k in layers for p in (FORM.z(k), second_value(FORM.z(k)))}
        z = to_jax(inside, sigma, FORM.values)(arrays)
        for k in layers:
            arrays[name_of(FORM.slope(k))] = slopes(
                sigma, *(z[name_of(p)] for p in (FORM.z(k), second_value(FORM.z(k))))
            )
        wanted = {}
        for k in layers:
            wanted |= {f"input {k}": FORM.Phi(0, k) * change(S.x(0)), f"whole {k}": FORM.unrolled(k)}
            wanted |= {f"Psi {k}": FORM.Psi(k), f"mu {k}": FORM.mu(k)}
        found = to_jax(wanted, sigma, (*FORM.moves, *FORM.values, *recursions))(arrays)
        self.whole, self.input = ([found[f"{part} {k}"] for k in layers] for part in ("whole", "input"))
        self.parameters = [whole - first for whole, first in zip(self.whole, self.input, strict=True)]
        # Σ|parts| of every layer, with those of the two networks, whose difference it is compared with.
        size = jnp.abs(vec(x) - vec(y))
        networks = [unroll_terms(t, sigma, vec(at)) for t, at in ((terms, x), (terms_elsewhere, y))]
        self.tolerances = []
        for k in layers:
            size = jnp.abs(found[f"Psi {k}"]) @ size + jnp.abs(found[f"mu {k}"])
            parts = sum(parts_of(forms[k], vec(at)) for forms, at in zip(networks, (x, y), strict=True))
            self.tolerances.append(8 * EPS * (depth + 2) * float((size + parts).max()))


def parts_of(form, x0):
    """`|P| |x_0| + |q| + Σ |C_j| |σ(·)|`."""
    carried = sum(jnp.abs(t.outer) @ jnp.abs(t.activation) for t in form.terms)
    return jnp.abs(form.input) @ jnp.abs(x0) + jnp.abs(form.bias) + carried


def shares(parts, expected, tolerances):
    """The difference of every layer, in units of its tolerance."""
    return [
        float(jnp.abs(part - whole).max()) / tolerance
        for part, whole, tolerance in zip(parts, expected, tolerances, strict=True)
    ]


def streams(stack, x):
    """The residual stream after every block, of the plain forward pass."""
    return [vec(stream) for stream in list(duat.record(stack)(x).dynamics.streams.values())[1:]]


def evaluated(stack, x, y, activation="gelu", **lie):
    return Evaluated(terms_at(stack, x), x, terms_at(stack, y), y, ACTIVATIONS[activation], **lie)


def plain(stack, x, y):
    return [a - b for a, b in zip(streams(stack, x), streams(stack, y), strict=True)]


@pytest.mark.parametrize("block", NETWORKS.values(), ids=NETWORKS)
def test_moved_input_and_moved_parameters_are_the_difference_of_two_passes_at_every_depth(block):
    stack, x, y = make_stack(block, LAYERS), make_input(TOKENS), make_input(TOKENS, key=5)
    found, expected = evaluated(stack, x, y), plain(stack, x, y)
    assert len(expected) == LAYERS
    assert max(shares(found.whole, expected, found.tolerances)) <= 1
    # Neither of the two is the difference by itself.
    assert min(shares(found.input, expected, found.tolerances)) > 1e3
    assert min(shares(found.parameters, expected, found.tolerances)) > 1e3


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_difference_holds_for_every_activation(activation):
    stack, x, y = make_stack("pre-norm", 2, activation=activation), make_input(TOKENS), make_input(TOKENS, key=5)
    found = evaluated(stack, x, y, activation)
    assert max(shares(found.whole, plain(stack, x, y), found.tolerances)) <= 1


def run(terms, x):
    """The streams of dense residual terms, by Eq. 20."""
    found, stream = [], vec(x)
    for term in terms:
        inside = ACTIVATIONS["gelu"](term.inner @ stream + term.inner_bias)
        stream = term.path @ stream + term.path_bias + term.outer @ inside
        found.append(stream)
    return found


def test_moved_input_and_moved_parameters_are_told_apart():
    stack, x, y = make_stack("post-norm", 4), make_input(TOKENS), make_input(TOKENS, key=5)
    ours, others = terms_at(stack, x), terms_at(stack, y)
    held_still = Evaluated(ours, x, ours, y, ACTIVATIONS["gelu"])
    expected = [a - b for a, b in zip(run(ours, x), run(ours, y), strict=True)]
    assert max(shares(held_still.input, expected, held_still.tolerances)) <= 1
    assert not any(part.any() for part in held_still.parameters)
    same_input = Evaluated(ours, x, others, x, ACTIVATIONS["gelu"])
    expected = [a - b for a, b in zip(run(ours, x), run(others, x), strict=True)]
    assert max(shares(same_input.parameters, expected, same_input.tolerances)) <= 1
    assert not any(part.any() for part in same_input.input)


NEAR = {
    "the same": lambda x: x,
    "another last token, so that the others stand still": lambda x: x.at[-1].multiply(-2.0),
    "apart by rounding": lambda x: x * (1 + 4 * EPS),
    "apart by little more": lambda x: x * (1 + 1e-12),
}


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("move", NEAR.values(), ids=NEAR)
def test_the_secant_is_the_derivative_where_the_difference_is_lost_in_rounding(move, activation):
    stack, x = make_stack("parallel", 3, activation=activation), make_input(TOKENS)
    found = evaluated(stack, x, move(x), activation)
    assert max(shares(found.whole, plain(stack, x, move(x)), found.tolerances)) <= 1
    assert all(bool(jnp.isfinite(part).all()) for part in (*found.input, *found.parameters))


@pytest.mark.parametrize("name", [name for name in WRONG if name[:2] in ("mu", "Ps") and name != "mu_that_stays"])
def test_the_numbers_refuse(name):
    stack, x, y = make_stack("post-norm", 2), make_input(TOKENS), make_input(TOKENS, key=5)
    found = evaluated(stack, x, y, recursions=put_in(*WRONG[name]))
    assert min(shares(found.whole, plain(stack, x, y), found.tolerances)) > 1e6


def test_the_numbers_refuse_a_swapped_sign_and_the_slope_at_one_input():
    stack, x, y = make_stack("pre-norm", 2), make_input(TOKENS), make_input(TOKENS, key=5)
    found, expected = evaluated(stack, x, y), plain(stack, x, y)
    swapped = [a - b for a, b in zip(found.input, found.parameters, strict=True)]
    assert min(shares(swapped, expected, found.tolerances)) > 1e6
    tangent = evaluated(stack, x, y, slopes=slopes_at_one_input)
    assert min(shares(tangent.whole, expected, tangent.tolerances)) > 1e6
