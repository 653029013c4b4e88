"""Claim: a dense matrix "helps generate content that is consistent with the context" (Wang & Li, Section 4.1).

Run `python -m experiments in_context_consistent`; it writes experiments/results/in_context_consistent.json and the
tables of docs/findings/in-context.md, which states beforehand what decides.  Prompts that a killed run has finished
aren't run
again.
"""

import re
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from duat_jax.in_context.runs import logits_of
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments import smollm2
from experiments.in_context.windows import restricted_states, window
from experiments.kept_results import journal_of, store
from experiments.markdown import Fields, cells, counted, table

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
FAR, NEAR, UNSTATED = "far", "near", "not stated"
"""The places of the fact: before the other sentences, after them, or nowhere, which says what is written by chance."""
FULL, SEEN = "the whole text", "64 tokens and the first"
WINDOWS: dict[str, tuple[int, tuple[int, ...]]] = {
    FULL: (LENGTH, ()),
    SEEN: (64, (0,)),
    "16 tokens and the first": (16, (0,)),
    "64 tokens": (64, ()),
}
"""The tokens that attention sees: so many last ones, and places that are always seen."""
WAYS = [
    (FULL, FAR),
    (FULL, NEAR),
    (FULL, UNSTATED),
    *((seen, place) for seen in list(WINDOWS)[1:3] for place in (FAR, NEAR)),
    ("64 tokens", FAR),
]
LEVEL = 10
"""The difference in points below which values are named no less often."""

Results = dict[str, Any]


class Prompt(NamedTuple):
    """A text that states a fact, goes on with other things, and begins to take the fact up.

    Args:
        kind: a name in `FACTS`.
        value: the stated one.
        texts: the text, by the place of the sentence that states the fact.
    """

    kind: str
    value: str
    texts: dict[str, str]


def prompts() -> Iterator[Prompt]:
    """Yield the prompts, as many of each kind, whose values take turns."""
    draw = Random(0)
    for i in range(PROMPTS):
        kind = list(FACTS)[i % len(FACTS)]
        states, takes_up, values = FACTS[kind]
        name, value = draw.choice(NAMES), values[i // len(FACTS) % len(values)]
        fact, end = states.format(name=name, value=value), takes_up.format(name=name)
        between = " ".join(draw.sample(BETWEEN, 6))
        texts = {FAR: f"{fact} {between} {end}", NEAR: f"{between} {fact} {end}", UNSTATED: f"{between} {end}"}
        yield Prompt(kind, value, texts)


@jax.jit
def _logits(
    model: Transformer, ids: Int[Array, "tokens"], visible: Bool[Array, "queries keys"], place: Int[Array, ""]
) -> Float[Array, "vocab"]:
    return logits_of(model, restricted_states(model, ids, visible)[place][None])[0]


class Written(NamedTuple):
    """A model's continuation of a prompt.

    Args:
        text: the most probable token each time.
        first: the value of the kind whose token is the most probable one at once.
    """

    text: str
    first: str


def write(model: Transformer, tokenizer: "Tokenizer", prompt: Prompt, way: tuple[str, str]) -> Written:
    """Return what the model writes after a prompt."""
    seen, place = way
    ids, values = list(tokenizer.encode(prompt.texts[place]).ids), FACTS[prompt.kind][2]
    begun, visible = len(ids), jnp.asarray(window(LENGTH, *WINDOWS[seen]))
    firsts = []
    for _ in range(WRITTEN):
        padded = jnp.pad(jnp.asarray(ids), (0, LENGTH - len(ids)))
        logits = np.asarray(on_host(_logits(model, padded, visible, jnp.asarray(len(ids) - 1))))
        tokens = [tokenizer.token_to_id(f"Ġ{value}") for value in values]
        firsts.append(values[int(np.argmax(logits[tokens]))])
        ids.append(int(logits.argmax()))
    text: str = tokenizer.decode(ids[begun:])
    return Written(text, firsts[0])


def named(text: str, kind: str) -> str | None:
    """Return the first value of a kind that a text names.

    Example:
        >>> named(" a green or red one", "colour")
        'green'
        >>> named(" tired", "colour")
    """
    found = re.search(rf"\b({'|'.join(FACTS[kind][2])})\b", text, re.IGNORECASE)
    return next(value for value in FACTS[kind][2] if value.lower() == found[1].lower()) if found else None


def measured(model: Transformer, tokenizer: "Tokenizer", prompt: Prompt) -> dict[str, list[str]]:
    """Return what is written in every way."""
    return {_name(way): list(write(model, tokenizer, prompt, way)) for way in WAYS}


def _name(way: tuple[str, str]) -> str:
    return "; ".join(way)


def consistent(results: Results, way: tuple[str, str], *, at_once: bool = False) -> Float[np.ndarray, "prompts"]:
    """Return a hundred for every prompt after which the stated value is named first, and zero for others."""
    right = []
    for prompt, of in zip(prompts(), results["prompts"], strict=True):
        text, first = of[_name(way)]
        right.append((first if at_once else named(text, prompt.kind)) == prompt.value)
    return 100.0 * np.array(right)


def _verdict(results: Results) -> str:
    chance = bootstrap(consistent(results, (FULL, FAR)) - consistent(results, (FULL, UNSTATED)))
    fewer = _fewer(results, SEEN)
    if chance.low <= 0:
        return "no verdict"
    return "less" if fewer.low > 0 else "no less" if fewer.high < LEVEL else "open"


def _fewer(results: Results, seen: str, *, at_once: bool = False) -> IntervalEstimate:
    """Return by how much more a window lowers what is named of a far fact than of a near one, in points."""
    falls = [
        consistent(results, (FULL, place), at_once=at_once) - consistent(results, (seen, place), at_once=at_once)
        for place in (FAR, NEAR)
    ]
    return bootstrap(falls[0] - falls[1])


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    rows = []
    for way in WAYS:
        shares = [counted(consistent(results, way, at_once=at_once) > 0) for at_once in (False, True)]
        rows.append([*way, *shares])
    lines = ["### The stated value, named", "", *table(["attention sees", "the fact", "written", "at once"], rows), ""]
    more = []
    for seen in (SEEN, "16 tokens and the first"):
        falls = [_fewer(results, seen, at_once=at_once).written(1, "+") for at_once in (False, True)]
        more.append([seen, *falls, _verdict(results) if seen == SEEN else ""])
    head = [
        "attention sees",
        "fall where far less fall where near, written",
        "fall where far less fall where near, at once",
        "consistent",
    ]
    lines += ["### Named less often with windows", "", *table(head, more), ""]
    prompt = next(prompts())
    examples = [[*way, f"“{results['prompts'][0][_name(way)][0].strip()}”"] for way in WAYS]
    shown = f"After “{prompt.texts[FAR]}”:"
    lines += ["### One prompt", "", shown, "", *table(["attention sees", "the fact", "what is written"], examples)]
    text = "\n".join(lines)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run every prompt, and store the results."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    texts = [prompt.texts for prompt in prompts()]
    settings = {"written": WRITTEN, "length": LENGTH, "windows": WINDOWS, "ways": WAYS, "texts": texts}
    journal = journal_of("in_context_consistent", settings)
    found = [
        journal.once(str(i), partial(measured, model, tokenizer, prompt))
        for i, prompt in enumerate(track(list(prompts()), "Prompts"))
    ]
    store("in_context_consistent", {"settings": settings, "prompts": found})
