"""Find the arrays and marks of a function by name, and choose the letters for them in formulas."""

import inspect
import re
import string
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import jax
import numpy as np

WEIGHT, OFFSET, HELD = "weight", "offset", "held"


class Source(NamedTuple):
    """The name and the kind of an array or a mark in a function.

    Args:
        name: of the array or the mark.
        kind: `weight`, `offset` or `held`.
    """

    name: str
    kind: str


class LetterMeaning(NamedTuple):
    """The meaning of one letter.

    Args:
        sources: the arrays and marks it is made of; none if it only rearranges, sums or scales by a number.
        operations: the primitives of the program that it consists of.
    """

    sources: tuple[Source, ...]
    operations: tuple[str, ...]

    def __str__(self) -> str:
        made_of = " and ".join(f"{source.name} ({source.kind})" for source in self.sources)
        return made_of or f"structure ({', '.join(self.operations) or 'a constant'})"


def _names(code: CodeType) -> set[str]:
    """Return the names that a function reads, and those that the functions in it do."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))


def _inside(fn: Any, home: str | None) -> dict[str, Any]:
    """Return the variables of a function by name; global variables only of the module that is read."""
    if isinstance(fn, partial):
        inner = inspect.unwrap(fn.func)
        names = list(inspect.signature(inner).parameters) if inspect.isfunction(inner) else "0123456789"
        return {**dict(zip(names, fn.args, strict=False)), **fn.keywords, "": fn.func}
    if inspect.ismethod(fn):
        return {"": fn.__self__}
    if not inspect.isfunction(fn):
        return {} if isinstance(fn, type) else dict(getattr(fn, "__dict__", {}))
    variables = fn.__globals__ if fn.__module__ == home else {}
    variables_read = {name: variables[name] for name in sorted(_names(fn.__code__)) if name in variables}
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    variables_read |= {name: cell.cell_contents for name, cell in cells}
    parameters = inspect.signature(fn).parameters.values()
    return variables_read | {p.name: p.default for p in parameters if p.default is not p.empty}


def _home(fn: Any) -> str | None:
    """Return the module in which a function was written."""
    fn = inspect.unwrap(fn)
    return _home(fn.func) if isinstance(fn, partial) else getattr(fn, "__module__", None)


class Arrays:
    """The arrays that a function closes over, by name: variables, and paths in the pytrees and modules among them.

    Args:
        fn: a function, a method, a module, or a partial application of one.
    """

    def __init__(self, fn: Any) -> None:
        self._arrays: list[tuple[Any, str]] = []
        self._functions: list[Any] = []
        self._home = _home(fn)
        self._visit("", fn)

    def _visit(self, name: str, value: Any) -> None:
        try:
            leaves = jax.tree_util.tree_flatten_with_path(value)[0]
        except ValueError:  # a dictionary whose keys have no order
            return
        for path, leaf in leaves:
            # A variable of a module has its array under `value`.
            inner = path[:-1] if len(path) > 1 and path[-1] == jax.tree_util.GetAttrKey("value") else path
            full = ".".join(filter(None, (name, jax.tree_util.keystr(inner, simple=True, separator="."))))
            if isinstance(leaf, jax.Array | np.ndarray) and not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
                self._arrays.append((leaf, full))
            elif callable(leaf) and not any(leaf is known for known in self._functions):
                self._functions.append(leaf)
                plain = inspect.unwrap(leaf)
                owner = "" if inspect.isroutine(plain) or isinstance(plain, partial) else full
                for part, brought in _inside(plain, self._home).items():
                    self._visit(".".join(filter(None, (owner, part))), brought)

    def sources(self, array: Any) -> tuple[Source, ...]:
        """Return the names of an array of the program."""
        # An array of NumPy is one of the same numbers in the program.
        same = [name for known, name in self._arrays if known is array] or [
            name
            for known, name in self._arrays
            if (known.shape, known.dtype) == (array.shape, array.dtype) and np.array_equal(known, array)
        ]
        shape = " × ".join(map(str, np.shape(array)))
        return (Source(same[0] if len(same) == 1 else f"unnamed {shape} array".replace("  ", " "), WEIGHT),)


_LETTERS_OF_THE_HELD = {"pattern": "H", "scale": "D", "gate": "G", "factor": "U"}
_LETTERS = {"mlp": "F", "norm": "N", "value": "V", "output": "O"}
_STRUCTURE = "S"
_SIGNS = {_STRUCTURE, "I", "T"}  # which are read as a rearrangement, an identity, a transpose
_COMMON = {"kernel", "weight", "weights", "bias", "offset", "scale", "value"}


def letter_of(sources: tuple[Source, ...]) -> str:
    """Return the capital letter for a matrix that is made of something: the field's own, or the name's initial.

    Example:
        >>> letter_of((Source("attention.pattern", HELD),)), letter_of((Source("mlp.input.kernel", WEIGHT),))
        ('H', 'F')
    """
    if not sources:
        return _STRUCTURE
    source = next((s for s in sources if s.kind == HELD), sources[0])
    words = re.findall(r"[^\W\d_]+", source.name)
    customary = _LETTERS_OF_THE_HELD if source.kind == HELD else _LETTERS
    initials = [word[0].upper() for word in reversed(words) if word not in _COMMON]
    letters = (customary[word] for word in words if word in customary)
    return next(letters, next((c for c in initials if c in string.ascii_uppercase and c not in _SIGNS), "K"))
