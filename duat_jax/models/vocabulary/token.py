"""A token, or a class: its id, its bytes and the label that names it."""

from collections.abc import Callable
from itertools import chain, count
from typing import Any, final

from duat_jax.kinds import kept_as
from duat_jax.models.vocabulary.visible import visible


@kept_as("token")
@final
class Token(str):
    """A token of a model, or a class. It is a string, its label, which no other token of the same tokenizer has.

    The label of a token is its text, with the space that it begins with, wherever the text names this token; else its
    name in the vocabulary, or `#` and its id. That of a class is its name, or its index. As a target, the label,
    `shown` and `written` name this token again.

    Args:
        label: the label.
        id: the token's id, or the index of the class.
        data: the bytes of its text; of a token without text none.
        shown: the label for tables, with spaces at its ends and control characters visible; the label if absent.
        written: the label for sentences, with control characters visible; the label if absent.

    Example:
        >>> token = Token(" i", 5, b" i", shown="·i")
        >>> token, token.id, token.shown, token.begins_with_space
        (' i', 5, '·i', True)
    """

    id: int
    data: bytes
    shown: str
    written: str

    def __new__(
        cls, label: str, id: int, data: bytes = b"", shown: str | None = None, written: str | None = None
    ) -> "Token":
        """Return the token."""
        token = super().__new__(cls, label)
        token.id, token.data = id, data
        token.shown, token.written = label if shown is None else shown, label if written is None else written
        return token

    def _asdict(self) -> dict[str, Any]:
        """Return the arguments by their names."""
        return {"label": str(self), **vars(self)}

    def __getnewargs__(self) -> tuple[Any, ...]:
        """Return the arguments from which a copy is made."""
        return tuple(self._asdict().values())

    @property
    def begins_with_space(self) -> bool:
        """Whether its text begins with a space."""
        return self.data.startswith(b" ")


def naming(id: int, find: Callable[[str], int | None], labels: tuple[str, ...]) -> str:
    """Return the first label that names a token or a class; `#` and its id does at last."""
    numbers = ("#" * signs + str(id) for signs in count(1))
    return next(label for label in chain(labels, numbers) if label and find(label) == id)


def in_quotes(text: str) -> str:
    """Return a text in quotation marks, without escapes: what stands between them is the text itself.

    Example:
        >>> print(in_quotes(" a"), in_quotes("don't"))
        ' a' "don't"
    """
    mark = '"' if "'" in text else "'"
    return f"{mark}{text}{mark}"


def written_label(label: str) -> str:
    """Return a token, or the name of a class or a patch, as plain text for a sentence."""
    return label.written if isinstance(label, Token) else label


def quoted_label(label: str) -> str:
    """Return a token, or the name of a class or a patch, in quotation marks."""
    return in_quotes(label.written) if isinstance(label, Token) else repr(label)


def token_label(token: str) -> str:
    """Return a token with its white space visible."""
    return token.shown if isinstance(token, Token) else visible(token, spaces=True)


def quoted_token(token: str) -> str:
    """Return a token in quotation marks with its white space visible."""
    return in_quotes(token_label(token))
