"""Changes as they are written on the command line and in a page."""

import json
import re
from collections.abc import Callable, Sequence

from duat_jax.errors import InvalidInput
from duat_jax.interpret.intervene.changes import Change
from duat_jax.interpret.intervene.places import Heads, Neurons, Place, Stream
from duat_jax.interpret.intervene.sources import FromInput, HeadMove, MeanEmbedding, SteeringVector
from duat_jax.models.checkpoint.problems import quoted

_NUMBER, _TEXT = r"-?\d+(?:\.\d+)?", r'"(?:[^"\\]|\\.)*"'
_UNIT = r"\d{1,18}"
"""The number of a layer, a unit or a token, of so many digits as every `int` reads."""
_INDEX = f"-?{_UNIT}"
_SEVERAL = rf"{_INDEX}(?:,{_INDEX})*"
_AT = rf"(?:@(?P<tokens>{_SEVERAL}))?"
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
    " LAYER:UNITS@TOKENS, and without @TOKENS every token; 'token 3 set mean', 'edge 5:3 2>7 set 0', which is"
    ' LAYER:HEAD FROM>TO, or \'stream 3 steer 2 "towards" "away"\''
)
"""Examples of every form, for messages."""


def parse_changes(written: Sequence[str], reference: str | None = None) -> list[Change]:
    """Read changes.

    Example:
        >>> [change.place for change in parse_changes(["heads 5:3,4@-1 scale 0.5"])]
        [Heads(layer=5, heads=[3, 4], tokens=[-1])]
    """
    changes, problems = [], []
    for each in written:
        try:
            changes.append(_change(each, reference))
        except InvalidInput as error:
            problems.append(str(error))
    if problems:
        raise InvalidInput("; ".join(problems))
    return changes


def sets_other(change: Change) -> bool:
    """Return whether a change sets values to those on another text."""
    return isinstance(change.added, FromInput)


def _change(written: str, reference: str | None) -> Change:
    for pattern, read in _READERS.items():
        if found := pattern.fullmatch(written.strip()):
            return read(found, reference)
    raise InvalidInput(f"{quoted(written)} is no change: write {FORMS}")


def _units(found: re.Match[str], reference: str | None) -> Change:
    place = {"neuron": Neurons, "head": Heads}[found["kind"]]
    return _done(
        place(int(found["layer"]), _numbers(found["units"]), tokens=_numbers(found["tokens"])), found, reference
    )


def _stream(found: re.Match[str], reference: str | None) -> Change:
    place = Stream(int(found["layer"]), tokens=_numbers(found["tokens"]))
    if found["by"] is None:
        return _done(place, found, reference)
    try:
        towards, away = json.loads(found["towards"]), json.loads(found["away"])
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{quoted(found[0])}: the texts must be strings as in JSON ({error.msg})") from None
    return place.steer(SteeringVector(towards, away, float(found["by"])))


def _token(found: re.Match[str], reference: str | None) -> Change:
    return Stream(0, tokens=_numbers(found["tokens"])).set(MeanEmbedding())


def _edge(found: re.Match[str], reference: str | None) -> Change:
    factor = float(found["value"])
    if found["verb"] == "set" and factor:
        raise InvalidInput(f"{quoted(found[0])}: what a head moves is a vector, which can be set to 0 or scaled")
    change = factor - 1 if found["verb"] == "scale" else -1.0
    return Heads(int(found["layer"]), [int(found["head"])], tokens=[int(found["token"])]).steer(
        HeadMove(int(found["source"]), change)
    )


_READERS: dict[re.Pattern[str], Callable[[re.Match[str], str | None], Change]] = {
    UNITS: _units,
    STREAM: _stream,
    TOKEN: _token,
    EDGE: _edge,
}


def _done(place: Place, found: re.Match[str], reference: str | None) -> Change:
    if found["reference"] is None:
        return getattr(place, found["verb"])(float(found["value"]))
    if reference is None:
        raise InvalidInput(f"{quoted(found[0])} sets values to those on a reference: give one")
    return place.set(FromInput(reference))


def _numbers(written: str | None) -> list[int] | None:
    return None if written is None else [int(number) for number in written.split(",") if number]
