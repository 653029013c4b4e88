"""Values that a model computes, given in an edit in the place of numbers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from duat_jax.errors import InvalidInput
from duat_jax.forms.decomposition import KINDS
from duat_jax.inputs.baselines import Reference
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.model_inputs import Inputs, TokenizedText, checked_input
from duat_jax.interpret.attention.held_pattern import pattern_of, point_of
from duat_jax.interpret.intervene.places import Selected
from duat_jax.interpret.intervene.slots import Slots, slots_of
from duat_jax.interpret.pipeline import embedded, forward_from
from duat_jax.marking.program import MIXED
from duat_jax.models import sites
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import Config
from duat_jax.models.layout import ENCODER
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import whole_number
from duat_jax.nn.pattern import attention_mask
from duat_jax.processes import on_host
from duat_jax.transform import marks
from duat_jax.transform.recording import Recording, record_kinds
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SET, SCALED, STEERED = "set to", "scaled by", "steered by"
"""The verbs of edits."""


class ValueSource(ABC):
    """Values that a model computes, given in the place of numbers to be set or to be added."""

    _verb: ClassVar[str]
    """The verb of the edits that take them: `SET` or `STEERED`."""

    @abstractmethod
    def _how(self) -> str:
        """Return what becomes of the edited values, in words."""

    @abstractmethod
    def _check(
        self, config: Config, inputs: Inputs, place: Selected | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        """Add everything that is wrong with it to the problems; the place is absent where it isn't there."""

    @abstractmethod
    def _values(self, model: Transformer, inputs: Inputs, place: Selected, tokenizer: "Tokenizer | None") -> np.ndarray:
        """Return the values, which broadcast to those of the place."""


@final
@dataclass(frozen=True, eq=False)
class FromInput(ValueSource):
    """The values at the same place on another input of as many tokens: activation patching.

    Args:
        inputs: the other text, its token ids, or pixels.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> patch = duat.edits.Heads(5, 3, tokens=-1).set(duat.edits.FromInput("for j in range(10"))
        >>> duat.intervene(model, "for i in range(10", patch).effects[0].edit
        "layer 5, head 3, token 5, '10': set to the values on the other text"
    """

    inputs: Any

    _verb = SET

    def _how(self) -> str:
        is_text = isinstance(self.inputs, str | TokenizedText)
        return f"set to the values on {'the other text' if is_text else 'another input'}"

    def _check(
        self, config: Config, inputs: Inputs, place: Selected | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        wrong: list[str] = []
        other = checked_input(config, self.inputs, "the other text", wrong, tokenizer)
        problems += wrong
        if wrong:
            return
        if len(other.real) != len(inputs.real):
            problems.append(
                f"the text has {len(inputs.real)} tokens and the other text {len(other.real)}: values are set token by"
                " token, give a text of as many"
            )
        elif np.array_equal(other.given, inputs.given) and (
            other.pixels is None or np.array_equal(other.pixels, inputs.pixels)
        ):
            problems.append("the text and the other text are the same for the model: give another")

    def _values(self, model: Transformer, inputs: Inputs, place: Selected, tokenizer: "Tokenizer | None") -> np.ndarray:
        other = checked_input(model.config, self.inputs, "the other text", [], tokenizer)
        return _values_at(model, other, place)[place.entries]


@final
@dataclass(frozen=True, eq=False)
class SteeringVector(ValueSource):
    """The direction from one text to another, at their last tokens in the same stream: steering.

    An encoder with a decoder encodes both texts, and its decoder has only the token that it begins with.

    Args:
        towards: the text that it leads to.
        away: the text that it leads away from.
        strength: a factor.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> steer = duat.edits.Stream(3).steer(duat.edits.SteeringVector("import os", "class Box:", strength=2))
        >>> duat.intervene(model, "x = self.", steer).effects[0].edit
        "stream 3, every token: steered by 2 x the direction from 'class Box:' to 'import os'"
    """

    towards: str
    away: str
    strength: float | int = 1.0

    _verb = STEERED

    def _how(self) -> str:
        return f"steered by {self.strength:g} x the direction from {quoted(self.away)} to {quoted(self.towards)}"

    def _check(
        self, config: Config, inputs: Inputs, place: Selected | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        if place is not None and place.units is not None:
            problems.append(f"{place.name} isn't a stream: steer a stream along the direction between two texts")
        if not np.isfinite(self.strength):
            problems.append(f"the strength {self.strength} isn't finite: give a number")
        leaves, other = jax.tree.leaves(self.towards), jax.tree.leaves(self.away)
        if len(leaves) == len(other) and all(map(np.array_equal, leaves, other)):
            problems.append(
                f"the texts towards and away are both {quoted(self.towards)}: their direction is zero, give two texts"
            )
        for name, text in (("towards", self.towards), ("away", self.away)):
            checked_input(config, text, f"the text {name}", problems, tokenizer)

    def _values(self, model: Transformer, inputs: Inputs, place: Selected, tokenizer: "Tokenizer | None") -> np.ndarray:
        # Of an encoder with a decoder, at the last token of the one whose stream is steered.
        first = inputs.real[place.tokens[-1]] == ENCODER
        towards, away = (
            _values_at(model, checked, place)[np.flatnonzero((checked.real == ENCODER) == first)[-1]].astype(np.float64)
            for text in (self.towards, self.away)
            for checked in [checked_input(model.config, text, "the text", [], tokenizer)]
        )
        if np.array_equal(towards, away):
            texts = f"{quoted(self.towards)} and {quoted(self.away)}"
            raise InvalidInput(
                f"{place.name}: the direction is zero: {texts} have the same values at their last token: give other"
                " texts, or a later stream"
            )
        return self.strength * (towards - away)


@final
@dataclass(frozen=True, eq=False)
class MeanEmbedding(ValueSource):
    """The vocabulary's mean embedding, with the token's own position: a token is there and says nothing.

    Example:
        >>> import duat_jax as duat
        >>> off = duat.edits.Stream(0, tokens=1).set(duat.edits.MeanEmbedding())
        >>> duat.intervene(duat.load(), "for i in", off).effects[0].edit
        "stream 0, token 1, ' i': set to the vocabulary's mean embedding"
    """

    _verb = SET

    def _how(self) -> str:
        return "set to the vocabulary's mean embedding"

    def _check(
        self, config: Config, inputs: Inputs, place: Selected | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        if place is not None and place.mark.site != sites.stream(0):
            problems.append(f"{place.name} isn't the first stream: set tokens of stream 0 to the mean embedding")
        before = 0 if config.beside is None else config.beside.tokens
        if config.image is not None or (place is not None and min(place.tokens) < before):
            problems.append("an image has no vocabulary, and so no mean embedding: set its patches to numbers")

    def _values(self, model: Transformer, inputs: Inputs, place: Selected, tokenizer: "Tokenizer | None") -> np.ndarray:
        text = _padded(model, inputs)
        return on_host(_embedded(model, Reference(text, np.ones_like(text.real))))[place.entries]


@final
@dataclass(frozen=True, eq=False)
class HeadMove(ValueSource):
    """Values that heads move to a token from another one, times a factor; with the factor −1 they are taken away.

    `factor · P_ts v_s`, with the attention pattern and the value of the run as it is.

    Args:
        source: the token that they come from; negative counts from the end.
        factor: the factor.

    Example:
        >>> import duat_jax as duat
        >>> off = duat.edits.Heads(1, 0, tokens=2).steer(duat.edits.HeadMove(1))
        >>> duat.intervene(duat.load(), "for i in", off).effects[0].edit
        "layer 1, head 0, token 2, ' in': without what comes from token 1"
    """

    source: int
    factor: float | int = -1.0

    _verb = STEERED

    def _how(self) -> str:
        comes = f"what comes from token {self.source}"
        return f"without {comes}" if self.factor == -1 else f"steered by {self.factor:g} x {comes}"

    def _check(
        self, config: Config, inputs: Inputs, place: Selected | None, tokenizer: "Tokenizer | None", problems: list[str]
    ) -> None:
        tokens, source = len(inputs.real), whole_number(self.source)
        if place is None:
            return
        if place.mark.site.key.name not in (sites.HEADS, MIXED):
            problems.append(f"{place.name} moves nothing from token to token: edit heads by what they move")
        elif config.marks is not None:
            problems.append(
                f"{place.name}: the patterns of a model that PyTorch's code computes aren't known: edit all that the"
                " head carries to a token"
            )
        elif source is None or not -tokens <= source < tokens:
            problems.append(f"token {quoted(self.source)} is none of {tokens}: give {-tokens} to {tokens - 1}")
        else:
            block = config.blocks[place.mark.site.key.layer or 0]
            seen = attention_mask(tokens, causal=block.causal, window=block.window)
            if blind := [] if seen is None else [token for token in place.tokens if not seen[token, source]]:
                problems.append(f"{place.name}: token {blind[0]} doesn't see token {source}, so nothing comes from it")
        if not np.isfinite(self.factor):
            problems.append(f"the factor {self.factor} isn't finite: give a number")

    def _values(self, model: Transformer, inputs: Inputs, place: Selected, tokenizer: "Tokenizer | None") -> np.ndarray:
        (slots,) = slots_of(model.config, model.config.layers, [place])
        with jax.default_matmul_precision("highest"):
            moved = _moved(model, _padded(model, inputs), slots, np.int32(self.source % len(inputs.real)))
        return self.factor * on_host(moved)[place.entries]


def _padded(model: Transformer, inputs: Inputs) -> Inputs:
    """Return an input, padded."""
    return padded(inputs, bucket(len(inputs.real), model.config.positions))


def _values_at(model: Transformer, inputs: Inputs, place: Selected) -> np.ndarray:
    """Return the values on an input at an edit's mark, `[tokens, *shape]`, padded."""
    (slots,) = slots_of(model.config, model.config.layers, [place])
    with jax.default_matmul_precision("highest"):
        return on_host(_seen(model, _padded(model, inputs), slots))


def _recorded(model: Transformer, inputs: Inputs) -> Recording:
    """Return the values of all marks on an input."""

    def states(x: Array) -> Array:
        return forward_from(model, x, jnp.asarray(inputs.real), None).at(None)

    return record_kinds(states, inputs.embedded(model), (*KINDS, marks.STREAM, marks.POINT))


@stored_program
def _seen(model: Transformer, inputs: Inputs, slots: Slots) -> Array:
    """Return the values on an input at the mark of the first slot, `[tokens, *shape]`."""
    return slots.at_slots(_recorded(model, inputs).seen, jnp.asarray(inputs.real))[0]


@stored_program
def _embedded(model: Transformer, reference: Reference) -> Array:
    """Return the embeddings of a reference."""
    return embedded(model, reference)


@stored_program
def _moved(model: Transformer, inputs: Inputs, slots: Slots, source: Int[Array, ""]) -> Array:
    """Return what each head of the first slot moves to each token from one, `[tokens, heads, head_features]`."""
    recording = _recorded(model, inputs)

    def moved(layer: int, scope: tuple[str, ...]) -> Array:
        block: Any = model.stack.blocks[layer]
        pattern = pattern_of(block, recording, scope, inputs.real)[:, :, source]
        values = point_of(recording, scope, sites.VALUES)[source]
        return pattern.T[:, :, None] * jnp.repeat(values, len(pattern) // len(values), 0)

    return jnp.stack([moved(site.key.layer or 0, site.key.scope) for site in slots.sites])[slots.numbers[0]]
