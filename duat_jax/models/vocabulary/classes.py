"""The classes of a classifier: each one's label, and the class that a text names."""

from collections.abc import Sequence

from duat_jax.models.vocabulary.token import Token, naming
from duat_jax.models.vocabulary.visible import read_visible, visible


def find_class(names: Sequence[str], text: str) -> int | None:
    """Return the index of the class that a text names, or `None` if it names none.

    Example:
        >>> find_class(["no", "yes"], "yes"), find_class(["no", "yes"], "0"), find_class(["no", "no"], "no")
        (1, 0, None)
    """
    # It is the only class with this name; else the class of this number, which may stand after `#`; else the only class
    # that is shown so.
    index = _named(names, text)
    return _named(names, read_visible(text)) if index is None else index


def _named(names: Sequence[str], text: str) -> int | None:
    """Return the index of the class with a name or a number."""
    if names.count(text) == 1:
        return names.index(text)
    number = text.lstrip("#")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else None


def class_label(names: Sequence[str], index: int) -> Token:
    """Return the label of a class: its name, or its number where the name doesn't name it.

    Example:
        >>> class_label(["no", "yes"], 1), class_label(["no", "no"], 1), class_label([], 1)
        ('yes', '1', '1')
    """
    name = names[index] if names else ""
    label = naming(index, lambda text: _named(names, text), (name, str(index)))
    shown, written = (
        naming(
            index,
            lambda text: find_class(names, text),
            (visible(label, spaces=s), visible(label, spaces=s, signs=False)),
        )
        for s in (True, False)
    )
    return Token(label, index, label.encode(), shown, written)
