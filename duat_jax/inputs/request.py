"""Validation of a request: inputs and targets, checked before anything is computed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
from jaxtyping import Bool, Int

from duat_jax.errors import BadText
from duat_jax.models.checkpoint.problems import shown
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config
from duat_jax.models.targets.base import FITTING, Target
from duat_jax.models.targets.classes import Class
from duat_jax.models.targets.logit import Logit
from duat_jax.models.targets.similarity import Similarity
from duat_jax.models.validation import Places, checked_ids, checked_pixels, checked_segments

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_PIECES, SHOWN_MASKS = 8, 8

MASKS = ("[MASK]", "<mask>")
"""What tokenizers call the token in whose place a masked language model says another."""


@final
@dataclass(frozen=True, eq=False)
class Text:
    """A text of several segments, such as a pair of sentences.

    Args:
        ids: token ids, `[tokens]`.
        segments: of each token the segment, `[tokens]`; all of segment 0 if absent.

    Example:
        >>> import duat_jax as duat
        >>> pair = duat.load_tokenizer().encode("import os", "import sys")
        >>> Text(pair.ids, pair.type_ids).segments
        [0, 0, 1, 1]
    """

    ids: Any
    segments: Any = None


class Inputs(NamedTuple):
    """What a model reads, one or many, in the last case padded: a pytree.

    Args:
        given: token ids, `[..., tokens]`; or pixels, `[..., channels, height, width]`.
        real: true for real tokens, `[..., tokens]`.
        segments: of each token the segment, `[..., tokens]`; absent if the model has none.
    """

    given: Any
    real: Bool[np.ndarray, "... tokens"]
    segments: Int[np.ndarray, "... tokens"] | None


class Request(NamedTuple):
    """Inputs and targets that a model can take: of each text or image, each target.

    Args:
        inputs: each text or image.
        targets: of each, its targets, with positions counted from its beginning.
        many_inputs: whether they came as a list.
        many_targets: whether targets came as a list.
    """

    inputs: tuple[Inputs, ...]
    targets: tuple[tuple[Target, ...], ...]
    many_inputs: bool
    many_targets: bool


def check(
    config: Config,
    given: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> Request:
    """Validate inputs and targets.

    Args:
        config: the model's parts.
        given: token ids of a text, a `Text`, or an image's pixels; or many of them.
        target: the token or class whose logit is explained, a target, or many of both; `None` for the most probable.
        contrast: the one whose logit is subtracted, or `None`.
        against: for an encoder, token ids of the other text, or `None`.
        position: at which token the logit is read; negative counts from the end, `None` is the last, or the only mask.
        tokenizer: knows the mask.

    Returns:
        The same, as whole numbers within the model's range.

    Raises:
        BadText: naming everything that is wrong at once.

    Example:
        >>> from duat_jax.models.loader import load_config
        >>> question = check(load_config(), [5, 6, 7], 8)
        >>> question.inputs[0].given, question.targets[0][0].position
        (array([5, 6, 7]), 2)
    """
    problems: list[str] = []
    kind = "text" if config.image is None else "image"
    many_inputs = is_many(config, given)
    names = [f"{kind} {i}" for i in range(len(given))] if many_inputs else [f"the {kind}"]
    inputs = [
        checked_input(config, one, name, problems)
        for one, name in zip(given if many_inputs else [given], names, strict=True)
    ]
    many_targets = isinstance(target, list | tuple)
    asked = _targets(config, list(target) if many_targets else [target], contrast, against, position, problems)
    mask = _mask(config, tokenizer)
    targets = tuple(
        tuple(_checked(each, config, _places(config, one, name, mask), name, problems) for each in asked)
        for one, name in zip(inputs, names, strict=True)
    )
    if many_targets and not target:
        problems.append("there is no target: give at least one")
    if problems:
        raise BadText("; ".join(dict.fromkeys(problems)))
    return Request(tuple(inputs), targets, many_inputs, many_targets)


def check_one(
    config: Config,
    given: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> tuple[Inputs, Target]:
    """Return the one input and the one target of a question that takes no lists.

    Args:
        config: the model's parts.
        given: token ids of a text, a `Text`, or an image's pixels.
        target: as in `check`.
        contrast: as in `check`.
        against: as in `check`.
        position: as in `check`.
        tokenizer: knows the mask.

    Raises:
        BadText: if there are several, and for everything that `check` refuses.
    """
    if is_many(config, given) or isinstance(target, list | tuple):
        raise BadText("one input and one target are taken: call it once for each")
    request = check(config, given, target, contrast, against, position, tokenizer)
    return request.inputs[0], request.targets[0][0]


def is_many(config: Config, given: Any) -> bool:
    """Return whether there are many texts or images: a list of them, or an array with one more axis.

    Args:
        config: the model's parts.
        given: one of them, or many.
    """
    if isinstance(given, list | tuple):
        one = given[0] if len(given) else None
        if config.image is None:
            return isinstance(one, list | tuple | Text) or getattr(one, "ndim", 0) > 0
        return getattr(one, "ndim", 0) == 3
    return getattr(given, "ndim", 0) == (2 if config.image is None else 4)


def checked_input(config: Config, given: Any, name: str, problems: list[str]) -> Inputs:
    """Return one text or image as a model reads it.

    Args:
        config: the model's parts.
        given: token ids of a text, a `Text`, or an image's pixels.
        name: which one it is, for the message.
        problems: where a problem is added.
    """
    if config.image is not None:
        pixels = checked_pixels(config.image, given, name, problems)
        return Inputs(pixels, np.ones(config.positions, bool), None)
    text = given if isinstance(given, Text) else Text(given)
    ids = checked_ids(config, text.ids, name, problems)
    if len(ids) and ids[-1] == config.head.filler:
        problems.append(f"{name} ends with token {ids[-1]}, which fills texts up and says nothing here: leave it out")
    return Inputs(ids, np.ones(len(ids), bool), checked_segments(config, text.segments, len(ids), name, problems))


def _mask(config: Config, tokenizer: "Tokenizer | None") -> tuple[int, str] | None:
    """Return the token in whose place a masked language model says another, and its name."""
    if config.head.kind != "masked token" or tokenizer is None:
        return None
    found = ((tokenizer.token_to_id(name), name) for name in MASKS)
    return next(((token, name) for token, name in found if token is not None), None)


def _places(config: Config, one: Inputs, name: str, mask: tuple[int, str] | None) -> Places:
    """Return where a text can be read; a masked language model is read at the only mask."""
    tokens = len(one.real)
    if config.head.kind != "masked token":
        return Places(tokens, -1)
    if mask is None:
        return Places(tokens, "which token is the mask isn't known without its tokenizer: give a position")
    places = np.flatnonzero(one.given == mask[0])
    if len(places) == 1:
        return Places(tokens, int(places[0]))
    if not len(places):
        return Places(tokens, f"{name} has no {mask[1]}: write one where a token is to be said, or give a position")
    some = ", ".join(map(str, places[:SHOWN_MASKS])) + (", …" if len(places) > SHOWN_MASKS else "")
    return Places(tokens, f"{name} has {len(places)} {mask[1]}, at {some}: give the position of one")


def _targets(
    config: Config, asked: list, contrast: Any, against: Any, position: Any, problems: list[str]
) -> list[Target]:
    """Return every target as an object: what comes without one is a logit, or for an encoder a similarity."""
    kind = config.head.kind
    plain = [one for one in asked if not isinstance(one, Target)]
    if len(plain) < len(asked) and any(one is not None for one in (contrast, against, position)):
        problems.append("contrast, against and position belong in the target object: leave them out beside one")
    unfit = {
        "classes": position is not None or against is not None,
        "hidden": contrast is not None
        or position is not None
        or against is None
        or any(one is not None for one in plain),
    }
    if plain and unfit.get(kind, against is not None):
        problems.append(f"a {config.family} model {FITTING[kind]}")

    def made(one: Any) -> Target | None:
        if isinstance(one, Target):
            return one
        if kind == "classes":
            return Class(one, contrast)
        if kind != "hidden":
            return Logit(one, contrast, position)
        return None if against is None else Similarity(against)

    return [found for found in map(made, asked) if found is not None]


def _checked(target: Target, config: Config, places: Places, name: str, problems: list[str]) -> Target:
    found: list[str] = []
    missing = target.missing(config)
    checked = target if missing else target.checked(config, places, found)
    # What is wrong with a target is said once, but a position may be outside of some texts only.
    problems += [missing] if missing else [problem.replace("the text's", f"{name}'s") for problem in found]
    return checked


def encode(tokenizer: "Tokenizer", text: str, what: str) -> list[int]:
    """Return a text's token ids, with a model's special tokens around them.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        what: what it is, for the message.

    Raises:
        BadText: if it has no tokens, or the tokenizer can't split it.
    """
    with one_error(f"the tokenizer can't split {what}", BadText):
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        ids = tokenizer.encode(text).ids
    if not plain:
        raise BadText(f"{what} is empty: give at least one token")
    return ids


def encode_pair(tokenizer: "Tokenizer", text: str, pair: str, config: Config) -> Text:
    """Return a pair of texts as one, with a model's special tokens around them and of each token the segment.

    Args:
        tokenizer: the model's tokenizer.
        text: the first text.
        pair: the second one.
        config: the model's parts; one with a single segment is given none.

    Raises:
        BadText: if one of them has no tokens, or the tokenizer can't split it.
    """
    for part, what in ((text, "the text"), (pair, "the pair's second text")):
        encode(tokenizer, part, what)
    with one_error("the tokenizer can't split the pair", BadText):
        encoding = tokenizer.encode(text, pair)
        return Text(encoding.ids, encoding.type_ids if config.segments > 1 else None)


def encode_token(tokenizer: "Tokenizer", text: str, what: str) -> int:
    """Return the token that a text is; a text that isn't one token may be a token's own name.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        what: what it is, for the message.

    Raises:
        BadText: if it is neither.
    """
    with one_error(f"the tokenizer can't split the {what}", BadText):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if len(ids) == 1:
            return ids[0]
        if (token := tokenizer.token_to_id(text)) is not None:
            return token
        pieces = ", ".join(repr(tokenizer.decode([i])) for i in ids[:SHOWN_PIECES]) or "nothing"
    more = ", …" if len(ids) > SHOWN_PIECES else ""
    raise BadText(
        f"the {what} {shown(text)} is not one token but {len(ids)} ({pieces}{more}): give one of its tokens, and mind"
        " that a leading space belongs to a token"
    )
