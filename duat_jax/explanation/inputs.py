"""What is asked of a model, checked before anything is computed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int

from duat_jax.errors import BadText
from duat_jax.models.asked import checked_ids, whole
from duat_jax.models.checkpoint.problems import shown
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.config import Config
from duat_jax.models.target.base import Target
from duat_jax.models.target.logit import Logit
from duat_jax.models.target.similarity import Similarity

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_PIECES = 8


class Question(NamedTuple):
    """What a model can be asked to explain: of each text, each target.

    Args:
        texts: token ids of each text, `[tokens]`.
        targets: of each text, its targets, with positions counted from its beginning.
        many_texts: whether texts came as a list.
        many_targets: whether targets came as a list.
    """

    texts: tuple[Int[np.ndarray, "_"], ...]
    targets: tuple[tuple[Target, ...], ...]
    many_texts: bool
    many_targets: bool


def check(config: Config, ids: Any, target: Any, contrast: Any, against: Any, position: Any) -> Question:
    """Return a question that a model can answer.

    Args:
        config: the model's parts.
        ids: token ids of the text, or of each of many.
        target: token id whose logit is explained, a target, or many of both; `None` for the most probable token.
        contrast: token id whose logit is subtracted, or `None`.
        against: for an encoder, token ids of the other text, or `None`.
        position: at which token the logit is read; negative counts from the end.

    Returns:
        The same, as whole numbers within the model's range.

    Raises:
        BadText: naming everything that is wrong at once.

    Example:
        >>> from duat_jax.models.loader import load_config
        >>> question = check(load_config(), [5, 6, 7], 8, None, None, -1)
        >>> question.texts, question.targets[0][0].position
        ((array([5, 6, 7]),), 2)
    """
    problems: list[str] = []
    many_texts = _is_many(ids)
    names = [f"text {i}" for i in range(len(ids))] if many_texts else ["the text"]
    texts = [
        checked_ids(config, row, name, problems) for row, name in zip(ids if many_texts else [ids], names, strict=True)
    ]
    many_targets = isinstance(target, list | tuple)
    asked = _targets(config, list(target) if many_targets else [target], contrast, against, position, problems)
    targets = tuple(
        tuple(_checked(one, config, len(text), i, many_texts, problems) for one in asked)
        for i, text in enumerate(texts)
    )
    if many_targets and not target:
        problems.append("there is no target: give at least one")
    if problems:
        raise BadText("; ".join(dict.fromkeys(problems)))
    return Question(tuple(texts), targets, many_texts, many_targets)


def _is_many(ids: Any) -> bool:
    """Return whether there are many texts: a list of rows, or a table."""
    if isinstance(ids, list | tuple):
        return len(ids) > 0 and (isinstance(ids[0], list | tuple) or np.ndim(ids[0]) > 0)
    return getattr(ids, "ndim", 1) == 2


def _targets(
    config: Config, asked: list, contrast: Any, against: Any, position: Any, problems: list[str]
) -> list[Target]:
    """Return every target as an object: what comes without one is a logit, or for an encoder a similarity."""
    language = config.head.kind != "hidden"
    plain = [one for one in asked if not isinstance(one, Target)]
    elsewhere = contrast is not None or whole(position) != -1
    if len(plain) < len(asked) and (elsewhere or against is not None):
        problems.append("contrast, against and position belong in the target object: leave them out beside one")
    if language:
        unfit = Similarity(()).missing(config) if against is not None else None
    else:
        says_something = elsewhere or against is None or any(one is not None for one in plain)
        unfit = Logit().missing(config) if says_something else None
    if plain and unfit:
        problems.append(unfit)

    def made(one: Any) -> Target | None:
        if isinstance(one, Target):
            return one
        if language:
            return Logit(one, contrast, position)
        return None if against is None else Similarity(against)

    return [found for found in map(made, asked) if found is not None]


def _checked(target: Target, config: Config, tokens: int, index: int, many_texts: bool, problems: list[str]) -> Target:
    found: list[str] = []
    missing = target.missing(config)
    checked = target if missing else target.checked(config, tokens, found)
    # What is wrong with a target is said once, but a position may be outside of some texts only.
    problems += (
        [missing] if missing else [p.replace("the text's", f"text {index}'s") if many_texts else p for p in found]
    )
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


def readable(tokenizer: "Tokenizer | None", tokens: Iterable[int]) -> tuple[str, ...]:
    """Return what each token says.

    Args:
        tokenizer: the model's tokenizer; without it the tokens' numbers are returned.
        tokens: their ids.

    Raises:
        BadText: if the tokenizer can't say it.
    """
    if tokenizer is None:
        return tuple(map(str, tokens))
    with one_error("the tokenizer can't say what its tokens are", BadText):
        return tuple(_readable(tokenizer, token) for token in tokens)


def _readable(tokenizer: "Tokenizer", token: int) -> str:
    name = tokenizer.id_to_token(token)
    if name is None:
        return str(token)
    # A byte of a split character decodes to nothing printable: then the tokenizer's own name is shown.
    text = tokenizer.decode([token], skip_special_tokens=False)
    return text if text and "\ufffd" not in text else name


def readable_text(tokenizer: "Tokenizer | None", ids: Int[np.ndarray, "tokens"]) -> str:
    """Return what a row of tokens says.

    Args:
        tokenizer: the model's tokenizer; without it the tokens' numbers are returned.
        ids: token ids, `[tokens]`.

    Raises:
        BadText: if the tokenizer can't say it.
    """
    if tokenizer is None:
        return " ".join(map(str, ids))
    with one_error("the tokenizer can't say what its tokens are", BadText):
        return tokenizer.decode([int(i) for i in ids])
