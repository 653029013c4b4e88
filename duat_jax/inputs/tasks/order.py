"""Tasks that an order decides: of numbers, of days and months."""

from random import Random

from duat_jax.inputs.tasks.case import Case, of_two
from duat_jax.inputs.tasks.vocabulary import words


def greater_than(draw: Random) -> Case:
    """Return a span of years of which the last one's decade comes next; flipped is the first one's."""
    # The right decade is the next one; the wrong one is the next after the corrupted text's, and so before the span.
    span = draw.choice(words("war project reign study journey career drought crisis voyage campaign"))
    century, early, late, year = draw.randrange(11, 20), draw.randrange(4), draw.randrange(5, 9), draw.randrange(2, 9)
    text = f"The {span} lasted from the year {century}{{}}{year} to the year {century}"
    return Case(text.format(late), text.format(early), str(late + 1), str(early + 1))


DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words("January February March April May June July August September October November December")


def successor(draw: Random) -> Case:
    """Return an event that ends on the day, or in the month, after the one it began in; flipped is when it began."""
    event = draw.choice(
        words(
            "war project trial study journey storm crisis voyage campaign festival course strike meeting search fire"
            " flood sale visit show tour game trip fair match debate work"
        )
    )
    began, ended = draw.choice((("began", "ended"), ("started", "finished"), ("opened", "closed")))
    unit, preposition, names = draw.choice((("day", "on", DAYS), ("month", "in", MONTHS)))
    text = f"The {event} {began} {preposition} {{}} and {ended} the next {unit}, {preposition}"
    return of_two(draw, list(zip(names, names[1:] + names[:1], strict=True)), text)
