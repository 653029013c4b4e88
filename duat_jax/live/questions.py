"""Questions to a model, as a live page asks them."""

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from duat_jax.errors import InvalidInput


class LiveQuestion(msgspec.Struct, tag_field="ask", forbid_unknown_fields=True, kw_only=True):
    """A question about a text.

    Args:
        text: the text.
    """

    text: str


class Targeted(LiveQuestion, kw_only=True):
    """A question about one number.

    Args:
        pair: what the decoder said, where an encoder with a decoder reads the text; or the second text of a pair.
        target: the token or class; the most probable one if absent.
        output: its number, where an earlier answer says it: the most probable one isn't looked for again.
        contrast: the one whose logit is subtracted.
        against: for an encoder, the other text.
    """

    pair: str | None = None
    target: str | None = None
    output: int | None = None
    contrast: str | None = None
    against: str | None = None


class Explain(Targeted, tag="explain", kw_only=True):
    """Explain the number."""


class ContrastTexts(Targeted, tag="contrast", kw_only=True):
    """Contrast the number with that on another text.

    Args:
        other: the other text.
        alignment: pairs of token indices, such as `0:0,1:2`, of texts of different lengths.
    """

    other: str
    alignment: str | None = None


class Intervene(Targeted, tag="intervene", kw_only=True):
    """Edit values inside the model, and run it again.

    Args:
        edits: the edits, as they are written for `duat intervene --edit`.
        other: the text whose values `set reference` sets.
    """

    edits: list[str] = msgspec.field(name="changes")
    other: str | None = None


class FollowGraph(Targeted, tag="graph", kw_only=True):
    """Follow the number, stream by stream and head by head."""


class OpenNeuron(Targeted, tag="neuron", kw_only=True):
    """Open a neuron: what it reads and writes.

    Args:
        layer: its layer.
        token: its token.
        unit: its index.
    """

    layer: int
    token: int
    unit: int


class ExplainScore(LiveQuestion, tag="score", kw_only=True):
    """Explain why a head attends from one token to another.

    Args:
        layer: the layer.
        head: the head.
        query: the token that attends.
        key: the token that it attends to.
    """

    layer: int
    head: int
    query: int
    key: int


class CutTexts(msgspec.Struct, tag_field="ask", tag="tokens", forbid_unknown_fields=True):
    """Cut texts into tokens, without running the model.

    Args:
        texts: the texts.
    """

    texts: list[str]


class EmptyPage(msgspec.Struct, tag_field="ask", tag="page", forbid_unknown_fields=True):
    """Get the offline page without numbers."""


KINDS: tuple[type[msgspec.Struct], ...] = (
    *(Explain, ContrastTexts, Intervene, FollowGraph, OpenNeuron, ExplainScore),
    *(CutTexts, EmptyPage),
)


def read_question(content: Any) -> Any:
    """Read a question.

    Example:
        >>> read_question(b'{"ask": "explain", "text": "x = 1"}').text
        'x = 1'
    """
    try:
        return msgspec.convert(
            msgspec.json.decode(content) if isinstance(content, bytes) else content, reduce(or_, KINDS)
        )
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f"this is no question that can be asked here: {error}") from None
