"""Headlines: each sentence says what its numbers say, whatever their signs."""

import pytest

from duat_jax.interpret.headline import claim, of_contrast, of_intervention
from duat_jax.interpret.moves import Move
from duat_jax.models.targets.description import NamedOutput, TargetDescription
from duat_jax.transform.keys import Key

CAT, DOG = NamedOutput(1, " cat"), NamedOutput(2, " dog")
BOTH = TargetDescription("logit of ' cat' minus that of ' dog'", "Logit", CAT, DOG)
ONE = TargetDescription("logit of ' cat'", "Logit", CAT)
OTHER = TargetDescription("entropy", "Entropy")
TOKENS, ONE_CHANGED, TWO_CHANGED = ("a", " b", " c"), ("a", " x", " c"), ("y", " x", " c")


def move(part, source=1):
    return Move(Key(("layers.3",), "attention.mixed", 0), source, 2, 4, part)


@pytest.mark.parametrize(
    ("target", "value", "reference", "begins"),
    [
        (BOTH, 2.0, -1.0, "“ cat”, not “ dog” because"),
        (BOTH, -1.0, 2.0, "“ dog”, not “ cat” because"),
        (BOTH, 3.0, 1.0, "More “ cat” against “ dog” because"),
        (BOTH, -3.0, -1.0, "Less “ cat” against “ dog” because"),
        (ONE, 1.0, 4.0, "Less “ cat” because"),
        (OTHER, 1.0, 0.5, "The entropy is higher because"),
    ],
)
def test_a_contrast_says_which_side_is_ahead(target, value, reference, begins):
    difference = value - reference
    said = of_contrast(target, value, difference, TOKENS, ONE_CHANGED, 1, difference, None)
    assert said == f"{begins} token 1 is “ b”, not “ x”"


@pytest.mark.parametrize(
    ("others", "moved", "ends"),
    [
        (TWO_CHANGED, None, ": +1.50 of +2.00 comes from token 1, “ b” in the place of “ x”"),
        (None, None, ": +1.50 of +2.00 comes from token 1, “ b”"),
        (None, move(1.2), "“ b”; head 4 of layer 3 brings +1.20 of +2.00 from there to the last token"),
        (None, move(1.2, 0), "; head 4 of layer 3 brings +1.20 of +2.00 from token 0, “a” to the last token"),
        (None, move(0.1), "token 1, “ b”"),
        (None, move(-1.2), "token 1, “ b”"),
    ],
)
def test_a_cause_is_named_alone_only_where_it_is(others, moved, ends):
    said = of_contrast(ONE, 3.0, 2.0, TOKENS, others, 1, 1.5, moved)
    assert said.startswith("More “ cat”: ") and said.endswith(ends)


def test_what_is_behind_is_said_to_be_behind():
    assert claim(BOTH, -2.0) == "“ dog” is ahead of “ cat” by 2.00"
    assert of_intervention(BOTH, 8.0, -0.05, ["head 3: set to 0"]).endswith(
        "goes from +8.00 to −0.05 with head 3: set to 0"
    )
