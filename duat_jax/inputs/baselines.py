"""Reference inputs: other inputs, and baselines made of an input."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from duat_jax.errors import InvalidInput
from duat_jax.inputs.baseline_kinds import Baseline, name_of, named_baseline
from duat_jax.inputs.batching import padded
from duat_jax.inputs.labels import readable
from duat_jax.inputs.model_inputs import Inputs, checked_input, is_many, kind_of_input
from duat_jax.inputs.question import ask_once
from duat_jax.inputs.targets import MASKS
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config, Image, ImageBesideText
from duat_jax.models.layout import ENCODER
from duat_jax.models.targets.base import Target
from duat_jax.models.tokenizer import is_text, tokenizer_of
from duat_jax.models.vocabulary.token import quoted_label

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENS = {"mask": MASKS, "pad": ("[PAD]", "<pad>", "<|pad|>")}
"""Names in tokenizers of the tokens that a baseline consists of."""

BASELINES = {
    "mask": "a text of masks",
    "pad": "a text of padding",
    "mean": "the vocabulary's mean",
    "blur": "the blurred image",
}
"""Baselines that can be made of an input, with their labels."""

MEAN_IMAGE = "the image's mean"

SHOWN = 8
"""The largest number of tokens that a sentence lists."""


class Reference(NamedTuple):
    """A reference input, one or many of them: a pytree.

    Args:
        inputs: what the model reads.
        averaged: at which tokens the vocabulary's mean embedding stands in the place of the token's own,
            `[..., tokens]`.
    """

    inputs: Inputs
    averaged: Bool[np.ndarray, "... tokens"]

    def padded(self, length: int) -> "Reference":
        """Return the same padded on the right."""
        return Reference(padded(self.inputs, length), np.pad(self.averaged, (0, length - len(self.averaged))))


class ContrastQuestion(NamedTuple):
    """A validated question about a contrast: an input, a target, and the references of the input.

    Args:
        inputs: the input.
        target: the number, with positions counted from the input's beginning.
        others: what it is contrasted with.
        names: what each of these is, in words.
        texts: of each, whether it is a text of its own, and no baseline and no image.
        unpaired: of each, the places of the input that an alignment pairs with none of its tokens.
        notes: a sentence for each alignment that leaves tokens out.
        tokenizer: makes tokens readable; without it they are called by their numbers.
    """

    inputs: Inputs
    target: Target
    others: tuple[Reference, ...]
    names: tuple[str, ...]
    texts: tuple[bool, ...]
    unpaired: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    tokenizer: "Tokenizer | None" = None


def ask_contrast(
    model: Any,
    inputs: Any,
    reference: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    alignment: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> ContrastQuestion:
    """Validate an input, a target and references."""
    config, problems = model.config, list[str]()
    kind = kind_of_input(config)
    # An old name of a baseline beside token ids or an image is no text.
    unread = config.image is not None or (tokenizer is None and not is_text(inputs))
    tokenizer = tokenizer_of(model, tokenizer, inputs, against)
    given = [named_baseline(each) if unread else each for each in several(config, reference)]
    read = [
        each if isinstance(each, Baseline) else checked_input(config, each, f"the other {kind}", problems, tokenizer)
        for each in given
    ]
    if not read:
        problems.append(f"there is nothing to contrast with: give at least one other {kind} or baseline")
    try:
        question = ask_once(model, inputs, target, contrast, against, position, tokenizer)
    except InvalidInput as error:
        raise InvalidInput("; ".join([str(error), *problems])) from None
    inputs = question.input
    named = [
        _baseline(config, inputs, name_of(each), tokenizer, problems, ", or what it reads")
        if isinstance(each, Baseline)
        else (f"the other {kind}", as_it_is(_aligned(config, inputs, each, alignment, problems)))
        for each in read
    ]
    for name, each in named:
        if not problems and _same(inputs, each):
            problems.append(
                f"the {kind} and {name} are the same for the model: the difference is zero, and so is every part;"
                " give another"
            )
    if problems:
        raise InvalidInput("; ".join(dict.fromkeys(problems)))
    texts = tuple(config.image is None and not isinstance(each, Baseline) for each in read)
    names, references = zip(*named, strict=True)
    places, notes = zip(*(_unpaired(inputs, each, alignment, tokenizer) for each in read), strict=True)
    alignments = tuple(filter(None, notes))
    return ContrastQuestion(inputs, question.target, references, names, texts, places, alignments, tokenizer)


def several(config: Config, other: Any) -> list[Any]:
    """Return the references in an argument: those of a list, or the argument itself."""
    many = isinstance(other, list | tuple) and (
        any(isinstance(each, str | Baseline) for each in other) or len(other) == 0
    )
    return list(other) if many or is_many(config, other) else [other]


def read_pairs(written: str, name: str) -> list[tuple[int, int]]:
    """Read an alignment."""
    try:
        return [(int(place), int(token)) for place, token in (pair.split(":") for pair in written.split(","))]
    except ValueError:
        raise InvalidInput(f"{name} {written!r} must be pairs of token indices, such as 0:0,1:2") from None


def as_it_is(inputs: Inputs) -> Reference:
    """Return an input as a reference."""
    return Reference(inputs, np.zeros(inputs.real.shape, bool))


def baseline_of(config: Config, inputs: Inputs, kind: str, tokenizer: "Tokenizer | None") -> Reference:
    """Return a baseline made of an input, or of each of many texts of one length."""
    problems: list[str] = []
    _, reference = _baseline(config, inputs, kind, tokenizer, problems)
    if problems:
        raise InvalidInput("; ".join(problems))
    return reference


def _baseline(
    config: Config, inputs: Inputs, kind: str, tokenizer: "Tokenizer | None", problems: list[str], instead: str = ""
) -> tuple[str, Reference]:
    fitting = ("blur", "mean") if config.image is not None else ("mask", "pad", "mean")
    if kind not in fitting:
        problems.append(
            f"{quoted(kind)} is no baseline of a {config.family} model: give {' or '.join(fitting)}{instead}"
        )
        return kind, as_it_is(inputs)
    if config.image is not None:
        if kind == "blur":
            return BASELINES[kind], as_it_is(inputs._replace(given=_blurred(config.image, inputs.given)))
        mean = inputs.given.mean((1, 2), keepdims=True, dtype=inputs.given.dtype)
        return MEAN_IMAGE, as_it_is(inputs._replace(given=np.broadcast_to(mean, inputs.given.shape)))
    kept = special_tokens(tokenizer) + [token for token in (config.decoder_start,) if token is not None]
    replaced = ~np.isin(inputs.given, kept)
    if config.beside is not None:  # the image stays, and so does what stands for it in the text
        replaced[: config.beside.tokens] = False
        replaced &= inputs.given != config.beside.marker
    if kind == "mean":
        return BASELINES[kind], Reference(inputs, replaced)
    tokens = [] if tokenizer is None else _known(tokenizer, TOKENS[kind])
    if not tokens:
        why = f"a {kind} token isn't known" if tokenizer is None else f"the tokenizer has no {kind} token"
        problems.append(f"{why}: give mean{instead}")
        return BASELINES[kind], as_it_is(inputs)
    return BASELINES[kind], as_it_is(inputs._replace(given=np.where(replaced, tokens[0], inputs.given)))


def special_tokens(tokenizer: "Tokenizer | None") -> list[int]:
    """Return the special tokens: beginning and end of a text, masks, and those that the tokenizer names special."""
    if tokenizer is None:
        return []
    with one_error("the tokenizer can't say which tokens are special", InvalidInput):
        named = [number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special]
        return [*named, *tokenizer.encode("").ids, *_known(tokenizer, TOKENS["mask"])]


def _known(tokenizer: "Tokenizer", names: tuple[str, ...]) -> list[int]:
    return [token for token in map(tokenizer.token_to_id, names) if token is not None]


def _blurred(image: Image, pixels: Float[np.ndarray, "channels height width"]) -> Float[np.ndarray, "_ _ _"]:
    """Return an image blurred by a Gaussian as wide as a patch, which the image's edges cut off."""

    def weights(length: int, width: int) -> Float[np.ndarray, "length length"]:
        places = np.arange(length)
        densities = np.exp(-(((places[:, None] - places) / width) ** 2) / 2)
        return densities / densities.sum(1, keepdims=True)

    rows, columns = weights(image.height, image.patch_height), weights(image.width, image.patch_width)
    return (rows @ pixels @ columns.T).astype(pixels.dtype)


def _aligned(config: Config, text: Inputs, other: Inputs, alignment: Any, problems: list[str]) -> Inputs:
    """Return the other text as long as the given one; tokens without a pair stay as they are. An image stays itself."""
    if config.beside is not None and alignment is not None:
        problems.append("an alignment pairs the tokens of texts alone, and none beside an image: give texts of as many")
        return other
    if other.given.ndim > 1:
        return other
    tokens, other_tokens = len(text.given), len(other.given)
    if alignment is None:
        if tokens == other_tokens and not np.array_equal(text.real == ENCODER, other.real == ENCODER):
            here, there = ((each.real == ENCODER).sum() for each in (text, other))
            problems.append(
                f"the encoder reads {here} tokens of the text and {there} of the other text: give texts of as many"
            )
        if tokens == other_tokens or not other_tokens:  # of what can't be read it has been said
            if (
                config.beside is not None
                and not problems
                and _parted(config.beside, text) != _parted(config.beside, other)
            ):
                problems.append(
                    "the image, or the end of the text, stands at another token in the other one: give texts in which"
                    " both stand at the same"
                )
            return other
        problems.append(
            f"the text has {tokens} tokens and the other text {other_tokens}: give texts of as many tokens, or an"
            " alignment of pairs, which token of the other stands in the place of which one:"
            " alignment=[(0, 0), (1, 2)] (--align 0:0,1:2, or align in a line of a file)"
        )
        return other
    try:
        pairs = np.asarray(alignment)
    except (ValueError, TypeError, OverflowError):
        pairs = np.asarray(None)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        problems.append(f"the alignment must be pairs of whole numbers, not {quoted(alignment)}")
        return other
    outside = ((pairs < 0) | (pairs >= (tokens, other_tokens))).any(1)
    if outside.any():
        problems.append(
            f"the alignment's pair {pairs[outside][0].tolist()} is outside of the texts'"
            f" {tokens} and {other_tokens} tokens"
        )
    if len(np.unique(pairs[:, 0])) < len(pairs):
        problems.append("the alignment puts two tokens in one's place: name each of the text's tokens once")
    if problems:
        return other
    ids = text.given.copy()
    ids[pairs[:, 0]] = other.given[pairs[:, 1]]
    return text._replace(given=ids)


def _parted(beside: ImageBesideText, inputs: Inputs) -> list[int]:
    """Return the tokens of a text at which its image stands, or at which it is read."""
    return np.flatnonzero(inputs.given[beside.tokens :] == beside.marker).tolist()


def _unpaired(
    text: Inputs, other: Inputs | Baseline, alignment: Any, tokenizer: "Tokenizer | None"
) -> tuple[tuple[int, ...], str]:
    """Return the places of a text that an alignment pairs with no token of the other one, and a sentence about both."""
    if alignment is None or isinstance(other, Baseline) or other.given.ndim > 1:
        return (), ""
    pairs = np.asarray(alignment)

    def without(inputs: Inputs, paired: np.ndarray) -> tuple[list[int], str]:
        places = np.setdiff1d(np.arange(len(inputs.given)), paired).tolist()
        labels = readable(tokenizer, inputs.given.tolist())
        more = len(places) - SHOWN
        listed = ", ".join(f"{place} {quoted_label(labels[place])}" for place in places[:SHOWN])
        return places, f"token{'s' * (len(places) > 1)} {listed}" + (f" and {more} more" if more > 0 else "")

    places, kept = without(text, pairs[:, 0])
    left_out, dropped = without(other, pairs[:, 1])
    sentences = [f"the text's {kept}, which the aligned text has too"] * bool(places)
    sentences += [f"the other text's {dropped}, not read"] * bool(left_out)
    return tuple(places), f"Aligned, paired with nothing: {'; '.join(sentences)}." if sentences else ""


def _same(inputs: Inputs, reference: Reference) -> bool:
    same = [
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(inputs), jax.tree.leaves(reference.inputs), strict=True)
    ]
    return all(same) and not reference.averaged.any()
