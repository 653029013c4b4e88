"""The texts in which each neuron of a model is strongest, from a survey: its name in tables and on pages."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any, final

import msgspec
from rich.text import Text

from duat_jax.display.tables import NumberTable, token_label
from duat_jax.errors import BadText
from duat_jax.models.loader import EMBEDDED

FILE = "examples.json.gz"
"""The name of the file in a survey's directory."""

SHOWN = 3
"""The number of texts that a table or a page shows of a neuron."""

BEFORE, AFTER = 28, 12
"""The number of characters that a table shows before a token and after it."""


@final
class Example(msgspec.Struct, frozen=True, array_like=True):
    """A token at which a neuron is strong, and the text around it.

    Args:
        before: the text before the token.
        token: the token.
        after: the text after it.
        activation: the neuron's activation there.
    """

    before: str
    token: str
    after: str
    activation: float


@final
class Examples(msgspec.Struct, frozen=True):
    """The texts in which each neuron is strongest.

    Args:
        model: the hash of the model that was surveyed.
        tokens: the number of tokens in which they were looked for.
        layers: by layer, for each neuron its texts, the strongest first.
    """

    model: str
    tokens: int
    layers: dict[int, list[list[Example]]]

    def of(self, layer: int | None, neuron: int) -> list[Example]:
        """Return a neuron's texts with different tokens, the strongest first; none if the survey has none of it.

        Args:
            layer: its layer.
            neuron: its index.
        """
        neurons = self.layers.get(-1 if layer is None else layer, [])
        found = neurons[neuron] if neuron < len(neurons) else []
        first = {each.token: each for each in reversed(found)}
        return [first[token] for token in dict.fromkeys(each.token for each in found)][:SHOWN]

    def __repr__(self) -> str:
        return f"Examples({sum(map(len, self.layers.values())):,} neurons in {self.tokens:,} tokens)"


def read_examples(directory: Path | str | None = None) -> Examples:
    """Read the texts in which each neuron is strongest.

    Args:
        directory: that of a survey; the embedded model's if absent, over files of Python's standard library that it
            wasn't trained on.

    Raises:
        BadText: if there is no finished survey, or its file is damaged.

    Example:
        >>> [example.token for example in read_examples().of(5, 263)]
        ['),', '],', 'coder']
    """
    directory = EMBEDDED if directory is None else directory
    file = Path(directory) / FILE
    try:
        return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=Examples, strict=False)
    except FileNotFoundError:
        raise BadText(f"{directory} has no {FILE}: give the directory of a finished survey") from None
    except (OSError, EOFError, ValueError) as error:
        raise BadText(f"{file} can't be read ({error}): run the survey again") from None


def as_bytes(examples: Examples) -> bytes:
    """Return the content of the file.

    Args:
        examples: what it holds.

    Example:
        >>> as_bytes(Examples("", 0, {})) == as_bytes(Examples("", 0, {}))
        True
    """
    return gzip.compress(msgspec.json.encode(examples), mtime=0)  # the same examples give the same file


def table(neurons: Iterable[Any], examples: Examples) -> NumberTable:
    """Return a table of neurons and the tokens at which each is strongest.

    Args:
        neurons: each with its `term` and `neuron`; one that comes again has no second row.
        examples: of the model.
    """
    shown = NumberTable(labels=2, title=f"Where these neurons are strongest, in {examples.tokens:,} tokens")
    for column, justify in (("layer", "right"), ("neuron", "right"), ("at", "left"), ("the first of them", "left")):
        shown.add_column(column, justify=justify)
    for layer, neuron in dict.fromkeys((each.term.layer, each.neuron) for each in neurons):
        if texts := examples.of(layer, neuron):
            tokens = Text("  ".join(token_label(each.token) for each in texts))
            shown.add_row(str(layer), str(neuron), tokens, _in_its_text(texts[0]))
    return shown


def _in_its_text(example: Example) -> Text:
    before, token, after = map(token_label, (example.before, example.token, example.after))
    return Text.assemble((before[-BEFORE:], "dim"), "«", (token, "bold"), "»", (after[:AFTER], "dim"))
