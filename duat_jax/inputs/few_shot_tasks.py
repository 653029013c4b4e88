"""Few-shot tasks: pairs of a question and its answer."""

from duat_jax.inputs.tasks.knowledge import COUNTRIES

ANTONYMS = (
    "hot/cold big/small up/down left/right open/closed good/bad fast/slow high/low early/late hard/soft light/dark"
    " old/young rich/poor strong/weak wet/dry full/empty happy/sad long/short loud/quiet clean/dirty near/far"
    " wide/narrow thick/thin true/false win/lose buy/sell push/pull start/stop love/hate day/night north/south"
    " east/west inside/outside above/below before/after more/less first/last success/failure war/peace"
)

WORDS = (
    "apple river stone window garden table light music paper water house street bread sugar winter summer orange"
    " silver letter planet forest island bridge castle mirror pencil ticket engine rabbit tiger horse bird tree cloud"
    " storm flower butter coffee dinner market"
)

PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "antonyms": tuple((word, antonym) for word, antonym in (pair.split("/") for pair in ANTONYMS.split())),
    "capitals": tuple((country, city) for country, city, _ in COUNTRIES),
    "uppercase": tuple((word, word.upper()) for word in WORDS.split()),
}
"""The pairs of question and answer of each task."""
