"""Represent named matrices and vectors with indices and shapes, printed in the papers' notation."""

import re
from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

from sympy import Basic, Expr, Float, Integer, Symbol, Tuple, sstr, sympify
from sympy.core.symbol import Str
from sympy.printing.printer import Printer

from symbolic.errors import SymbolicError
from symbolic.expressions.matrix import Matrix

i, j = (Symbol(name, integer=True, nonnegative=True) for name in "ij")
"""The numbers of layers: of this one, and of one in which a term was born."""

_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi"
    " omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
GREEK = dict(zip(_GREEK_NAMES.split(), "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", strict=True))
"""The names of the Greek letters, which LaTeX has commands for, with the letters."""

_LATEX_NAMES = {
    "UAT": r"\mathrm{UAT}^{R}",
    "Wbar": r"\overline{\mathbf{W}}",
    "bbar": r"\overline{\mathbf{b}}",
    "x~": r"\widetilde{\mathbf{x}}",
    "H^": r"\hat{\mathbf{H}}",
    "alpha*": r"\boldsymbol{\alpha}^{*}",
    "1": r"\mathbf{1}",
}

_UNICODE_NAMES = {"alpha*": "α*", "Wbar": "W̄", "bbar": "b̄", "x~": "x̃", "H^": "Ĥ"}

DOT = "\u0307"
"""The accent of a symbol of the form that a letter of somebody's layer looks like."""

_ACCENTS = {"\u0302": r"\widehat", "\u0303": r"\widetilde", "\u0304": r"\overline", DOT: r"\dot"}

_LETTER = re.compile(rf"(Δ?)(.*?)([{''.join(_ACCENTS)}]*)('*)")

_SUBSCRIPT = dict(zip("0123456789+-ijklmnhprsu,", "₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₗₘₙₕₚᵣₛᵤ,", strict=True))

_SUPERSCRIPT = dict(zip("0123456789+-ijklmnhprsu", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁱʲᵏˡᵐⁿʰᵖʳˢᵘ", strict=True))


def _small(indices: Tuple, table: dict[str, str], otherwise: str) -> str:
    text = ",".join(map(sstr, indices)).replace(" ", "")
    return "".join(table[c] for c in text) if all(c in table for c in text) else otherwise.format(text)


def subscript(indices: Tuple) -> str:
    """Return lower indices as small characters, or in brackets where one of them has none."""
    return _small(indices, _SUBSCRIPT, "[{}]") if indices else ""


class Letter(NamedTuple):
    """A parameter's letter in parts: the `Δ`, `W`, the tilde and the prime of a changed `W'` at another input, say.

    Args:
        delta: `Δ` or nothing.
        bare: the letter alone.
        accents: hats, tildes, bars and dots over it.
        primes: its primes.
    """

    delta: str
    bare: str
    accents: str
    primes: str

    @property
    def printed(self) -> str:
        """The letter without the marks of a change, of another input or of a midpoint."""
        return _UNICODE_NAMES.get(self.bare, GREEK.get(self.bare, self.bare)) + "′" * len(self.primes)


def size_of(value: Any) -> Expr | None:
    """Return a size as sympy has it, a whole number from 1 on or an expression of symbols; None if it is neither."""
    try:
        size = value if isinstance(value, Expr) else Integer(index(value))
    except TypeError:
        return None
    if isinstance(value, bool) or (size.is_number and not size.is_Integer) or size.has(Float):
        return None
    return None if size.is_positive is False or size.is_integer is False else size


def checked_shape(name: Any, rows: Any, columns: Any) -> tuple[Expr, Expr]:
    """Return rows and columns as sympy has them if they are sizes."""
    of_rows, of_columns = size_of(rows), size_of(columns)
    if of_rows is None or of_columns is None:
        written = " × ".join(str(size) if isinstance(size, Expr) else repr(size) for size in (rows, columns))
        raise SymbolicError(f"{name} can't be {written}: sizes are positive integers or symbols")
    return of_rows, of_columns


class Parameter(Matrix):
    r"""A named matrix or vector, such as `W'_{i,1}` or `b'_{i,2}`.

    Args:
        letter: its letter, with a prime if it acts on `vec(x)`.
        lower: lower indices: integers, symbols, or strings.
        rows: number of rows.
        columns: number of columns; 1 for a vector.
        upper: upper index, as in `C_j^{(i)}`.

    Example:
        >>> from sympy import symbols
        >>> i, d = symbols("i d", integer=True, nonnegative=True)
        >>> W = Parameter("W'", (i + 1, 1), d, d)
        >>> print(W)
        W′ᵢ₊₁,₁
        >>> print(W._repr_latex_())
        $\displaystyle \mathbf{W}'_{i + 1,1}$
    """

    def __new__(cls, letter: Any, lower: Any, rows: Any, columns: Any, upper: Any = ()) -> "Parameter":
        """Return the symbol."""
        rows, columns = checked_shape(letter, rows, columns)
        lower, upper = (Tuple(*(Symbol(k) if isinstance(k, str) else sympify(k) for k in ks)) for ks in (lower, upper))
        return Basic.__new__(cls, Str(str(letter)), lower, rows, columns, upper)  # which are sympified above

    of_layer = False  # whether it is of a user's layer: never the same as one of the form's that has its letter

    letter = property(lambda self: self.args[0].name)
    lower = property(lambda self: self.args[1])
    upper = property(lambda self: self.args[4])
    shape = property(lambda self: (self.args[2], self.args[3]))
    indices = property(lambda self: (*self.args[1], *self.args[4]))

    @property
    def parts(self) -> Letter:
        """The parts of its letter."""
        match = _LETTER.fullmatch(self.letter)
        return Letter(*(match.groups() if match else ("", self.letter, "", "")))

    def _latex(self, printer: Printer) -> str:
        delta, bare, accents, primes = self.parts
        letter = rf"\{bare}" if bare in GREEK else bare
        bold = r"\boldsymbol" if bare in GREEK else r"\mathbf"
        name = _LATEX_NAMES.get(bare, letter if self.shape == (1, 1) else rf"{bold}{{{letter}}}")
        for accent in accents:
            name = rf"{_ACCENTS[accent]}{{{name}}}"
        delta = r"\Delta " if delta else ""
        upper = f"({','.join(printer._print(k) for k in self.upper)})" if self.upper else ""
        lower = f"_{{{','.join(printer._print(k) for k in self.lower)}}}" if self.lower else ""
        if primes and upper:  # a prime and an upper index are two superscripts
            return delta + name + lower + "^{" + r"\prime" * len(primes) + upper + "}"
        return delta + name + primes + lower + (f"^{{{upper}}}" if upper else "")

    def _sympystr(self, printer: Printer) -> str:
        delta, bare, accents, primes = self.parts
        name = _UNICODE_NAMES.get(bare, GREEK.get(bare, bare))
        text = delta + name + accents + "′" * len(primes) + subscript(self.lower)
        return text + (f"⁽{_small(self.upper, _SUPERSCRIPT, '{}')}⁾" if self.upper else "")


class Variable(Parameter):
    """A parameter that is data: `vec(A x B)` is written as a matrix times `vec(x)` of it."""


class Weight(Parameter):
    """A constant parameter of a user's layer."""

    of_layer = True


class Held(Parameter):
    """A parameter that depends on the input and is treated as a constant: a pattern, a scale, a gate."""

    of_layer = True


class Inner(Variable):
    """The name of a sum inside a layer, such as the stream between attention and the MLP."""

    of_layer = True


class Ones(Parameter):
    """The vector of ones of a size, `1_N`, which is the same in every layer."""


def parameters_replaced(expression: Any, put: Callable[[Parameter], Any]) -> Any:
    """Return an expression with something else in the place of every parameter.

    Example:
        >>> from sympy import symbols
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B = Parameter("A", (), d, d), Parameter("B", (), d, d)
        >>> print(parameters_replaced(A * B, lambda parameter: B if parameter == A else parameter))
        B B
    """
    # From part to part: `xreplace` keeps out of a sum whose index stands in what is put in.
    if isinstance(expression, Parameter):
        return put(expression)
    if not isinstance(expression, Basic) or not expression.has(Parameter):
        return expression
    return expression.func(*(parameters_replaced(part, put) for part in expression.args))


def dotted(parameter: Parameter) -> Parameter:
    """Return a parameter of the form with a dot over its letter, which no letter of a user has.

    Example:
        >>> print(dotted(Parameter("P", (1,), 2, 2)))
        Ṗ₁
    """
    delta, bare, accents, primes = parameter.parts
    return parameter.func(f"{delta}{bare}{DOT}{accents}{primes}", *parameter.args[1:])


def latin(name: str) -> str:
    """Return the name of a letter with the names of Greek letters in their place, as LaTeX has them.

    Example:
        >>> print(latin("α[1]"), latin("W'"))
        alpha[1] W'
    """
    names = {letter: word for word, letter in GREEK.items()}
    return "".join(names.get(character, character) for character in name)
