"""The headline of a result: what it found, in one sentence."""

from collections.abc import Sequence

from duat_jax.inputs.images import SeenImage
from duat_jax.interpret.moves import Move
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import written_label

LONGEST = 30
"""The largest number of characters of a token in a headline."""

SCORES = {"Logit": "logit", "ClassLogit": "logit", "LogProbability": "log-probability"}
"""The kinds of targets that read one output, in words."""

COUNTS = 0.1
"""The least share of the number that a head has which a headline names."""


def signed(number: float) -> str:
    """Return a number with its sign and two decimals, or two digits of a small one.

    Example:
        >>> signed(10.2012), signed(-0.00123)
        ('+10.20', '−0.0012')
    """
    text = f"{number:+z.2f}" if abs(number) >= 0.1 or not number else f"{number:+z.2g}"
    return text.replace("-", "−")


def named(token: str) -> str:
    """Return a token in quotation marks, shortened.

    Example:
        >>> named(" default")
        '“ default”'
    """
    text = written_label(token)
    return f"“{text if len(text) <= LONGEST else f'{text[: LONGEST - 1]}…'}”"


def place_of(token: int, tokens: Sequence[str], image: SeenImage | None = None) -> str:
    """Return a token of a text, or a patch of an image or a frame of a sound, in words.

    Example:
        >>> place_of(1, ["a", " cat", "s"])
        'token 1, “ cat”'
    """
    if image is not None:
        if token < image.before:
            return f"{tokens[token]} of the image" if token else "the token of the whole image"
        if patch := image.patch_of(token):
            return patch
    return "the last token" if token == len(tokens) - 1 else f"token {token}, {named(tokens[token])}"


def claim(target: TargetDescription, value: float) -> str:
    """Return what a number is."""
    if target.output is None:
        return f"The {target} is {signed(value)}"
    if target.contrast is None:
        return f"The {SCORES.get(target.kind, target.kind)} of {named(target.output.text)} is {signed(value)}"
    first, second = (target.output, target.contrast) if value >= 0 else (target.contrast, target.output)
    return f"{named(first.text)} is ahead of {named(second.text)} by {abs(value):z.2f}"


def of_explanation(
    target: TargetDescription,
    value: float,
    token: int,
    part: float,
    row: str,
    tokens: Sequence[str],
    image: SeenImage | None = None,
) -> str:
    """Return what a number is, and the place with the largest direct part of it."""
    place = f"{row} at {place_of(token, tokens, image)}"
    return f"{claim(target, value)}; the largest direct part is {signed(part)} from {place}"


def of_move(target: TargetDescription, value: float, move: Move, tokens: Sequence[str]) -> str:
    """Return what a number is, and the largest move of a head."""
    way = f"from {place_of(move.source, tokens)} to {place_of(move.token, tokens)}"
    return f"{claim(target, value)}; head {move.head} of layer {move.key.layer} moves most, {signed(move.part)} {way}"


def of_contrast(
    target: TargetDescription,
    value: float,
    difference: float,
    tokens: Sequence[str],
    others: Sequence[str] | None,
    token: int,
    part: float,
    move: Move | None,
    image: SeenImage | None = None,
    *,
    same_image: bool = True,
) -> str:
    """Return what differs between two inputs, which token does it, and the head that brings most of it."""
    share = signed(part)
    place, all_of_it = place_of(token, tokens, image), signed(difference)
    change = _change(target, value, value - difference)
    if others is None or tokens[token] == others[token]:
        headline = f"{change}: {share} of {all_of_it} comes from {place}"
    elif same_image and all(a == b for i, (a, b) in enumerate(zip(tokens, others, strict=True)) if i != token):
        headline = f"{change} because token {token} is {named(tokens[token])}, not {named(others[token])}"
    else:
        headline = f"{change}: {share} of {all_of_it} comes from {place} in the place of {named(others[token])}"
    if move is None or move.part * difference < COUNTS * difference**2:
        return headline
    source = "there" if move.source == token else place_of(move.source, tokens, image)
    brings = f"head {move.head} of layer {move.key.layer} brings {signed(move.part)} of {all_of_it}"
    return f"{headline}; {brings} from {source} to {place_of(move.token, tokens, image)}"


def of_attribution(
    target: TargetDescription, value: float, difference: float, score: float, place: str, compared: bool
) -> str:
    """Return what a number is, or how it differs from that on a reference, and the unit with the largest score."""
    says = _change(target, value, value - difference) if compared else claim(target, value)
    return f"{says}; the largest score is {signed(score)}, of {place}"


def of_intervention(target: TargetDescription, before: float, after: float, edits: Sequence[str]) -> str:
    """Return what a number was without the edits, and is with them."""
    made = edits[0] if len(edits) == 1 else f"{len(edits)} edits"
    if target.output is None or target.contrast is None:
        subject = f"The {target}"
    else:
        subject = f"{named(target.output.text)} against {named(target.contrast.text)}"
    return f"{subject} goes from {signed(before)} to {signed(after)} with {made}"


def _change(target: TargetDescription, value: float, reference: float) -> str:
    """Return how a number differs from what it is on a reference."""
    if target.output is None:
        return f"The {target} is {'higher' if value >= reference else 'lower'}"
    name, more = named(target.output.text), "More" if value >= reference else "Less"
    if target.contrast is None:
        return f"{more} {name}"
    rival = named(target.contrast.text)
    if value > 0 > reference:
        return f"{name}, not {rival}"
    if value < 0 < reference:
        return f"{rival}, not {name}"
    return f"{more} {name} against {rival}"
