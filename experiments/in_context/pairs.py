"""Pairs of prompts that differ in an instruction, in the first of two steps, or in an invented sentence."""

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from duat_jax.in_context.prompts import START, after_start
from duat_jax.inputs.tasks.knowledge import ANTONYMS, COUNTRIES
from duat_jax.inputs.tasks.vocabulary import NAMES

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DRAWS = 16
PROPERTIES, WORDS = "instruction: capital or language", "instruction: opposite or copy"
TWO_STEPS, ONE_STEP = "two steps: whose language", "one step: whose country"
INVENTED = "invented sentence"
ONE_PROPERTY, ONE_WORD = "one instruction: capital or language", "one instruction: opposite or copy"
INSIDE = "two steps: language of a capital's country"
SINGLE = (ONE_PROPERTY, ONE_WORD, INSIDE)
"""The tasks whose prompts differ at one place only."""
TASKS = (ONE_PROPERTY, PROPERTIES, ONE_WORD, WORDS, INSIDE, TWO_STEPS, ONE_STEP, INVENTED)

LAST, FIRST, ALONE = "last", "first", "alone"
"""The place of the deciding words: after the others, or before them, every second draw; or without others."""

AUTHORS = {
    "relativity": "Albert Einstein",
    "evolution": "Charles Darwin",
    "radioactivity": "Marie Curie",
    "penicillin": "Alexander Fleming",
    "psychoanalysis": "Sigmund Freud",
    "gravity": "Isaac Newton",
    "genetics": "Gregor Mendel",
    "vaccination": "Edward Jenner",
}
"""Works of one token, with those who are known for them."""

INVENTED_NAMES = [f"{letter}ui zi" for letter in "NMRKDHLT"]
"""The papers' invented name, and others like it."""


class Pair(NamedTuple):
    """Two prompts of as many tokens that differ at two places, and the answers to both.

    Args:
        text: the first prompt.
        ids: its token ids, `[tokens]`.
        other: those of the second prompt, `[tokens]`.
        deciding: true at the words that decide the answer, the papers' red words, `[tokens]`.
        rest: true at the other words that differ, none in `SINGLE` tasks, `[tokens]`.
        answers: the first tokens of the right answers to both prompts.
        order: where the deciding words stand.
    """

    text: str
    ids: np.ndarray
    other: np.ndarray
    deciding: np.ndarray
    rest: np.ndarray
    answers: tuple[int, int]
    order: str


class Slots(NamedTuple):
    """A text with slots, and what both prompts put there.

    Args:
        text: the text, with a slot `{deciding}` and maybe one `{rest}`.
        deciding: the deciding words of both prompts.
        rest: the other words.
        answers: the right answers.
    """

    text: str
    deciding: tuple[str, str]
    rest: tuple[str, str]
    answers: tuple[str, str]


def _two_questions(draw: Random, order: str, words: tuple[str, str], subject: str, other: str, form: str) -> Slots:
    """Return two numbered questions of which one is to be answered, with their words exchanged in the other prompt."""
    lines = (("deciding", subject), ("rest", other)) if order == FIRST else (("rest", other), ("deciding", subject))
    text = "".join(
        f"{label}: {form.format(f'{{{slot}}}', about)}\n"
        for label, (slot, about) in zip(("A", "B"), lines, strict=True)
    )
    u, v = draw.sample(words, 2)
    return Slots(f"{text}The answer to {'A' if order == FIRST else 'B'} is", (u, v), (v, u), (u, v))


def _properties(draw: Random, order: str) -> Slots:
    (country, city, language), (other, *_) = draw.sample(COUNTRIES, 2)
    slots = _two_questions(draw, order, ("capital", "language"), country, other, "What is the {} of {}?")
    answers = {"capital": city, "language": language}
    return slots._replace(answers=(answers[slots.deciding[0]], answers[slots.deciding[1]]))


def _words(draw: Random, order: str) -> Slots:
    (word, opposite), (other, _) = draw.sample(ANTONYMS, 2)
    slots = _two_questions(draw, order, ("opposite", "copy"), word, other, "Write the {} of {}.")
    answers = {"opposite": opposite, "copy": word}
    return slots._replace(answers=(answers[slots.deciding[0]], answers[slots.deciding[1]]))


def _steps(draw: Random, order: str, *, two: bool) -> Slots:
    first = draw.choice(COUNTRIES)
    second = draw.choice([country for country in COUNTRIES if country[2] != first[2]])
    name, other = draw.sample(NAMES, 2)
    sentences = f"{name} is from {{deciding}}.", f"{other} is from {{rest}}."
    text = " ".join(sentences if order == FIRST else reversed(sentences))
    countries = first[0], second[0]
    asked = f"The language that {name} speaks is" if two else f"The country that {name} is from is"
    return Slots(f"{text} {asked}", countries, countries[::-1], (first[2], second[2]) if two else countries)


def _invented(draw: Random, order: str) -> Slots:
    names, works = draw.sample(INVENTED_NAMES, 2), draw.sample(list(AUTHORS), 2)
    text = "{rest} created {deciding}." if order == LAST else "The one who created {deciding} is {rest}."
    asked = " But in truth it is the work of"
    return Slots(text + asked, (works[0], works[1]), (names[0], names[1]), (AUTHORS[works[0]], AUTHORS[works[1]]))


def _alone(task: str, draw: Random) -> Slots:
    if task == INSIDE:
        (_, city, spoken), second = draw.choice(COUNTRIES), draw.choice(COUNTRIES)
        while second[2] == spoken:
            second = draw.choice(COUNTRIES)
        text = "The language of the country whose capital is {deciding} is"
        return Slots(text, (city, second[1]), ("", ""), (spoken, second[2]))
    if task == ONE_PROPERTY:
        country, city, language = draw.choice(COUNTRIES)
        text, answers = f"What is the {{deciding}} of {country}?", {"capital": city, "language": language}
    else:
        word, opposite = draw.choice(ANTONYMS)
        text, answers = f"Write the {{deciding}} of {word}.", {"opposite": opposite, "copy": word}
    u, v = draw.sample(list(answers), 2)
    return Slots(f"{text}\nThe answer is", (u, v), ("", ""), (answers[u], answers[v]))


def slots_of(task: str, draw: Random, order: str) -> Slots:
    """Draw a text and what two prompts put into its slots."""
    if task in SINGLE:
        return _alone(task, draw)
    if task in (TWO_STEPS, ONE_STEP):
        return _steps(draw, order, two=task == TWO_STEPS)
    return {PROPERTIES: _properties, WORDS: _words, INVENTED: _invented}[task](draw, order)


def draw_pair(tokenizer: "Tokenizer", task: str, seed: int) -> Pair:
    """Draw two prompts of a task."""
    order = ALONE if task in SINGLE else LAST if seed % 2 else FIRST
    slots = slots_of(task, Random(f"{seed} {task}"), order)
    texts = [
        START + slots.text.format(deciding=deciding, rest=rest)
        for deciding, rest in zip(slots.deciding, slots.rest, strict=True)
    ]
    ids, other = (np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32) for text in texts)
    mixed = START + slots.text.format(deciding=slots.deciding[1], rest=slots.rest[0])
    changed = np.array(tokenizer.encode(mixed, add_special_tokens=False).ids, np.int32)
    differs = ids != other
    deciding = differs & (changed != ids)
    first, second = (after_start(tokenizer, f" {answer}")[0] for answer in slots.answers)
    return Pair(texts[0], ids, other, deciding, differs & ~deciding, (first, second), order)
