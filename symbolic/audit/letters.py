"""The printed names of a paper, and the notations that say what expression each name stands for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sympy import Symbol, Tuple
from sympy.core.symbol import Str

from symbolic.errors import SymbolicError


class Name(NamedTuple):
    """A letter with its marks, as printed.

    Args:
        letter: the letter, with `Δ` before and an accent after it.
        lower: lower indices: numbers, symbols, or strings such as `HVO`.
        upper: upper indices, as in `C_j^{(i)}`.
        primed: whether it has a prime.
    """

    letter: str
    lower: tuple[Any, ...] = ()
    upper: tuple[Any, ...] = ()
    primed: bool = False

    def __str__(self) -> str:
        upper = f"^({','.join(map(str, self.upper))})" if self.upper else ""
        lower = f"_{','.join(map(str, self.lower))}" if self.lower else ""
        return self.letter + "'" * self.primed + lower.replace(" ", "") + upper.replace(" ", "")


@dataclass(frozen=True, eq=False)
class Notation:
    """The expressions that the letters of one part of a paper stand for.

    Args:
        symbol: the expression that a name stands for.
        functions: the letters that are applied to arguments in brackets, and what comes of it.
        from_right: whether `A ⋄ B ⋄ x` without brackets is `A ⋄ (B ⋄ x)`; otherwise it is `(A ⋄ B) ⋄ x`.
    """

    symbol: Callable[[Name], Any]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    from_right: bool = False


def applied(name: str) -> Callable[..., Tuple]:
    """Return a function that reads `name(arguments)` as a name with its arguments."""
    return lambda *arguments: Tuple(Str(name), *arguments)


def index(letter: str) -> Symbol:
    """Return the symbol of an index."""
    return Symbol(letter, integer=True, nonnegative=True)


def table(names: Mapping[str, Any], **options: Any) -> Notation:
    """Return a notation with finitely many names."""

    def symbol(name: Name) -> Any:
        if str(name) not in names:
            raise SymbolicError(f"{name} stands for nothing here: what is printed has {', '.join(names)}")
        return names[str(name)]

    return Notation(symbol, **options)


class Statement(NamedTuple):
    """A row of relations, such as `a = b < c`.

    Args:
        sides: the expressions.
        relations: the relations between them, one fewer.
    """

    sides: tuple[Any, ...]
    relations: tuple[str, ...]

    def related(self, *relations: str) -> tuple[Any, ...]:
        """Return the sides, if these very relations stand between them."""
        if self.relations != relations:
            printed, decided = (" ".join(names) or "none" for names in (self.relations, relations))
            raise SymbolicError(f"what is printed isn't what is decided: the relations {printed}, not {decided}")
        return self.sides

    @property
    def equated(self) -> tuple[Any, ...]:
        """The sides of a row of equations."""
        return self.related(*"=" * (len(self.sides) - 1))
