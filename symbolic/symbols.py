"""Matrices, vectors and the activation as exact non-commutative symbols with shapes, in the papers' notation."""

from itertools import pairwise
from typing import Any

from sympy import (
    Basic,
    Expr,
    HadamardProduct,
    Identity,
    Integer,
    KroneckerProduct,
    MatrixExpr,
    Mul,
    Symbol,
    Transpose,
    Tuple,
    ZeroMatrix,
    sympify,
)
from sympy.core.decorators import call_highest_priority
from sympy.core.symbol import Str
from sympy.matrices.expressions import MatAdd, MatMul
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.printer import Printer

from symbolic.errors import ShapeMismatch, SymbolicError

_LATEX_NAMES = {
    "UAT": r"\mathrm{UAT}^{R}",
    "Wbar": r"\overline{\mathbf{W}}",
    "bbar": r"\overline{\mathbf{b}}",
    "x~": r"\widetilde{\mathbf{x}}",
    "H^": r"\hat{\mathbf{H}}",
    "alpha*": r"\boldsymbol{\alpha}^{*}",
    "1": r"\mathbf{1}",
    "gamma": r"\boldsymbol{\gamma}",
    "beta": r"\boldsymbol{\beta}",
    "alpha": r"\boldsymbol{\alpha}",
    "theta": r"\boldsymbol{\theta}",
}
_UNICODE_NAMES = {
    "gamma": "γ",
    "beta": "β",
    "alpha": "α",
    "alpha*": "α*",
    "theta": "θ",
    "Wbar": "W̄",
    "bbar": "b̄",
    "x~'": "x̃'",
    "H^": "Ĥ",
}
_SUBSCRIPT = dict(zip("0123456789+-ijklmnhprsu,", "₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₗₘₙₕₚᵣₛᵤ,", strict=True))
_SUPERSCRIPT = dict(zip("0123456789+-ijklmnhprsu", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁱʲᵏˡᵐⁿʰᵖʳˢᵘ", strict=True))


def _small(indices: Tuple, printer: Printer, table: dict[str, str], otherwise: str) -> str:
    text = ",".join(printer._print(k) for k in indices).replace(" ", "")
    return "".join(table[c] for c in text) if all(c in table for c in text) else otherwise.format(text)


def _fits(left: Expr, right: Expr) -> bool:
    return bool(left == right) or (left - right).expand() == 0


def check_product(left: MatrixExpr, right: MatrixExpr) -> None:
    """Raise if two factors don't multiply.

    Args:
        left: the left factor.
        right: the right factor.

    Raises:
        ShapeMismatch: with both factors and their shapes.
    """
    if not _fits(left.shape[1], right.shape[0]):
        raise ShapeMismatch(
            f"{left} is {left.shape[0]} × {left.shape[1]} and {right} is {right.shape[0]} × {right.shape[1]}: they don't"
            " multiply; give the left factor as many columns as the right one has rows, or transpose one"
        )


def check_sum(left: MatrixExpr, right: MatrixExpr) -> None:
    """Raise if two summands don't have the same shape.

    Args:
        left: one summand.
        right: the other summand.

    Raises:
        ShapeMismatch: with both summands and their shapes.
    """
    if not (_fits(left.shape[0], right.shape[0]) and _fits(left.shape[1], right.shape[1])):
        raise ShapeMismatch(
            f"{left} is {left.shape[0]} × {left.shape[1]} and {right} is {right.shape[0]} × {right.shape[1]}: they don't"
            " add; give both the same shape"
        )


class Matrix(MatrixExpr):
    """What our own matrix expressions share: sums and products that keep their order and say what doesn't fit."""

    _op_priority = 12.0  # so that these operators win over those of sympy's own matrices

    @call_highest_priority("__rmul__")
    def __mul__(self, other: Any) -> MatrixExpr:
        return MatrixProduct(self, other)

    @call_highest_priority("__mul__")
    def __rmul__(self, other: Any) -> MatrixExpr:
        return MatrixProduct(other, self)

    @call_highest_priority("__radd__")
    def __add__(self, other: Any) -> MatrixExpr:
        return MatrixSum(self, other)

    @call_highest_priority("__add__")
    def __radd__(self, other: Any) -> MatrixExpr:
        return MatrixSum(other, self)

    def __sub__(self, other: Any) -> MatrixExpr:
        return MatrixSum(self, MatrixProduct(-1, other))

    def __rsub__(self, other: Any) -> MatrixExpr:
        return MatrixSum(other, MatrixProduct(-1, self))

    def __neg__(self) -> MatrixExpr:
        return MatrixProduct(-1, self)

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {typeset(self)}$"

    __matmul__ = __mul__
    __rmatmul__ = __rmul__

    def doit(self, **hints: Any) -> MatrixExpr:
        """Return the expression itself: it is evaluated by its normal form.

        Args:
            hints: not used.
        """
        return self


class MatrixSum(Matrix, MatAdd):
    """A sum in the order in which it was written, without zeros.

    Args:
        summands: matrices of one shape.
    """

    def __new__(cls, *summands: Any) -> MatrixExpr:
        """Return the sum, or its only summand."""
        first = summands[0]
        for summand in summands:
            if not isinstance(summand, MatrixExpr):
                raise ShapeMismatch(f"{summand} is no matrix: only matrices of one shape add")
            check_sum(first, summand)
        flat = [
            part for s in summands for part in (s.args if isinstance(s, MatAdd) else (s,)) if not part.is_ZeroMatrix
        ]
        if len(flat) < 2:
            return flat[0] if flat else first
        return Basic.__new__(cls, *flat)

    def _sympystr(self, printer: Printer) -> str:
        first, *rest = (printer._print(summand) for summand in self.args)
        return first + "".join(f" − {text[1:]}" if text.startswith("−") else f" + {text}" for text in rest)


class MatrixProduct(Matrix, MatMul):
    """A product in the order in which it was written, without identities, its coefficient first.

    Args:
        factors: matrices that multiply, and scalars.
    """

    def __new__(cls, *factors: Any) -> MatrixExpr:
        """Return the product, or its only factor."""
        flat = [part for f in factors for part in (f.args if isinstance(f, MatMul) else (sympify(f),))]
        coefficient = Mul(*(f for f in flat if not isinstance(f, MatrixExpr)))
        matrices = [f for f in flat if isinstance(f, MatrixExpr)]
        for left, right in pairwise(matrices):
            check_product(left, right)
        shape = (matrices[0].shape[0], matrices[-1].shape[1])
        if coefficient == 0 or any(f.is_ZeroMatrix for f in matrices):
            return ZeroMatrix(*shape)
        matrices = [f for f in matrices if not f.is_Identity] or matrices[:1]
        if coefficient == 1 and len(matrices) == 1:
            return matrices[0]
        return Basic.__new__(cls, *([] if coefficient == 1 else [coefficient]), *matrices)

    def _eval_transpose(self) -> MatrixExpr:
        coefficient, factors = self.as_coeff_matrices()
        return MatrixProduct(coefficient, *(Transpose(factor).doit(deep=False) for factor in reversed(factors)))

    def _sympystr(self, printer: Printer) -> str:
        coefficient, factors = self.as_coeff_matrices()
        sign, size = ("−", -coefficient) if coefficient.could_extract_minus_sign() else ("", coefficient)
        texts = [printer.parenthesize(factor, PRECEDENCE["Mul"]) for factor in factors]
        return (
            sign
            + " ".join([] if size == 1 else [printer.parenthesize(size, PRECEDENCE["Mul"])])
            + (" " if size != 1 else "")
            + " ".join(texts)
        )


class Kronecker(Matrix, KroneckerProduct):
    """`A ⊗ B`.

    Args:
        left: `A`.
        right: `B`.
    """

    def __new__(cls, left: Any, right: Any) -> "Kronecker":
        """Return the expression."""
        return Basic.__new__(cls, left, right)

    def _eval_transpose(self) -> MatrixExpr:
        return Kronecker(*(Transpose(factor).doit(deep=False) for factor in self.args))

    def _sympystr(self, printer: Printer) -> str:
        return " ⊗ ".join(printer.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in self.args)


class Hadamard(Matrix, HadamardProduct):
    """`v ⊙ w`, the product entry by entry.

    Args:
        left: `v`.
        right: `w`, of the same shape.
    """

    def __new__(cls, left: Any, right: Any) -> "Hadamard":
        """Return the expression."""
        check_sum(left, right)
        return Basic.__new__(cls, left, right)

    def _sympystr(self, printer: Printer) -> str:
        return " ⊙ ".join(printer.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in self.args)


class Parameter(Matrix):
    """A named matrix or vector, such as `W'_{i,1}` or `b'_{i,2}`.

    Args:
        letter: its letter, with a prime if it acts on `vec(x)`.
        lower: lower indices: integers, symbols, or strings.
        rows: number of rows.
        columns: number of columns; 1 for a vector.
        upper: upper index, as in `C_j^{(i)}`.

    Example:
        >>> from sympy import symbols
        >>> i, d = symbols("i d", integer=True)
        >>> W = Parameter("W'", (i + 1, 1), d, d)
        >>> print(W)
        W′ᵢ₊₁,₁
        >>> print(W._repr_latex_())
        $\\displaystyle \\mathbf{W}'_{i + 1,1}$
    """

    def __new__(cls, letter: Any, lower: Any, rows: Any, columns: Any, upper: Any = ()) -> "Parameter":
        """Return the symbol."""
        lower, upper = (Tuple(*(Symbol(k) if isinstance(k, str) else sympify(k) for k in ks)) for ks in (lower, upper))
        rows, columns = sympify(rows), sympify(columns)
        if any(size.is_positive is False or size.is_integer is False for size in (rows, columns)):
            raise SymbolicError(f"{letter} can't be {rows} × {columns}: sizes are positive integers or symbols")
        return Basic.__new__(cls, Str(str(letter)), lower, rows, columns, upper)

    letter = property(lambda self: self.args[0].name)
    lower = property(lambda self: self.args[1])
    upper = property(lambda self: self.args[4])
    shape = property(lambda self: (self.args[2], self.args[3]))
    indices = property(lambda self: (*self.args[1], *self.args[4]))

    def with_indices(self, indices: tuple[Any, ...]) -> "Parameter":
        """Return the same parameter at other indices.

        Args:
            indices: all lower indices and then all upper ones.
        """
        cut = len(self.lower)
        return Parameter(self.letter, indices[:cut], *self.shape, indices[cut:])

    def _entry(self, i: Any, j: Any, **_: Any) -> Expr:
        name = self.letter.strip("'").lower()
        subscript = ",".join(str(k) for k in self.indices)
        place = f"{i + 1}" if self.shape[1] == 1 else f"{i + 1},{j + 1}"
        return Symbol(f"{name}_{{{subscript + ';' if subscript else ''}{place}}}")

    def _latex(self, printer: Printer) -> str:
        delta, letter = (r"\Delta ", self.letter[1:]) if self.letter[0] == "Δ" else ("", self.letter)
        bare = letter.rstrip("'")
        text = delta + _LATEX_NAMES.get(bare, rf"\mathbf{{{bare}}}") + letter[len(bare) :]
        if self.lower:
            text += f"_{{{','.join(printer._print(k) for k in self.lower)}}}"
        if self.upper:
            text += f"^{{({','.join(printer._print(k) for k in self.upper)})}}"
        return text

    def _sympystr(self, printer: Printer) -> str:
        text = _UNICODE_NAMES.get(self.letter, self.letter).replace("'", "′") + _small(
            self.lower, printer, _SUBSCRIPT, "[{}]"
        )
        return text + (f"⁽{_small(self.upper, printer, _SUPERSCRIPT, '{}')}⁾" if self.upper else "")


class Variable(Parameter):
    """A parameter that is data: `vec(A x B)` is written as a matrix times `vec(x)` of it."""


class Activation(Matrix):
    """`σ(z)`, or its derivative `σ'(z)`, entry by entry.

    Args:
        argument: `z`.
        order: 0 for `σ`, 1 for `σ'`.
    """

    def __new__(cls, argument: Any, order: Any = 0) -> "Activation":
        """Return the expression."""
        return Basic.__new__(cls, sympify(argument), sympify(order))

    argument = property(lambda self: self.args[0])
    order = property(lambda self: int(self.args[1]))
    shape = property(lambda self: self.args[0].shape)

    def _latex(self, printer: Printer) -> str:
        return rf"\sigma{chr(39) * self.order}\left({printer._print(self.argument)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"σ{'′' * self.order}({printer._print(self.argument)})"


class Diagonal(Matrix):
    """`diag(v)`, the square matrix with a vector on its diagonal: `diag(v) w` is `v ⊙ w`.

    Args:
        vector: `v`.
    """

    def __new__(cls, vector: Any) -> "Diagonal":
        """Return the expression."""
        if vector.shape[1] != 1:
            raise ShapeMismatch(f"diag takes a vector, and {vector} is {vector.shape[0]} × {vector.shape[1]}")
        return Basic.__new__(cls, vector)

    vector = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0], self.args[0].shape[0]))

    def _eval_transpose(self) -> "Diagonal":
        return self

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{diag}}\left({printer._print(self.vector)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"diag({printer._print(self.vector)})"


class Vec(Matrix):
    """`vec(X)`, the entries of a matrix row by row, which the papers write as `x'` (their `T_D`).

    Args:
        matrix: `X`, `[N, M]`.
    """

    def __new__(cls, matrix: Any) -> "Vec":
        """Return the expression."""
        return Basic.__new__(cls, matrix)

    matrix = property(lambda self: self.args[0])
    shape = property(lambda self: (self.args[0].shape[0] * self.args[0].shape[1], Integer(1)))

    def _latex(self, printer: Printer) -> str:
        return rf"\operatorname{{vec}}\left({printer._print(self.matrix)}\right)"

    def _sympystr(self, printer: Printer) -> str:
        return f"vec({printer._print(self.matrix)})"


class IndexedSum(Matrix):
    """`Σ_{j=first}^{last} body`, with bounds that may be symbols.

    Args:
        body: the summand, an expression in the index.
        index: the bound symbol `j`.
        first: its first value.
        last: its last value; the sum is zero if it is `first − 1`.
    """

    def __new__(cls, body: Any, index: Any, first: Any, last: Any) -> "IndexedSum":
        """Return the expression."""
        return Basic.__new__(cls, body, index, sympify(first), sympify(last))

    precedence = PRECEDENCE["Mul"]
    body = property(lambda self: self.args[0])
    index = property(lambda self: self.args[1])
    first = property(lambda self: self.args[2])
    last = property(lambda self: self.args[3])
    shape = property(lambda self: self.args[0].shape)

    def at(self, value: Any) -> MatrixExpr:
        """Return the summand at one value of the index.

        Args:
            value: the value.
        """
        return self.body.xreplace({self.index: sympify(value)})

    def _latex(self, printer: Printer) -> str:
        bounds = rf"_{{{printer._print(self.index)}={printer._print(self.first)}}}^{{{printer._print(self.last)}}}"
        body = printer._print(self.body)
        return rf"\sum{bounds} " + (rf"\left({body}\right)" if isinstance(self.body, MatAdd) else body)

    def _sympystr(self, printer: Printer) -> str:
        bounds = f"[{self.index}={printer._print(self.first)}..{printer._print(self.last)}]".replace(" ", "")
        body = printer._print(self.body)
        return f"Σ{bounds} " + (f"({body})" if isinstance(self.body, MatAdd) else body)


# Canonical names of nested bound indices: they differ from the symbols of the same name that expressions contain.
BOUND = tuple(Symbol(name, integer=True, positive=True) for name in "jklmpqrs")


class _Typesetter(LatexPrinter):
    """sympy's LaTeX, with transposes and identities as the papers write them."""

    def _print_Transpose(self, expression: Transpose) -> str:
        inner = self._print(expression.arg)
        if not isinstance(expression.arg, Parameter):
            return rf"\left({inner}\right)^{{T}}"
        simple = "'" not in expression.arg.letter and not expression.arg.upper
        return rf"{inner}^{{T}}" if simple else rf"{{{inner}}}^{{T}}"  # a prime and a T are two superscripts

    def _print_Identity(self, expression: Identity) -> str:
        return r"\mathbf{I}"

    def _print_ZeroMatrix(self, expression: ZeroMatrix) -> str:
        return r"\mathbf{0}"

    def _print_Hadamard(self, expression: Hadamard) -> str:
        return r" \odot ".join(self.parenthesize(factor, PRECEDENCE["Mul"] + 1) for factor in expression.args)


def typeset(expression: Any) -> str:
    """Return the LaTeX of any expression of this package.

    Args:
        expression: a matrix expression, an explicit matrix, or a number.

    Example:
        >>> print(typeset(Parameter("W'", (1, 2), 3, 3).T))
        {\\mathbf{W}'_{1,2}}^{T}
    """
    return _Typesetter({"mat_delim": "(", "mat_str": "matrix"}).doprint(expression)
