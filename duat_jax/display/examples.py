"""The texts in which each neuron of a model is strongest, from a survey: its name in tables and on pages."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from duat_jax.deprecation import renamed_fields
from duat_jax.display.tables import NumberTable
from duat_jax.errors import InvalidInput
from duat_jax.files import path_of
from duat_jax.models.checkpoint.place import EMBEDDED
from duat_jax.models.config import Config
from duat_jax.models.vocabulary.token import token_label

FILE = "examples.json.gz"
"""The name of the file in a survey's directory."""

SHOWN = 3
"""The number of texts that a table or a page shows of a neuron."""

BEFORE, TOKEN, AFTER = 28, 16, 12
"""The number of characters that a table shows before a token, of it, and after it."""


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
@renamed_fields(of="find_texts")
class Examples(msgspec.Struct, frozen=True):
    """The texts in which each neuron is strongest.

    Args:
        model: the hash of the model that was surveyed.
        family: its family.
        tokens: the number of tokens in which they were looked for.
        layers: by layer, for each neuron its texts, the strongest first.
    """

    model: str
    family: str
    tokens: int
    layers: dict[int, list[list[Example]]]

    def find_texts(self, layer: int | None, neuron: int) -> list[Example]:
        """Return a neuron's texts with different tokens, the strongest first; none if the survey has none of it.

        Args:
            layer: its layer.
            neuron: its index.
        """
        neurons = self.layers.get(-1 if layer is None else layer, [])
        texts = neurons[neuron] if neuron < len(neurons) else []
        first = {each.token: each for each in reversed(texts)}
        return [first[token] for token in dict.fromkeys(each.token for each in texts)][:SHOWN]

    def fit(self, config: Config) -> bool:
        """Return whether a model has the family, the layers and the neurons of the surveyed one.

        Args:
            config: the model's parts.
        """
        counts = {layer: len(neurons) for layer, neurons in self.layers.items()}
        return config.family == self.family and counts == {i: block.neurons for i, block in enumerate(config.blocks)}

    def __repr__(self) -> str:
        return f"Examples({sum(map(len, self.layers.values())):,} neurons in {self.tokens:,} predicted tokens)"


def read_examples(directory: Path | str | None = None) -> Examples:
    """Read the texts in which each neuron is strongest.

    Args:
        directory: that of a survey; the embedded model's if absent, over files of Python's standard library that it
            wasn't trained on.

    Raises:
        InvalidInput: if there is no finished survey, or its file is damaged.

    Example:
        >>> [example.token for example in read_examples().find_texts(5, 263)]
        ['),', '],', 'coder']
    """
    directory = EMBEDDED if directory is None else path_of(directory, "a survey's directory")
    file = directory / FILE
    try:
        return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=Examples, strict=False)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"{directory} has no {FILE}: give the directory of a finished survey") from None
    except (OSError, EOFError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise InvalidInput(f"{file} can't be read ({error}): run the survey again") from None


def as_bytes(examples: Examples) -> bytes:
    """Return the content of the file.

    Example:
        >>> as_bytes(Examples("", "", 0, {})) == as_bytes(Examples("", "", 0, {}))
        True
    """
    return gzip.compress(msgspec.json.encode(examples), mtime=0)  # the same examples give the same file


def tables(
    result: Any, top: int, neurons: Callable[[int], Iterable[Any]], examples: Examples | None
) -> Iterator[RenderableType]:
    """Yield the table of a result and that of its largest neurons; of an answer that isn't printed neither is made."""
    yield result.table(top)
    if examples is not None:
        yield from table(neurons(top), examples)


def table(neurons: Iterable[Any], examples: Examples) -> list[RenderableType]:
    """Return an empty line and a table of neurons and the tokens where each is strongest; nothing if none is known."""
    shown = NumberTable(labels=2, title=f"Where these neurons are strongest, in {examples.tokens:,} predicted tokens")
    for column, justify in (("layer", "right"), ("neuron", "right"), ("at", "left"), ("the first of them", "left")):
        shown.add_column(column, justify=justify)
    for layer, neuron in dict.fromkeys((each.term.layer, each.neuron) for each in neurons):
        if texts := examples.find_texts(layer, neuron):
            tokens = Text("  ".join(_short(each.token) for each in texts))
            shown.add_row(str(layer), str(neuron), tokens, _in_its_text(texts[0]))
    return ["", shown] if shown.row_count else []


def _short(token: str) -> str:
    label = token_label(token)
    return label if len(label) <= TOKEN else f"{label[: TOKEN - 1]}…"


def _in_its_text(example: Example) -> Text:
    before, after = token_label(example.before)[-BEFORE:], token_label(example.after)[:AFTER]
    return Text.assemble((before, "dim"), "«", (_short(example.token), "bold"), "»", (after, "dim"))
