"""Define the letters of Eq. 1, 2 and 11–34: a layer's own parameters, and those of the closed form."""

from typing import Any

from sympy import Integer, MatrixExpr, Symbol, symbols

from symbolic.audit.heads import M, N
from symbolic.audit.letters import Name, Notation, applied, index
from symbolic.errors import SymbolicError
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.theorems.lora import delta
from symbolic.theorems.residual_stack import ResidualStack

S = ResidualStack()

_N, _M, _K, _R = symbols("n m k r", integer=True, positive=True)

INPUT = Parameter("x", (), _N, 1)

FUNCTION = Parameter("f", (), _K, 1)

APPROXIMATION = Parameter("G", (), _K, 1)

THRESHOLD = Parameter("ε", (), 1, 1)

FACTOR = Parameter("beta", (), _R, _K)

_PRIMED = ("W", "b", "x", "x~")  # what acts on vec(x) has a prime

CUBE = Parameter("I", ("n",), _N, 1)

_CONSTANTS = {"beta": FACTOR, "varepsilon": THRESHOLD, "0": Integer(0), **{letter: index(letter) for letter in "ijk"}}


def updated_b1(k: Any) -> Parameter:
    """Return `b'_{k,1}`, which the papers use for the updated `b'_{k,3}` in places."""
    return Parameter("b'", (k, 1), S.width, 1)


def stream(k: Any) -> Variable:
    """Return `x_k`, the stream as a matrix of tokens and features."""
    return Variable("x", (k,), N, M)


def _indexed(name: Name, k: Any, role: Any = None) -> MatrixExpr | None:
    """Return the expression that a letter with one index, or two, stands for in a stack of layers."""
    match name.letter:
        case "W" if role in (1, 2, 3):
            return S.W(k, int(role))
        case "b" if role in (1, 2, 3):
            return updated_b1(k) if role == 1 else S.b(k, int(role))
        case "C" if len(name.upper) == 1 and role is None:
            return S.C(k, name.upper[0])
        case "x~" if role is None:
            return Parameter("x~'", (k,), S.width, 1)
        case "s" | "z" if role is None:
            return Parameter(name.letter, (k,), S.neurons, 1)
        case "x" | "P" | "q" | "B" | "c" | "UAT" if role is None:
            return getattr(S, name.letter)(k)
    return None


def symbol(name: Name) -> Any:
    """Return the expression that a name stands for: `x_k` is a matrix, and `x'_k` the vector of it."""
    if name.letter[0] == "Δ":
        return delta(symbol(name._replace(letter=name.letter[1:])))
    expression = None
    match name.letter, name.lower:
        case letter, _ if name.primed and letter not in _PRIMED:
            pass
        case "x", () if not name.primed:
            expression = INPUT
        case "I", ("n",) | (Symbol(name="n"),):
            expression = CUBE
        case "W" | "b" | "alpha" | "theta", (j,) if not name.primed:
            shape = {"W": (_N, _M), "b": (_M, 1), "alpha": (_K, _M), "theta": (_M, 1)}[name.letter]
            expression = Parameter(name.letter, (j,), *shape)
        case letter, () if letter in _CONSTANTS:
            expression = _CONSTANTS[letter]
        case "x", (k,) if not name.primed:
            expression = stream(k)
        case letter, (k, *role) if name.primed == (letter in _PRIMED) and len(role) < 2:
            expression = _indexed(name, k, *role)
    if expression is None:
        raise SymbolicError(f"{name} stands for nothing: see the letters of the papers and of the closed form")
    return expression


def _of_the_input(parameter: Parameter) -> Any:
    def value(argument: MatrixExpr) -> Parameter:
        if argument != INPUT:
            raise SymbolicError(f"{parameter.letter} is applied to {argument}, and the input is {INPUT}")
        return parameter

    return value


_FUNCTIONS = {
    "f": _of_the_input(FUNCTION),
    "G": _of_the_input(APPROXIMATION),
    "MHA": applied("MHA"),
    "FFN": applied("FFN"),
}

THEORY = Notation(symbol, _FUNCTIONS)


def _theta_is_bias(name: Name) -> Any:
    return symbol(name._replace(letter="b") if name.letter == "theta" else name)


EARLIER = Notation(_theta_is_bias, _FUNCTIONS)
