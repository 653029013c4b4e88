"""Does SmolLM2-135M answer fewer than a quarter of additions of the Mechanistic Interpretability Benchmark?

A circuit of a task is measured on prompts that the model answers rightly. The benchmark (Mueller et al., "MIB: A
Mechanistic Interpretability Benchmark", 2025) measures circuits on five tasks. The first is the indirect object;
arithmetic and questions with four answers were rebuilt by their definitions, since their data isn't in any package,
and the fifth, questions of ARC, of which no package has the texts, is left out.

A prompt counts as answered if the model prefers the right answer to the wrong one after the clean text and the wrong
one to the right one after the corrupted text. Flips of a coin after each text would be right on a quarter of the
prompts; a model that ignores what is flipped is right on none, as its order of both answers stays the same. Where all
letters of a question are flipped, it is enough to prefer letters that stand in the text; so, as a control, the right
answer's place is exchanged instead. "Most probable" is how often the right answer is the most probable next token after
the clean text.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from string import ascii_uppercase
from typing import Any

import jax
import jax.numpy as jnp

import duat_jax as duat
from duat_jax.inputs.tasks.case import Case
from duat_jax.inputs.tasks.context import indirect_object
from duat_jax.inputs.tasks.vocabulary import words
from experiments import smollm2
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Cell, Table, rows_of
from experiments.verdict import below

PROMPTS, SEED = 64, 0
COLOURS = words("red blue green black white brown gray yellow pink purple")
THINGS = words("box pencil car cup shirt flower hat ball door table chair book")


def addition(draw: Random) -> Case:
    """Return a sum of two numbers, of which the first digit comes next; flipped is the second number."""
    one, other, third = (draw.randrange(10, 100) for _ in range(3))
    right, wrong = str(one + other)[0], str(one + third)[0]
    text = f"The sum of {one} and {{}} is "
    return addition(draw) if right == wrong else Case(text.format(other), text.format(third), right, wrong)


def subtraction(draw: Random) -> Case:
    """Return a difference of two numbers, of which the first digit comes next; flipped is the second number."""
    one = draw.randrange(30, 100)
    other, third = draw.randrange(10, one - 10), draw.randrange(10, one - 10)
    right, wrong = str(one - other)[0], str(one - third)[0]
    text = f"The difference between {one} and {{}} is "
    return subtraction(draw) if right == wrong else Case(text.format(other), text.format(third), right, wrong)


def _question(thing: str, colour: str, letters: str, colours: list[str]) -> str:
    choices = "".join(f"{letter}. {name}\n" for letter, name in zip(letters, colours, strict=True))
    return f"Question: A {thing} is {colour}. What color is a {thing}?\n{choices}Answer:"


def choice_by_letter(draw: Random) -> Case:
    """Return a question with four answers, of which the right one's letter comes next; flipped are all letters."""
    colours, thing, place = draw.sample(COLOURS, 4), draw.choice(THINGS), draw.randrange(4)
    letters = "ABCD", "".join(draw.sample(ascii_uppercase[4:], 4))
    clean, corrupted = (_question(thing, colours[place], of, colours) for of in letters)
    return Case(clean, corrupted, *(f" {of[place]}" for of in letters))


def choice_by_place(draw: Random) -> Case:
    """Return the question of `choice_by_letter`; flipped is the right answer's place, with the letters as they are."""
    colours, thing, (place, other) = draw.sample(COLOURS, 4), draw.choice(THINGS), draw.sample(range(4), 2)
    exchanged = colours.copy()
    exchanged[place], exchanged[other] = colours[other], colours[place]
    clean, corrupted = (_question(thing, colours[place], "ABCD", of) for of in (colours, exchanged))
    return Case(clean, corrupted, f" {'ABCD'[place]}", f" {'ABCD'[other]}")


TASKS: dict[str, Callable[[Random], Case]] = {
    "indirect object": indirect_object,
    "addition": addition,
    "subtraction": subtraction,
    "multiple choice, letters flipped": choice_by_letter,
    "multiple choice, places exchanged": choice_by_place,
}


def answers(model: duat.models.Transformer, tokenizer: Any, case: Case) -> dict[str, bool]:
    """Return whether a model prefers the right answer to the wrong one after both texts, and says it after one."""
    right, wrong = (tokenizer.encode(answer).ids[-1] for answer in (case.right, case.wrong))
    after, corrupted = (_last(model, jnp.array(tokenizer.encode(text).ids)) for text in (case.clean, case.corrupted))
    return {
        "both": bool(after[right] > after[wrong] and corrupted[wrong] > corrupted[right]),
        "said": int(after.argmax()) == right,
    }


@jax.jit
def _last(model: duat.models.Transformer, ids: jax.Array) -> jax.Array:
    return model(ids)[-1]


def rows_of_task(model: duat.models.Transformer, tokenizer: Any, task: str) -> list[Row]:
    """Return what a model answers to the prompts of a task."""
    random = Random(SEED)
    return [{"prompt": i, **answers(model, tokenizer, TASKS[task](random))} for i in range(PROMPTS)]


def measure() -> Measurements:
    """Yield every task."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    for task in TASKS:
        yield Piece("prompts", {"task": task}, partial(rows_of_task, model, tokenizer, task))


def answered(task: str) -> Measure:
    """Return the share of the prompts of a task that are answered after both texts."""
    return Measure(
        f"share of prompts of {task} that are answered after both texts",
        lambda frames: rows_of(frames["prompts"], task=task).both.to_numpy(bool),
        2,
    )


ARITHMETIC, CONTROL = answered("addition"), answered("indirect object")

ANSWERED = "Answered"

STUDY = Study(
    protocol=__doc__,
    page="circuits",
    claim="none: which tasks of the Mechanistic Interpretability Benchmark (Mueller et al., 2025) a small model does",
    unit="prompts",
    stated="after the run",
    predictions=(
        Prediction(
            "the model answers fewer than a quarter of the prompts of addition",
            "confirmed if the interval of the share is below a quarter, refuted if it is above",
            (ARITHMETIC,),
            lambda share: below(share, 0.25),
        ),
    ),
    control=CONTROL,
    headline="Of {n} additions SmolLM2-135M prefers the right first digit after both texts in a share of {outcome}"
    " (ignoring the flipped number: 0 by construction), and it is the most probable token in"
    f" {{{ANSWERED} / addition / most probable}}; of {{n}} indirect objects it prefers the right name in {{control}}.",
    against=f"With all letters of a question flipped it is {{{ANSWERED} / multiple choice, letters flipped / right"
    " before wrong, after both texts}, for which it is enough to prefer letters of the text.",
    limits="One model, one wording of each task; the benchmark's fifth task is left out.",
    tables={
        ANSWERED: Table(
            "prompts",
            ("task",),
            {
                "prompts": Cell(lambda rows: str(len(rows))),
                "right before wrong, after both texts": Cell("both", 2),
                "most probable": Cell("said", 2),
            },
        )
    },
    measure=measure,
    settings={"prompts": PROMPTS, "seed": SEED},
)
