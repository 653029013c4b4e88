"""Every printed equation holds for random numbers that satisfy its printed hypotheses, and nothing more.

An evaluation of its own: letters get their values from the equations that stand above and beside a step, all others
are drawn at random, and so are the sizes that are said to be any.
"""

import random
import re
import zlib

import numpy as np
import pytest
from sympy import Basic, MatrixBase, sympify

from symbolic import Block, Definition, activation, held, matrix, ones, scalar, sizes
from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.catalogue import WHAT, derive
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.operations import Diagonal, Vec
from symbolic.expressions.ordered_product import OrderedProduct
from symbolic.expressions.parameter import Ones, Parameter
from symbolic.expressions.scalar import scalars_in
from symbolic.theorems.recurrence import k
from symbolic.theorems.residual_stack import i, j

N, M, K = sizes("N M K")
F, G, f = matrix("F", M, K), matrix("G", K, M), matrix("f", K, 1)
H, V = held("H", N, N), matrix("V", M, M)
BLOCKS_OF_A_USER = {
    "attention and an MLP": Block(lambda x: x + H * x * V + activation(x * F + ones(N) * f.T) * G, shape=(N, M)),
    "a function of every layer's own": Block(lambda x: x + activation(x * F) * G, shape=(N, M), own=("σ",)),
    "rows that sum to one": Block(
        lambda x: x + H * (x * V + ones(N) * f.T * F.T) + activation(H * (x + ones(N) * f.T * F.T) * F) * G,
        shape=(N, M),
        relations=(Definition(H * ones(N), ones(N)),),
    ),
    "one token": Block(
        lambda x: x + matrix("H", 1, 1) * matrix("J", 1, 1) * x - matrix("J", 1, 1) * matrix("H", 1, 1) * x,
        shape=(1, M),
    ),
    "a transpose of a number": Block(lambda x: x + x.T, shape=(1, 1)),
    "over N - 1": Block(lambda x: x + H * x / (N - 1), shape=(N, M)),
    "a scalar divided by": Block(lambda x: x / scalar("alpha"), shape=(N, M)),
}


def all_of(block):
    yield block.residual_terms()
    yield block.recursions()
    yield block.prove()
    yield block.unroll(2)
    yield block.collapse()
    yield block.contributions()
    yield block.difference()


CASES = {what: lambda what=what: derive(what) for what in WHAT if what not in ("proof", "block")}
CASES |= {name: lambda name=name: all_of(transformer_block(name)) for name in BLOCKS}
CASES |= {name: lambda block=block: all_of(block) for name, block in BLOCKS_OF_A_USER.items()}


LAST = 6


class Numbers:
    """The numbers of the letters of one derivation."""

    def __init__(self, derivation, seed):
        self.rng = np.random.default_rng(seed)
        self.chance = random.Random(seed)
        self.values, self.rules, self.open = {}, [], set()
        text = " ".join(each for each in derivation.hypotheses if isinstance(each, str))
        self.any = re.search(r"Sizes(?:, the same [a-z ]*)?: ([^.;]*?) (?:are|is) any positive", text)
        self.named = set(re.split(r", | and ", self.any[1])) if self.any else set()
        self.sizes = {}
        stated = [each for each in derivation.hypotheses if not isinstance(each, str)]
        steps = (*stated, *derivation.given, *derivation.steps)
        self.sum_to_one = [step.left.args[0] for step in stated if isinstance(step.right, Ones)]
        for step in steps:
            if step.relation == ":=" or (step.verified is None and not step.by_induction) or step in stated:
                self.rules.append((step.left, step.right))
                self.rules += step.states
        self.rules += derivation.known

    def size(self, expression):
        """A number for a size; one that isn't said to be any is an error."""
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in self.sizes:
                assert str(symbol) in self.named, f"{symbol} isn't among the sizes that are stated"
                self.sizes[symbol] = sympify(self.chance.choice([2, 3]))
        return int(expression.xreplace(self.sizes))

    def meaning(self, parameter):
        """The right side of the first equation whose left side has this letter at these places."""
        for left, right in self.rules:
            if any(place.is_Integer and place > LAST for place in parameter.indices):
                return None  # the read-out of the last layer is any vector
            if (
                not isinstance(left, Parameter)
                or left.letter != parameter.letter
                or left.of_layer != parameter.of_layer
            ):
                continue
            if len(left.indices) != len(parameter.indices):
                continue
            put, fits = {}, True
            for pattern, place in zip(left.indices, parameter.indices, strict=True):
                variables = [v for v in (i, j) if pattern.has(v)]
                if variables:
                    value = place - (pattern - variables[0])
                    fits &= bool(value >= 0) and put.setdefault(variables[0], value) == value
                else:
                    fits &= pattern == place
            if fits and put.get(j, 0) <= put.get(i, 100):
                return right.xreplace(put)
        return None

    def parameter(self, parameter):
        """The numbers of a letter."""
        if parameter not in self.values:
            meaning = None if parameter in self.open else self.meaning(parameter)
            if meaning is not None and not meaning.has(parameter):
                self.open.add(parameter)
                self.values[parameter] = self.value(meaning)
                self.open.discard(parameter)
            else:
                shape = [self.size(size) for size in parameter.shape]
                self.values[parameter] = self.rng.normal(size=shape)
                if any((parameter.letter, parameter.func) == (p.letter, p.func) for p in self.sum_to_one):
                    self.values[parameter] += (1 - self.values[parameter].sum(1, keepdims=True)) / shape[1]
        return self.values[parameter]

    def number(self, coefficient):
        """A coefficient as a number."""
        put = {}
        for part in scalars_in(coefficient):
            put[part] = sympify(float(self.value(part.parent)[tuple(int(k) for k in part.indices)]))
        for symbol in coefficient.xreplace(put).free_symbols:
            self.size(symbol)
        return float(coefficient.xreplace(put).xreplace(self.sizes))

    def value(self, e):
        """The numbers of an expression."""
        name = type(e).__name__
        if isinstance(e, Ones):
            return np.ones((self.size(e.shape[0]), 1))
        if isinstance(e, Parameter):
            return self.parameter(e)
        if isinstance(e, MatrixBase):
            return np.array([[float(entry) for entry in row] for row in e.tolist()])
        if isinstance(e, IndexedSum):
            terms = [self.value(e.at(k)) for k in range(self.size(e.first), self.size(e.last) + 1)]
            return sum(terms, np.zeros([self.size(size) for size in e.shape]))
        if isinstance(e, OrderedProduct):
            whole = np.eye(self.size(e.shape[0]))
            for k in range(int(e.last), int(e.first) - 1, -1):
                whole = whole @ self.value(e.at(k))
            return whole
        if isinstance(e, Activation):
            z, k = self.value(e.argument), 1 + sum(map(int, e.indices))  # the layer's own function
            return np.exp(z) if e.function == "exp" else np.sin(k * z) + 0.3 * k if e.order == 0 else k * np.cos(k * z)
        if isinstance(e, Diagonal):
            return np.diag(self.value(e.vector)[:, 0])
        if isinstance(e, Vec):
            return self.value(e.matrix).reshape(-1, 1)
        if "Identity" in name or name == "UnitMatrix":
            return np.eye(self.size(e.shape[0]))
        if "Zero" in name:
            return np.zeros([self.size(size) for size in e.shape])
        if "Trans" in name:
            return self.value(e.arg).T
        if "Kronecker" in name:
            return np.kron(*map(self.value, e.args))
        if "Hadamard" in name:
            return np.multiply(*map(self.value, e.args))
        if e.is_MatAdd:
            return sum(map(self.value, e.args))
        if e.is_MatMul:
            coefficient, factors = e.as_coeff_matrices()
            whole = self.value(factors[0])
            for factor in factors[1:]:
                whole = whole @ self.value(factor)
            return self.number(coefficient) * whole
        raise AssertionError(f"{name} has no numbers here")


def met(numbers, derivation, at):
    """Give the letters that are assumed to be something what they are: slopes, offsets, and the parts of a softmax."""
    for layer in range(1, 4):
        here = {i: sympify(layer - 1)}
        for step in (*(h for h in derivation.hypotheses if not isinstance(h, str)), *derivation.steps):
            if step.relation != "=" or not isinstance(step.left, Basic):
                continue
            if isinstance(step.left, Activation) and step.assumed:  # σ(z) = diag(s) z + t
                *_, offset = step.right.args
                slopes = next(part for part in step.right.args[0].atoms(Diagonal)).vector
                z = step.left.argument
                s, t = slopes.xreplace(here), offset.xreplace(here)
                numbers.values[t] = numbers.value(step.left.xreplace(here)) - numbers.value(
                    (Diagonal(slopes) * z).xreplace(here)
                )
                numbers.parameter(s)
            elif "slopes" in step.rule and step.assumed:  # Δh = diag(κ) Δz
                slopes, change = (step.right.args[0].vector.xreplace(here), step.right.args[1].xreplace(here))
                numbers.values[slopes] = secant(numbers, step.left.xreplace(here), change)
    return at


def secant(numbers, change_of_h, change_of_z):
    def accent_letter(letter, accent):
        bare = letter.letter.removeprefix("Δ")
        return letter.func(bare + accent, *letter.args[1:])

    h, z = (
        numbers.value(accent_letter(p, "")) - numbers.value(accent_letter(p, "\u0303"))
        for p in (change_of_h, change_of_z)
    )
    numbers.values[change_of_h], numbers.values[change_of_z] = h, z
    return h / z


def softmax(numbers, derivation):
    """Choose z so that both rows sum to one, and w as one over the sum of L."""
    size = [p for step in derivation.steps if isinstance(step.left, Parameter) for p in [step.left] if p.letter == "l"]
    log_p = size[0]
    n = numbers.size(log_p.shape[0])
    s, r = numbers.rng.normal(size=(n, 1)), numbers.rng.normal(size=(n, 1))
    z, z_other = (np.log(np.exp(a).sum()).reshape(1, 1) for a in (s, r))
    column, number = (lambda letter: Parameter(letter, (), *log_p.shape)), (lambda letter: Parameter(letter, (), 1, 1))
    means = (np.exp(s - z) - np.exp(r - z_other)) / ((s - z) - (r - z_other))
    numbers.values |= {column("s"): s, column("s\u0303"): r, number("z"): z, number("z\u0303"): z_other}
    numbers.values |= {column("L"): means, number("w"): np.array([[1 / means.sum()]])}


@pytest.mark.parametrize("case", CASES)
def test_every_printed_equation_holds_for_numbers_that_satisfy_its_hypotheses(case):
    checked = 0
    for derivation in CASES[case]():
        for attempt in range(2):
            numbers = Numbers(derivation, zlib.crc32(case.encode()) + attempt)
            if case == "attention-difference":
                softmax(numbers, derivation)
            at = met(numbers, derivation, {i: sympify(2), j: sympify(1), k: sympify(1)})
            left = None
            for step, conditions in zip(derivation.steps, derivation.conditions, strict=True):
                left = left if step.left is None else step.left
                sides = (left, step.right)
                if not step.verified or step.relation != "=" or step.sizes or conditions:
                    continue
                if not all(isinstance(side, Basic) for side in sides) or any(isinstance(s, MatrixBase) for s in sides):
                    continue
                if not all(hasattr(side, "shape") for side in sides):
                    continue
                a, b = (numbers.value(side.xreplace(at)) for side in sides)
                scale = max(1, np.abs(a).max(), np.abs(b).max())
                assert np.abs(a - b).max() <= 1e-9 * scale, (derivation.title, step.left, step.right)
                checked += 1
    if case not in ("density",):
        assert checked, case


def test_an_equation_with_conditions_fails_without_them():
    (derivation,) = derive("difference")
    (conditional,) = (k for k, conditions in enumerate(derivation.conditions) if conditions)
    numbers = Numbers(derivation, 0)
    at = met(numbers, derivation, {i: sympify(2)})
    step = derivation.steps[conditional]
    assert np.abs(numbers.value(step.left.xreplace(at))).max() > 1e-3
    assert len(derivation.conditions[conditional]) == 5
