"""Named functions after longer prompts, whose further tokens say nothing."""

from dataclasses import dataclass
from typing import final

import jax
import jax.numpy as jnp
from jaxtyping import Array

from experiments.generalization.measures import key_of_tests, measured
from experiments.generalization.networks import Network, Sizes
from experiments.generalization.plan import TESTED
from experiments.generalization.tasks import CONTENT, Examples, Named
from experiments.generalization.training import error, outputs
from experiments.study import Row

RANDOM, CONSTANT, MARKED = "random", "constant", "marked"
"""Further digits before the name that are random or all zero; or random ones around it, where a mark says its place."""


@final
@dataclass(frozen=True, kw_only=True)
class Padded:
    """Prompts with further tokens, which say nothing.

    Args:
        named: the functions and their names.
        further: the number of further tokens.
        filling: `RANDOM`, `CONSTANT` or `MARKED`; one of marked ones is the mark, directly before the name, whose
            place is any as often.

    Example:
        >>> Padded(named=Named(digits=2, base=4), further=6, filling=RANDOM).tokens
        12
    """

    named: Named
    further: int
    filling: str

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.named.tokens + self.further

    @property
    def inputs(self) -> int:
        """The number of numbers of a token: one for every value of a digit, one of the sequence, and the mark."""
        return self.named.inputs + (self.filling == MARKED)

    @property
    def outputs(self) -> int:
        """The number of last tokens whose output is read."""
        return CONTENT

    ordered, nonzero = True, 1
    """Whether tokens have an order, and how many numbers of a token aren't zero."""

    def draw(self, key: Array, number: int) -> Examples:
        """Draw examples as in training."""
        named_key, digits_key, places_key = jax.random.split(key, 3)
        inputs, _, targets, _ = self.named.draw(named_key, number)
        name, content = jnp.split(
            jnp.pad(inputs, ((0, 0), (0, 0), (0, self.inputs - inputs.shape[-1]))), [self.named.digits], axis=1
        )
        digits = jax.random.randint(digits_key, (number, self.further), 0, self.named.base)
        further = jax.nn.one_hot(digits * (self.filling != CONSTANT), self.inputs, dtype=inputs.dtype)
        prompt = jnp.concatenate([further, name], axis=1)
        if self.filling == MARKED:
            prompt = prompt.at[:, self.further - 1].set(jax.nn.one_hot(self.inputs - 1, self.inputs))
            places = jax.random.randint(places_key, (number,), 0, self.further)
            prompt = jax.vmap(lambda tokens, place: jnp.roll(tokens, -place, axis=0))(prompt, places)
        return Examples(jnp.concatenate([prompt, content], axis=1), jnp.ones((number, self.tokens), bool), targets)

    chosen_by = draw


@measured.register
def _(task: Padded, sizes: Sizes, network: Network) -> Row:
    examples = task.draw(key_of_tests(), TESTED)
    return {"error": float(error(outputs(network, examples), examples))}
