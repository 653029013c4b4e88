"""Question: which tasks of MIB, rebuilt by their definitions, does SmolLM2-135M answer at all?

Run `python -m experiments circuits_mib`; it writes experiments/results/circuits_mib.json and a table in
docs/findings/circuits.md.  A circuit of a task is measured on prompts that the model answers rightly.

Source: Mueller et al., "MIB: A Mechanistic Interpretability Benchmark", 2025.
"""

from collections.abc import Callable, Iterator
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
from experiments.kept_results import store
from experiments.markdown import Fields, cells, counted, table

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


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""

    def rows() -> Iterator[list[str]]:
        for task, of_prompts in results["tasks"].items():
            yield [task, str(len(of_prompts)), *(counted([of[key] for of in of_prompts]) for key in ("both", "said"))]

    text = "\n".join(table(["task", "prompts", "right before wrong, after both texts", "most probable"], rows()))
    return {"tasks": text, **cells("# Answered\n" + text)}


def main() -> None:
    """Ask the model, and store its answers."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    draws = {task: Random(SEED) for task in TASKS}
    results = {
        "settings": {"prompts": PROMPTS, "seed": SEED},
        "tasks": {
            task: [answers(model, tokenizer, case(draws[task])) for _ in range(PROMPTS)] for task, case in TASKS.items()
        },
    }
    store("circuits_mib", results)
