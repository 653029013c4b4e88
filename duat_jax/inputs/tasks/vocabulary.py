"""Lists of words, and the names of people that several tasks draw from."""


def words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


def pairs(text: str) -> list[tuple[str, str]]:
    """Return the pairs of words of a text."""
    return [(word, other) for word, other in (pair.split("/") for pair in words(text))]


NAMES = words(
    "Mary John Tom James Dan Martin Amy Scott Sarah Alan David Henry Frank Anna Alice Bob Paul Peter Mark Simon Laura"
    " Emma Kate Jane Linda Susan Robert Michael William George Charles Thomas Daniel Steven Kevin Brian Jason Adam Jack"
    " Ryan Eric Lisa Karen Nancy Helen Julia Rachel Maria Emily Rebecca"
)
