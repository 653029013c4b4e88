"""Claim: language models "are limited to function approximation within the corpora data" (Wang & Li, Section 6).

Run `python -m experiments generalization_invented`; it writes experiments/results/generalization_invented.json and the
tables of docs/findings/generalization.md, which states beforehand what decides.
"""

from collections.abc import Callable
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import entropy

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.kept_results import store
from experiments.markdown import Fields, cells, table
from experiments.pruning.run import EMBEDDED, SMOLLM2

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXTS, LETTERS, LENGTH, LATE, PERIOD, BATCH = 64, 8, 256, 32, 32, 16
"""Texts of each language, letters of a language, letters of a text, those of its end, of a repetition, and texts that
are read at once."""
PRIOR, RECENT = 0.3, 8
"""The parameter of the Dirichlet distributions that frequencies are drawn from; and the letters that a predictor of
recent letters mostly counts."""


class Text(NamedTuple):
    """A text of an invented language.

    Args:
        letters: which of the language's letters stand there.
        other: the text with other letters before its end: the same in another order, or evenly drawn ones.
        entropy: of a letter by the language, in nats.
        simpler: what is lost on each letter by a simpler language, which is known exactly.
        bayes: what Bayes' rule loses on each letter after those before, with the true prior.
    """

    letters: Int[np.ndarray, "length"]
    other: Int[np.ndarray, "length"]
    entropy: float
    simpler: Float[np.ndarray, "length"]
    bayes: Float[np.ndarray, "length"]


def _bayes(letters: np.ndarray, contexts: np.ndarray) -> np.ndarray:
    """Return the loss by the mean of the posterior frequencies after each context, `contexts` counting from zero."""
    counts, losses = np.full((contexts.max() + 1, LETTERS), PRIOR), []
    for letter, context in zip(letters, contexts, strict=True):
        losses.append(-np.log(counts[context, letter] / counts[context].sum()))
        counts[context, letter] += 1
    return np.array(losses)


def _recent(letters: np.ndarray) -> np.ndarray:
    """Return the loss by frequencies in which each letter back counts less, by a factor of e over `RECENT` letters."""
    counts, losses = np.full(LETTERS, PRIOR), []
    for letter in letters:
        losses.append(-np.log(counts[letter] / counts.sum()))
        counts = PRIOR + (counts - PRIOR) * np.exp(-1 / RECENT)
        counts[letter] += 1
    return np.array(losses)


def _shuffled(draw: np.random.Generator, letters: np.ndarray) -> np.ndarray:
    """Return the letters before the text's end in another order, and its end."""
    return np.concatenate([draw.permutation(letters[:-LATE]), letters[-LATE:]])


def frequencies(draw: np.random.Generator) -> Text:
    """Return a text whose letters are drawn one by one; the simpler language has them as often."""
    p = draw.dirichlet(np.full(LETTERS, PRIOR))
    letters = draw.choice(LETTERS, LENGTH, p=p)
    other = np.concatenate([draw.integers(0, LETTERS, LENGTH - LATE), letters[-LATE:]])
    even = np.full(LENGTH, np.log(LETTERS))
    return Text(letters, other, float(entropy(p)), even, _bayes(letters, np.zeros(LENGTH, int)))


def pairs(draw: np.random.Generator) -> Text:
    """Return a text in which each letter is drawn by the one before it; the simpler language has their frequencies."""
    p = draw.dirichlet(np.full(LETTERS, PRIOR), LETTERS)
    # The stationary frequencies, of a chain that may take any step.
    stationary = np.linalg.matrix_power(0.999 * p + 0.001 / LETTERS, 1 << 20)[0]
    stationary /= stationary.sum()
    drawn = [int(draw.choice(LETTERS, p=stationary))]
    while len(drawn) < LENGTH:
        drawn.append(int(draw.choice(LETTERS, p=p[drawn[-1]])))
    letters, before = np.array(drawn), np.array([LETTERS, *drawn[:-1]])
    of_language = float(sum(weight * entropy(row) for weight, row in zip(stationary, p, strict=True)))
    return Text(letters, _shuffled(draw, letters), of_language, -np.log(stationary[letters]), _bayes(letters, before))


def repetition(draw: np.random.Generator) -> Text:
    """Return a text that repeats some letters; the simpler language has their frequencies."""
    letters = np.resize(draw.integers(0, LETTERS, PERIOD), LENGTH)
    of_period = np.bincount(letters[:PERIOD], minlength=LETTERS) / PERIOD
    bayes = np.where(np.arange(LENGTH) < PERIOD, np.log(LETTERS), 0.0)
    return Text(letters, _shuffled(draw, letters), 0.0, -np.log(of_period[letters]), bayes)


LANGUAGES: dict[str, Callable[[np.random.Generator], Text]] = {
    "frequencies": frequencies,
    "pairs": pairs,
    "repetition": repetition,
}


def alphabet(tokenizer: "Tokenizer") -> Int[np.ndarray, "26"]:
    """Return the tokens of the letters of the alphabet, each with a space before it."""
    return np.array([tokenizer.token_to_id(f"Ġ{letter}") for letter in ascii_lowercase], np.int32)


def _losses(model: Transformer, ids: np.ndarray) -> np.ndarray:
    """Return the loss of every token but the first."""
    return np.concatenate([np.asarray(token_losses(model, of)) for of in np.split(ids, range(BATCH, len(ids), BATCH))])


def measured(model: Transformer, tokenizer: "Tokenizer", language: str) -> dict[str, Any]:
    """Return the losses on texts of a language, by text, and those at every letter, the mean over texts."""
    draw, letters = np.random.default_rng(0), alphabet(tokenizer)
    texts = [LANGUAGES[language](np.random.default_rng(seed)) for seed in range(TEXTS)]
    own = [draw.permutation(letters)[:LETTERS] for _ in texts]
    ids, without = (
        np.stack([of[letters] for of, letters in zip(own, of_texts, strict=True)])
        for of_texts in ([text.letters for text in texts], [text.other for text in texts])
    )
    losses, bayes = _losses(model, ids), np.stack([text.bayes for text in texts])
    late = {
        "loss": losses[:, -LATE:].mean(1),
        "simpler": np.stack([text.simpler for text in texts])[:, -LATE:].mean(1),
        "entropy": np.array([text.entropy for text in texts]),
        "Bayes": bayes[:, -LATE:].mean(1),
        "recent": np.stack([_recent(text.letters) for text in texts])[:, -LATE:].mean(1),
        "without": _losses(model, without)[:, -LATE:].mean(1),
    }
    return {
        "late": {name: of.round(5).tolist() for name, of in late.items()},
        "by letter": {"loss": losses.mean(0).round(4).tolist(), "Bayes": bayes[:, 1:].mean(0).round(4).tolist()},
    }


def verdict(difference: IntervalEstimate, gain: IntervalEstimate) -> str:
    """Return whether a language is learned."""
    if difference.high < 0 < gain.low:
        return "learned"
    return "not learned" if difference.low > 0 or gain.high < 0 else "open"


def _row(late: dict[str, list[float]]) -> list[str]:
    of = {name: np.array(numbers) for name, numbers in late.items()}
    difference, gain = students_mean(of["loss"] - of["simpler"]), students_mean(of["without"] - of["loss"])
    means = [students_mean(of[name]).written(2) for name in ("loss", "simpler", "entropy", "Bayes", "recent")]
    return [*means, difference.written(2, sign="+"), gain.written(2, sign="+"), verdict(difference, gain)]


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    rows = [
        [model, language, *_row(of["late"])]
        for model, languages in results["models"].items()
        for language, of in languages.items()
    ]
    head = ["model", "language", "loss", "simpler language", "entropy", "Bayes' rule", "recent letters"]
    columns = [*head, "loss − simpler language", "gain by the language before", "verdict"]
    text = "\n".join(["### Invented languages", "", *table(columns, rows)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Measure both models, and store the results."""
    models = {}
    for name, path in {EMBEDDED: None, SMOLLM2: smollm2.path()}.items():
        model, tokenizer = duat.load(path), duat.load_tokenizer(path)
        models[name] = {language: measured(model, tokenizer, language) for language in LANGUAGES}
    results = {"models": models}
    store("generalization_invented", results)
