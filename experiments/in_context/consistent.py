"""Claim: a dense matrix "helps generate content that is consistent with the context" (Wang & Li, Section 4.1).

Run `make in_context_consistent`; it writes experiments/results/in_context_consistent.json and the tables of
docs/in-context.md, which states beforehand what decides.  Prompts that a killed run has finished aren't run again.
"""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int
from rich.progress import track

import duat_jax as duat
from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.statistics import Estimate, bootstrap
from duat_jax.in_context.runs import logits_of
from duat_jax.in_context.windows import restricted_states, window
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments import smollm2
from experiments.kept_results import journal_of, store
from experiments.pages import Fields, cells, counted, table

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROMPTS, WRITTEN, LENGTH = 48, 4, 112
"""The number of prompts, of tokens that are written after each, and of those to which texts are padded."""
FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "colour": (
        "{name} rides a {value} bicycle.",
        "The colour of {name}'s bicycle is",
        ("red", "green", "blue", "yellow", "black", "white", "brown", "purple"),
    ),
    "animal": (
        "{name} has a {value} at home.",
        "The animal at {name}'s home is a",
        ("dog", "cat", "horse", "rabbit", "bird", "fish", "snake", "mouse"),
    ),
    "day": (
        "{name} is going to travel on {value}.",
        "The day on which {name} travels is",
        ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    ),
    "city": (
        "{name} was born in {value}.",
        "The city where {name} was born is",
        ("Paris", "Rome", "Berlin", "Madrid", "London", "Vienna", "Boston", "Tokyo"),
    ),
}
"""Facts of four kinds: the sentence that states one, the beginning of one that takes it up, and the values."""
NAMES = ("Anna", "Tom", "Maria", "Peter", "Laura", "David", "Sarah", "Paul", "Julia", "Mark", "Emma", "Jack")
BETWEEN = (
    "The weather was mild and the streets were quiet that afternoon.",
    "A few people stood in front of the bakery and talked about the news.",
    "Somewhere a door was closed, and a radio played an old song.",
    "The train arrived a little late, as it often did at this time of the year.",
    "In the park some children were playing with a ball near the fountain.",
    "The shop on the corner had just received a new delivery of books.",
    "It took a while until the lights along the road were switched on.",
    "An old man was reading the newspaper on a bench and didn't look up.",
)
"""Sentences that stand between, without a value of any kind."""
FULL = "full attention"
WINDOWS: dict[str, tuple[int, tuple[int, ...]]] = {
    FULL: (LENGTH, ()),
    "a window of 64 tokens": (64, ()),
    "a window of 64 tokens, and the first": (64, (0,)),
    "a window of 16 tokens, and the first": (16, (0,)),
}
UNSTATED = "full attention, the fact isn't stated"
"""The control: how often the value is written all the same."""

Results = dict[str, Any]


class Prompt(NamedTuple):
    """A text that states a fact, goes on with other things, and begins to take the fact up.

    Args:
        kind: a name in `FACTS`.
        value: the stated one.
        text: the whole text.
        unstated: the same without the sentence that states the fact.
    """

    kind: str
    value: str
    text: str
    unstated: str


def prompts() -> Iterator[Prompt]:
    """Yield the prompts, as many of each kind."""
    draw = Random(0)
    for i in range(PROMPTS):
        kind = list(FACTS)[i % len(FACTS)]
        states, takes_up, values = FACTS[kind]
        name, value = draw.choice(NAMES), draw.choice(values)
        between = " ".join(draw.sample(BETWEEN, 6))
        end = f"{between} {takes_up.format(name=name)}"
        yield Prompt(kind, value, f"{states.format(name=name, value=value)} {end}", end)


@jax.jit
def _next(
    model: Transformer, ids: Int[Array, "tokens"], visible: Bool[Array, "queries keys"], place: Int[Array, ""]
) -> Int[Array, ""]:
    return logits_of(model, restricted_states(model, ids, visible)[place][None]).argmax()


def written(model: Transformer, tokenizer: "Tokenizer", text: str, kernel: int, first: tuple[int, ...]) -> str:
    """Return what the model writes after a text, the most probable token each time, with attention within a window.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        text: the text.
        kernel: the number of last tokens that each token sees.
        first: places that are always seen.
    """
    ids = list(tokenizer.encode(text).ids)
    begun, visible = len(ids), jnp.asarray(window(LENGTH, kernel, first))
    for _ in range(WRITTEN):
        padded = jnp.pad(jnp.asarray(ids), (0, LENGTH - len(ids)))
        ids.append(int(on_host(_next(model, padded, visible, jnp.asarray(len(ids) - 1)))))
    text_written: str = tokenizer.decode(ids[begun:])
    return text_written


def named(text: str, kind: str) -> str | None:
    """Return the first value of a kind that a text names.

    Args:
        text: what was written.
        kind: a name in `FACTS`.

    Example:
        >>> named(" a green or red one", "colour")
        'green'
    """
    places = {value: text.lower().find(value.lower()) for value in FACTS[kind][2]}
    found = [value for value in places if places[value] >= 0]
    return min(found, key=places.__getitem__) if found else None


def measured(model: Transformer, tokenizer: "Tokenizer", prompt: Prompt) -> dict[str, str]:
    """Return what is written in every way.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompt: the prompt.
    """
    found = {way: written(model, tokenizer, prompt.text, *WINDOWS[way]) for way in WINDOWS}
    return found | {UNSTATED: written(model, tokenizer, prompt.unstated, *WINDOWS[FULL])}


def consistent(results: Results, way: str) -> np.ndarray:
    """Return whether what is written names the stated value, for every prompt.

    Args:
        results: what was kept.
        way: in which it was written.
    """
    return np.array([named(of[way], prompt.kind) == prompt.value for prompt, of in _pairs(results)])


def _pairs(results: Results) -> Iterator[tuple[Prompt, dict[str, str]]]:
    return zip(prompts(), results["prompts"], strict=True)


def _verdict(fewer: Estimate) -> str:
    return "fewer" if fewer.low > 0 else "no fewer" if fewer.high <= 0 else "open"


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    rows = []
    whole = consistent(results, FULL)
    for way in (*WINDOWS, UNSTATED):
        right = consistent(results, way)
        others = np.array([named(of[way], prompt.kind) not in (None, prompt.value) for prompt, of in _pairs(results)])
        row = [way, counted(right), counted(others)]
        if way == FULL:
            rows.append([*row, "", ""])
            continue
        fewer = bootstrap(100.0 * (whole.astype(float) - right))
        rows.append([*row, fewer.written(1, "+"), _verdict(fewer)])
    head = ["way of reading", "the stated value", "another value", "fewer than with full attention, points", "verdict"]
    text = "\n".join(["### What is written after a stated fact", "", *table(head, rows)])
    examples = [[way, f"“{results['prompts'][0][way].strip()}”"] for way in (*WINDOWS, UNSTATED)]
    first = next(prompts())
    shown = f"The first prompt: “{first.text}”"
    text += "\n\n" + "\n".join(["### One prompt", "", shown, "", *table(["way", "what is written"], examples)])
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run every prompt, store the results, and write the page."""
    keep_compiled()
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    settings = {"prompts": PROMPTS, "written": WRITTEN, "length": LENGTH, "windows": WINDOWS, "between": len(BETWEEN)}
    journal = journal_of("in_context_consistent", settings)
    found = [
        journal.once(str(i), partial(measured, model, tokenizer, prompt))
        for i, prompt in enumerate(track(list(prompts()), "Prompts"))
    ]
    store("in_context_consistent", {"settings": settings, "prompts": found})


if __name__ == "__main__":
    main()
