"""The vocabulary of a tokenizer: each token's label, and the token that a text names."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from duat_jax.errors import InvalidInput
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.tokenizer import one_error
from duat_jax.models.vocabulary.spelling import spelling_of
from duat_jax.models.vocabulary.token import Token, naming, quoted_label
from duat_jax.models.vocabulary.token_bytes import as_text
from duat_jax.models.vocabulary.visible import read_visible, visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_PIECES = 8
"""The largest number of pieces of a text that a message names."""

KEPT = 8
"""The number of tokenizers whose labels are kept."""


class Vocabulary:
    """The tokens of a tokenizer by their ids, and by the texts that name them.

    A text names the first token of these:

    1. the token with this text: `" x"` begins with a space, and `"x"` doesn't;
    2. the token with this name in the vocabulary, such as `▁x`, `Ġx` or `<0x0A>`;
    3. of `#` and a number the token with this id;
    4. the token that is shown so, such as `·x` or `⏎`;
    5. the token with this text as the tokenizer normalises it, such as `paris` for `Paris`;
    6. the only token of the text at the beginning of another one, such as `▁hello` for `hello` where no token has the
       text `hello`.

    A token's label is the first of its text, its name and its id that names it by the first three rules. So no two
    tokens have one label, and each label names its token.

    Args:
        tokenizer: the tokenizer.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer, self._tokens = tokenizer, dict[int, Token]()
        with one_error("the tokenizer can't say what its tokens are", InvalidInput):
            self._spelling = spelling_of(tokenizer)
            self._added = frozenset(tokenizer.get_added_tokens_decoder())

    def tokens(self, ids: Iterable[int]) -> tuple[Token, ...]:
        """Return tokens by their ids."""
        whole_numbers = [int(token) for token in ids]
        if self._tokens.keys() >= set(whole_numbers):
            return tuple(self._tokens[token] for token in whole_numbers)
        with one_error("the tokenizer can't say what its tokens are", InvalidInput):
            return tuple(map(self._token, whole_numbers))

    def find(self, text: str, what: str) -> int:
        """Return the id of the token that a text names."""
        with one_error(f"the tokenizer can't split the {what}", InvalidInput):
            token = self._as_shown(text)
            if token is None:
                token = self._with_text(self._normalised(text))
            if token is not None:
                return token
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            if len(ids) == 1 and self._reads(ids[0], text):
                return ids[0]
            problem = self._problem(text, ids)
        raise InvalidInput(f"the {what} {quoted(text)} {problem}")

    def _problem(self, text: str, ids: list[int]) -> str:
        """Return the reason why a text names no token, and what to write instead."""
        pieces = ", ".join(quoted_label(self._token(i)) for i in ids[:SHOWN_PIECES]) or "nothing"
        named = self._tokenizer.token_to_id(text)
        hint = "" if named is None else f"; the token with this name is {quoted_label(self._token(named))}"
        if len(ids) == 1:
            return f"is no token: it would be read as the unknown one, {pieces}{hint}"
        more = ", …" if len(ids) > SHOWN_PIECES else ""
        return (
            f"is not one token but {len(ids)} ({pieces}{more}): give one of its tokens, and mind that a leading space"
            f" belongs to a token{hint}"
        )

    def _token(self, token: int) -> Token:
        """Return a token, its label and display forms checked by looking them up."""
        if token not in self._tokens:
            data = self._data(token)
            label = naming(token, self._named, (as_text(data), self._tokenizer.id_to_token(token) or ""))
            shown, written = (
                naming(token, self._as_shown, (visible(label, spaces=s), visible(label, spaces=s, signs=False)))
                for s in (True, False)
            )
            self._tokens[token] = Token(label, token, data, shown, written)
        return self._tokens[token]

    def _data(self, token: int) -> bytes:
        """Return the bytes of a token's text, none if it has no name."""
        name = self._tokenizer.id_to_token(token)
        return b"" if name is None else self._spelling.data(name, token in self._added)

    def _with_text(self, text: str) -> int | None:
        ids = map(self._tokenizer.token_to_id, self._spelling.names(text))
        return next((token for token in ids if token is not None and as_text(self._data(token)) == text), None)

    def _named(self, text: str) -> int | None:
        """Return the token that a text names by its text, its name or its id."""
        token = self._with_text(text)
        if token is None and self._spelling.is_name(text):
            token = self._tokenizer.token_to_id(text)
        number = re.fullmatch(r"#+(\d{1,9})", text)
        return int(number[1]) if token is None and number else token

    def _as_shown(self, text: str) -> int | None:
        token = self._named(text)
        return self._named(read_visible(text)) if token is None else token

    def _normalised(self, text: str) -> str:
        """Return a text as the tokenizer normalises it, without the space that it puts before a text."""
        normalizer, mark = self._tokenizer.normalizer, self._spelling.mark
        written = text if normalizer is None else normalizer.normalize_str(text)
        written = written.replace(mark, " ") if mark else written
        spaces, given = (len(each) - len(each.lstrip(" ")) for each in (written, text))
        return written[1:] if spaces == given + 1 else written

    def _reads(self, token: int, text: str) -> bool:
        """Return whether a token's text is the given one, but for normalisation and spaces around it."""
        decoded = self._tokenizer.decode([token], skip_special_tokens=False)
        return decoded.strip() == self._normalised(text).strip()


def find_token(tokenizer: "Tokenizer", text: str, what: str) -> int:
    """Return the id of the token that a text names, as in `Vocabulary.find`."""
    return vocabulary_of(tokenizer).find(text, what)


@lru_cache(maxsize=KEPT)
def _kept(tokenizer: "Tokenizer", size: int) -> Vocabulary:
    return Vocabulary(tokenizer)


def vocabulary_of(tokenizer: "Tokenizer") -> Vocabulary:
    """Return the vocabulary of a tokenizer; the labels of a few tokenizers are kept.

    Example:
        >>> import duat_jax as duat
        >>> vocabulary = vocabulary_of(duat.load_tokenizer())
        >>> vocabulary.tokens([vocabulary.find(" in", "target"), vocabulary.find("in", "target")])
        (' in', 'in')
    """
    return _kept(tokenizer, tokenizer.get_vocab_size())
