"""A printed row of relations between expressions, such as `a = b < c`."""

from typing import Any, NamedTuple

from symbolic.errors import SymbolicError


class Statement(NamedTuple):
    """A row of relations, such as `a = b < c`.

    Args:
        sides: the expressions.
        relations: the relations between them, one fewer.
    """

    sides: tuple[Any, ...]
    relations: tuple[str, ...]

    def related(self, *relations: str) -> tuple[Any, ...]:
        """Return the sides, if these very relations stand between them.

        Args:
            relations: the relations that are decided, in order.

        Raises:
            SymbolicError: if another relation is printed.
        """
        if self.relations != relations:
            printed, decided = (" ".join(names) or "none" for names in (self.relations, relations))
            raise SymbolicError(f"what is printed isn't what is decided: the relations {printed}, not {decided}")
        return self.sides

    @property
    def equated(self) -> tuple[Any, ...]:
        """The sides of a row of equations."""
        return self.related(*"=" * (len(self.sides) - 1))
