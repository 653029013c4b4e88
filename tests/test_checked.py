"""The suite's check of annotations sees a wrong shape, a wrong type and axes that don't fit, wherever they stand."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from jaxtyping import Float, Int, TypeCheckError

from duat_jax.operators import diagonal
from tests.checked import checked

X, Y = np.zeros((2, 3)), np.zeros((3, 4))


@checked
def product(
    x: Float[np.ndarray, "a b"], y: Float[np.ndarray, "b c"], transposed: bool = False
) -> Float[np.ndarray, "a c"]:
    return (x @ y).T if transposed else x @ y


@checked
def inner(x: Float[np.ndarray, "b a"]) -> "Float[np.ndarray, 'a b']":
    return x.T


@checked
def outer(x: Float[np.ndarray, "a b"]) -> Float[np.ndarray, "a b"]:
    """Call a function whose axes have the same names and other lengths."""
    return inner(x).T


@checked
def unchanged(x: "Float[np.ndarray, 'a b']") -> "Float[np.ndarray, 'b a']":
    return x


def within(x):
    @checked
    def doubled(x: Float[np.ndarray, "a a"]) -> Float[np.ndarray, "a a"]:
        return 2 * x

    return doubled(x)


@checked
def plain(count: int, names: list[str], of: "Absent | None" = None) -> str:
    return names[count] if count < len(names) else None


@checked
def rows(x: Float[np.ndarray, "a b"]) -> Iterator[Float[np.ndarray, " b"]]:
    yield from x


@checked
@dataclass
class Pair:
    """A dataclass whose fields share an axis."""

    x: Float[np.ndarray, "a b"]
    y: Int[np.ndarray, " b"]


RIGHT = [
    lambda: product(X, Y),
    lambda: product(X, y=Y),
    lambda: outer(X),
    lambda: within(X @ X.T),
    lambda: plain(0, ["a"], of=3),
    lambda: list(rows(X)),
    lambda: Pair(X, np.arange(3)),
]
WRONG = {
    "a dtype": lambda: product(X.astype(int), Y),
    "a rank": lambda: product(X[0], Y),
    "axes of two arguments": lambda: product(X, X),
    "an axis of what is returned": lambda: product(X, Y, transposed=True),
    "an option": lambda: product(X, Y, transposed=1.5),
    "annotations in strings": lambda: unchanged(X),
    "axes of a function inside another": lambda: within(X),
    "no array": lambda: plain("0", ["a"]),
    "entries of a list": lambda: plain(0, [1]),
    "what is returned": lambda: plain(1, ["a"]),
    "an argument of a generator": lambda: list(rows(X[0])),
    "fields of a dataclass": lambda: Pair(X, np.arange(2)),
    "a function of the package": lambda: diagonal(3),
}


@pytest.mark.parametrize("call", RIGHT)
def test_what_fits_passes(call):
    call()


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_seen(name):
    with pytest.raises(TypeCheckError):
        WRONG[name]()


def test_a_function_keeps_its_signature_and_name():
    assert plain.__annotations__["of"] == "Absent | None" and plain.__name__ == "plain"
    assert outer.__doc__.startswith("Call a function")
