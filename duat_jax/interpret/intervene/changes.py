"""Changes of values inside a model: set, scaled, or steered along a direction."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.inputs.model_inputs import Inputs
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.validation import whole_number
from duat_jax.transform.keys import Site

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from duat_jax.models.transformer import Transformer

SHOWN = 4
"""The largest number of tokens or units that a message names."""

SET, SCALED, STEERED = "set to", "scaled by", "steered by"
"""The verbs of changes."""


class Where(NamedTuple):
    """The place of values in a model.

    Args:
        site: the mark.
        name: what it is, in words.
        units: which of a token's units: neurons or heads; absent of a stream, which has none.
        shape: of all values of one token at this mark.
    """

    site: Site
    name: str
    units: tuple[int, ...] | None
    shape: tuple[int, ...]


class Applied(NamedTuple):
    """A change of one text's values, `m ↦ kept · m + added`; `kept` is 1 and `added` 0 elsewhere.

    Args:
        site: the mark.
        name: what is changed, in words, but for the tokens.
        how: what becomes of it, in words.
        tokens: at which tokens.
        units: which of their units; absent of a stream.
        every: whether every token is changed.
        here: which values are changed, `[tokens, features]`, or of heads `[tokens, heads, head_features]`.
        kept: the factor, of the same shape.
        added: the summand, of the same shape; zero where a source gives it.
        source: computes the summand by a model; absent where it is given by numbers.
    """

    site: Site
    name: str
    how: str
    tokens: tuple[int, ...]
    units: tuple[int, ...] | None
    every: bool
    here: Bool[np.ndarray, "tokens *shape"]
    kept: Float[np.ndarray, "tokens *shape"]
    added: Float[np.ndarray, "tokens *shape"]
    source: "Source | None" = None

    @property
    def chosen(self) -> tuple[np.ndarray, ...]:
        """The place of the changed values in all values of a text."""
        return np.ix_(self.tokens, *([] if self.units is None else [self.units]))

    def adding(self, values: np.ndarray) -> "Applied":
        """Return the change with the values that its source gives."""
        added = self.added.copy()
        added[self.chosen] = values
        return self._replace(added=added)


class Source(ABC):
    """Values that a model computes, given in the place of numbers to be set or to be added."""

    _verb: ClassVar[str]
    """The verb of a change that takes them."""

    @abstractmethod
    def _how(self) -> str:
        """Return what becomes of the values that are changed, in words."""

    @abstractmethod
    def _check(
        self, config: Config, inputs: Inputs, change: Applied | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        """Add everything that is wrong with it to the problems; the change is absent where its place isn't there."""

    @abstractmethod
    def _values(
        self, model: "Transformer", inputs: Inputs, change: Applied, tokenizer: "Tokenizer | None"
    ) -> np.ndarray:
        """Return the values, which broadcast to those of the change's tokens and units."""


@final
@dataclass(frozen=True, eq=False)
class Change:
    """A change of values inside a model, `m ↦ kept · m + added`, made by a place.

    Args:
        place: the values.
        verb: what is done, in words.
        kept: the factor.
        added: the summand.
        given: which of the two was given.
    """

    place: Any
    verb: str
    kept: Any
    added: Any
    given: Any

    def applied(self, config: Config, tokens: int, layers: int, problems: list[str]) -> Applied | None:
        """Return the change of one text's values, or nothing where there is a problem.

        Args:
            config: the model's parts.
            tokens: the text's length; nothing is said of an empty one.
            layers: how many layers there are before what is read.
            problems: where everything that is wrong is added.
        """
        place = self.place._where(config, layers, problems)
        every_token = self.place.tokens is None
        rows = (
            tuple(range(tokens))
            if every_token
            else indices(self.place.tokens, "token", tokens, problems, from_end=True)
        )
        if place is None or not rows:
            return None
        shape = (tokens, *place.shape)
        index = np.ix_(rows) if place.units is None else np.ix_(rows, place.units)
        here, kept, added = np.zeros(shape, bool), np.ones(shape), np.zeros(shape)
        here[index] = True
        if isinstance(self.added, Source):
            if self.verb != self.added._verb:
                method = {SET: "set", STEERED: "steer"}[self.added._verb]
                problems.append(f"{place.name} can't be {self.verb} {type(self.added).__name__}: give it to .{method}")
                return None
            kept[index], how = self.kept, self.added._how()
            return Applied(place.site, place.name, how, rows, place.units, every_token, here, kept, added, self.added)
        values = _broadcast(self.given, np.zeros(shape)[index].shape, f"{place.name}: what it is {self.verb}", problems)
        if values is None:
            return None
        kept[index], added[index] = self.kept, self.added
        how = (
            f"{self.verb} {values:g}"
            if values.ndim == 0
            else f"{self.verb} values of size {np.linalg.norm(values):.3g}"
        )
        return Applied(place.site, place.name, how, rows, place.units, every_token, here, kept, added)


def some(numbers: tuple[int, ...]) -> str:
    """Return the first of many numbers, in words."""
    return ", ".join(map(str, numbers[:SHOWN])) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")


def indices(
    given: Any, what: str, count: int, problems: list[str], *, from_end: bool = False
) -> tuple[int, ...] | None:
    """Return which of several units are meant, or nothing where there is a problem or there are none."""
    if not count:
        return None
    try:
        numbers = [
            whole_number(number) for number in (given if np.ndim(given) or isinstance(given, range) else [given])
        ]
    except ValueError:
        numbers = [None]
    least = -count if from_end else 0
    if not numbers or any(number is None or not least <= number < count for number in numbers):
        problems.append(f"{what} {quoted(given)} is none of {count}: give {least} to {count - 1}, one or several")
        return None
    indices = tuple(number % count for number in numbers if number is not None)
    if len(set(indices)) < len(indices):
        problems.append(f"{what} {quoted(given)} names one twice: name each once")
        return None
    return indices


def _broadcast(given: Any, shape: tuple[int, ...], what: str, problems: list[str]) -> np.ndarray | None:
    """Return a number or an array as it was given, or nothing where there is a problem."""
    try:
        values = np.asarray(given, float)
        np.broadcast_to(values, shape)
    except (TypeError, ValueError):
        problems.append(f"{what} must be a number, or numbers that broadcast to {list(shape)}, not {quoted(given)}")
        return None
    if not np.isfinite(values).all():
        problems.append(f"{what} isn't finite: give numbers that are")
        return None
    return values
