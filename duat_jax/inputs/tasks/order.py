"""Tasks that an order decides: of numbers."""

from random import Random

from duat_jax.inputs.tasks.case import Case
from duat_jax.inputs.tasks.vocabulary import words


def greater_than(draw: Random) -> Case:
    """Return a span of years of which the last one's decade comes next; flipped is the first one's.

    The right decade is the next one; the wrong one is the next after the corrupted text's, and so before the span.

    Args:
        draw: what it is drawn with.

    Source: Hanna et al., "How does GPT-2 compute greater-than?", 2023.
    """
    span = draw.choice(words("war project reign study journey career drought crisis voyage campaign"))
    century, early, late, year = draw.randrange(11, 20), draw.randrange(4), draw.randrange(5, 9), draw.randrange(2, 9)
    text = f"The {span} lasted from the year {century}{{}}{year} to the year {century}"
    return Case(text.format(late), text.format(early), str(late + 1), str(early + 1))
