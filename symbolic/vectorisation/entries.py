"""Write matrix expressions entry by entry, for small sizes, and read the matrix of a linear map off its formula."""

from fractions import Fraction
from typing import NamedTuple

from sympy import ImmutableMatrix, Symbol

from symbolic.errors import SymbolicError
from symbolic.expressions.parameter import Parameter


def entries(parameter: Parameter) -> ImmutableMatrix:
    """Return a parameter of known sizes as a matrix of its entries, `W_{1,1}, W_{1,2}, …`."""
    if not all(size.is_Integer for size in parameter.shape):
        raise SymbolicError(
            f"{parameter} is {parameter.shape[0]} × {parameter.shape[1]}: give its sizes as numbers to see its entries"
        )
    subscript = ",".join(map(str, parameter.lower))
    if parameter.upper:
        subscript += f"({','.join(map(str, parameter.upper))})"

    def entry(i: int, j: int) -> Symbol:
        place = f"{i + 1}" if parameter.shape[1] == 1 else f"{i + 1},{j + 1}"
        return Symbol(f"{parameter.letter}_{{{subscript + ';' if subscript else ''}{place}}}")

    return ImmutableMatrix(*map(int, parameter.shape), entry)


def vec(matrix: ImmutableMatrix) -> ImmutableMatrix:
    """Return the entries row by row as one column.

    Args:
        matrix: any explicit matrix.
    """
    return ImmutableMatrix(len(matrix), 1, list(matrix))


def kronecker(left: ImmutableMatrix, right: ImmutableMatrix) -> ImmutableMatrix:
    """Return `left ⊗ right`, from the definition: the block at (i, j) is `left[i, j] right`."""
    rows, columns = right.shape
    return ImmutableMatrix(
        left.rows * rows,
        left.cols * columns,
        lambda i, j: left[i // rows, j // columns] * right[i % rows, j % columns],
    )


def matrix_of(output: ImmutableMatrix, variable: ImmutableMatrix) -> ImmutableMatrix:
    """Return `W'` with `vec(output) = W' vec(variable)`, read off from the formula by differentiation."""
    matrix = vec(output).jacobian(vec(variable))
    if matrix.free_symbols & variable.free_symbols or (
        matrix * vec(variable) - vec(output)
    ).expand() != ImmutableMatrix.zeros(len(output), 1):
        raise SymbolicError("the output isn't linear in the variable: hold what multiplies it")
    return ImmutableMatrix(matrix.expand())


def same(left: ImmutableMatrix, right: ImmutableMatrix) -> bool:
    """Tell whether two explicit matrices are equal, every entry multiplied out."""
    return left.shape == right.shape and all(entry == 0 for entry in (left - right).expand())


def density(matrix: ImmutableMatrix) -> Fraction:
    """Return the share of entries that aren't zero.

    Example:
        >>> print(density(ImmutableMatrix([[1, 0], [2, 3]])))
        3/4
    """
    return Fraction(sum(entry != 0 for entry in matrix), len(matrix))


def check_sizes(**sizes: int) -> None:
    """Raise if a size isn't a positive integer."""
    wrong = [
        f"{name} = {size}"
        for name, size in sizes.items()
        if isinstance(size, bool) or not isinstance(size, int) or size < 1
    ]
    if wrong:
        raise SymbolicError(f"{', '.join(wrong)}: entries are written out for positive whole numbers only")


class Explicit(NamedTuple):
    """One linear map as an explicit matrix, and the same as a Kronecker expression.

    Args:
        matrix: `W'` with `vec(y) = W' vec(x)`, read off from the formula of `y` entry by entry.
        kronecker: the Kronecker expression, entry by entry.
    """

    matrix: ImmutableMatrix
    kronecker: ImmutableMatrix

    @property
    def agree(self) -> bool:
        """Whether the two are equal in every entry."""
        return same(self.matrix, self.kronecker)

    @property
    def density(self) -> Fraction:
        """The share of entries that aren't zero."""
        return density(self.matrix)


def matrix(letter: str, rows: int, columns: int, *lower: object) -> ImmutableMatrix:
    """Return an explicit matrix of symbols, `W_{1,1}, W_{1,2}, …`.

    Args:
        letter: its letter.
        rows: number of rows.
        columns: number of columns.
        lower: its indices.
    """
    return entries(Parameter(letter, lower, rows, columns))
