"""Few-shot tasks: pairs of a question and its answer."""

from duat_jax.inputs.tasks.knowledge import ANTONYMS, COUNTRIES

WORDS = (
    "apple river stone window garden table light music paper water house street bread sugar winter summer orange"
    " silver letter planet forest island bridge castle mirror pencil ticket engine rabbit tiger horse bird tree cloud"
    " storm flower butter coffee dinner market"
)

PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "antonyms": tuple(ANTONYMS),
    "capitals": tuple((country, city) for country, city, _ in COUNTRIES),
    "uppercase": tuple((word, word.upper()) for word in WORDS.split()),
}
"""The pairs of question and answer of each task."""
