"""Edits as they are written on the command line and in a page."""

import json
import re
from collections.abc import Callable, Sequence

from duat_jax.errors import InvalidInput
from duat_jax.interpret.intervene.places import Editable, Heads, Neurons, Stream
from duat_jax.interpret.intervene.sources import FromInput, HeadMove, MeanEmbedding, SteeringVector
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.config import STREAMS
from duat_jax.transform.editing import Edit

_NUMBER, _TEXT = r"-?\d+(?:\.\d+)?", r'"(?:[^"\\]|\\.)*"'
_UNIT = r"\d{1,18}"
"""The number of a layer, a unit or a token, of so many digits as every `int` reads."""
_INDEX = f"-?{_UNIT}"
_SEVERAL = rf"{_INDEX}(?:,{_INDEX})*"
_AT = rf"(?:@(?P<tokens>{_SEVERAL}|{'|'.join(STREAMS)}))?"
_MULTIPLIED = rf"(?P<verb>set|scale) (?P<value>{_NUMBER})"
_DONE = rf"{_MULTIPLIED}|set (?P<reference>reference|other)"

UNITS = re.compile(rf"(?P<kind>neuron|head)s? (?P<layer>{_UNIT}):(?P<units>{_UNIT}(?:,{_UNIT})*){_AT} (?:{_DONE})")
STREAM = re.compile(
    rf"streams? (?P<layer>{_UNIT}){_AT} (?:{_DONE}|steer (?P<by>{_NUMBER}) (?P<towards>{_TEXT}) (?P<away>{_TEXT}))"
)
TOKEN = re.compile(rf"tokens? (?P<tokens>{_SEVERAL}) set mean")
EDGE = re.compile(
    rf"edges? (?P<layer>{_UNIT}):(?P<head>{_UNIT}) (?P<source>{_INDEX})>(?P<token>{_INDEX}) {_MULTIPLIED}"
)

FORMS = (
    "'neuron 3:17 set 0', 'heads 5:3,4@-1 scale 0.5', 'stream 6@2 set 0' or 'head 5:3 set reference', which is"
    " LAYER:UNITS@TOKENS, and without @TOKENS every token, or @encoder or @decoder for those of one of two texts;"
    " 'token 3 set mean', 'edge 5:3 2>7 set 0', which is"
    ' LAYER:HEAD FROM>TO, or \'stream 3 steer 2 "towards" "away"\''
)
"""Examples of every form, for messages."""


def parse_edits(written: Sequence[str], reference: str | None = None) -> list[Edit]:
    """Read edits.

    Example:
        >>> [edit.place for edit in parse_edits(["heads 5:3,4@-1 scale 0.5"])]
        [Heads(layer=5, heads=[3, 4], tokens=[-1])]
    """
    edits, problems = [], []
    for each in written:
        try:
            edits.append(_edit(each, reference))
        except InvalidInput as error:
            problems.append(str(error))
    if problems:
        raise InvalidInput("; ".join(problems))
    return edits


def _edit(written: str, reference: str | None) -> Edit:
    """Read one edit."""
    for pattern, read in _READERS.items():
        if match := pattern.fullmatch(written.strip()):
            return read(match, reference)
    raise InvalidInput(f"{quoted(written)} is no edit: write {FORMS}")


def _units(match: re.Match[str], reference: str | None) -> Edit:
    """Read an edit of neurons or heads."""
    place = {"neuron": Neurons, "head": Heads}[match["kind"]]
    units, tokens = _numbers(match["units"]), _tokens_of(match)
    return _done(place(int(match["layer"]), units, tokens=tokens), match, reference)


def _stream(match: re.Match[str], reference: str | None) -> Edit:
    """Read an edit of the stream."""
    place = Stream(int(match["layer"]), tokens=_tokens_of(match))
    if match["by"] is None:
        return _done(place, match, reference)
    try:
        towards, away = json.loads(match["towards"]), json.loads(match["away"])
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{quoted(match[0])}: the texts must be strings as in JSON ({error.msg})") from None
    return place.steer(SteeringVector(towards, away, float(match["by"])))


def _token(match: re.Match[str], reference: str | None) -> Edit:
    """Read an edit that takes tokens away."""
    return Stream(0, tokens=_numbers(match["tokens"])).set(MeanEmbedding())


def _edge(match: re.Match[str], reference: str | None) -> Edit:
    """Read an edit of what a head moves from one token to another."""
    factor = float(match["value"])
    if match["verb"] == "set" and factor:
        raise InvalidInput(f"{quoted(match[0])}: what a head moves is a vector, which can be set to 0 or scaled")
    moved = HeadMove(int(match["source"]), factor - 1)
    return Heads(int(match["layer"]), [int(match["head"])], tokens=[int(match["token"])]).steer(moved)


_READERS: dict[re.Pattern[str], Callable[[re.Match[str], str | None], Edit]] = {
    UNITS: _units,
    STREAM: _stream,
    TOKEN: _token,
    EDGE: _edge,
}


def _done(place: Editable, match: re.Match[str], reference: str | None) -> Edit:
    """Return a place set to a number or to its values on the reference, or scaled."""
    if match["reference"] is None:
        return getattr(place, match["verb"])(float(match["value"]))
    if reference is None:
        raise InvalidInput(f"{quoted(match[0])} sets values to those on a reference: give one")
    return place.set(FromInput(reference))


def read_tokens(written: str) -> list[int] | str:
    """Read tokens: numbers between commas, or else the name of a text, which stands for all of its tokens."""
    return _numbers(written) if re.fullmatch(_SEVERAL, written) else written


def _tokens_of(match: re.Match[str]) -> list[int] | str | None:
    """Return the tokens of an edit, or nothing where none are written."""
    return None if match["tokens"] is None else read_tokens(match["tokens"])


def _numbers(written: str) -> list[int]:
    """Return numbers between commas."""
    return [int(number) for number in written.split(",")]
