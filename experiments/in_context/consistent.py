"""Does a model name a fact that stands far back less often with less in view?

That a token reads the whole context "helps generate content that is consistent with the context" (Section 4.1).

A text states a fact ("Sarah rides a red bicycle."), goes on with six sentences about other things, and takes the fact
up ("The colour of Sarah's bicycle is"); SmolLM2-135M-Instruct writes four more tokens, the most probable one each time.
48 prompts, of colours, animals, days and cities; the value stands 93 to 102 tokens before the end.  Attention of every
layer sees the whole text, or the last 64 or 16 tokens and the first one, or the last 64 alone.  Controls: the fact just
before the last sentence, inside of every window, and nowhere.  Layers can pass something on from window to window.

Stated beforehand: what counts is whether the first value of the kind that is written is the stated one; the fall by the
window of 64 where the fact is far less that where it is near, in points.  The papers predict a fall; by the opposite
view layers pass on what they need.  There is no verdict if with the whole text the value isn't named more often than by
chance.  At first the prompts were the units, and the prediction was confirmed; afterwards the four kinds of facts
became the units, as they differ far more than their prompts do.
"""

import re
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool, Float, Int

import duat_jax as duat
from duat_jax.in_context.runs import logits_of
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from experiments import smollm2
from experiments.estimate import Estimate, estimate
from experiments.in_context.models import per_cent
from experiments.in_context.windows import restricted_states, window
from experiments.markdown import table
from experiments.study import Measure, Measurements, Piece, Prediction, Row, Study
from experiments.table import Frames, Table, rows_of
from experiments.verdict import Verdict, decide

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
        firsts.append(values[int(np.argmax(logits[np.array(tokens)]))])
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


def measured(model: Transformer, tokenizer: "Tokenizer", prompt: Prompt) -> list[Row]:
    """Return what is written in every way."""
    keys = {"kind": prompt.kind, "value": prompt.value}
    return [{**keys, "sees": way[0], "fact": way[1], **write(model, tokenizer, prompt, way)._asdict()} for way in WAYS]


def measure() -> Measurements:
    """Yield every prompt."""
    model, tokenizer = duat.load(smollm2.path()), duat.load_tokenizer(smollm2.path())
    for i, prompt in enumerate(prompts()):
        yield Piece("written", {"prompt": i}, partial(measured, model, tokenizer, prompt))


def _right(written: pd.DataFrame) -> pd.DataFrame:
    """Say whether the stated value is named first, and whether it is the most probable one at once."""
    found = [named(text, kind) for text, kind in zip(written.text, written.kind, strict=True)]
    return written.assign(named=written.value == found, **{"at once": written.value == written["first"]})


def right(seen: str, place: str, frames: Frames, column: str = "named") -> pd.Series:
    """Return whether the stated value is named, prompt by prompt."""
    return rows_of(_right(frames["written"]), sees=seen, fact=place).set_index("prompt")[column]


def by_kind(of_prompts: pd.Series, frames: Frames) -> pd.Series:
    """Return the mean over the prompts of each kind of facts."""
    kinds = frames["written"].drop_duplicates("prompt").set_index("prompt").kind
    return of_prompts.groupby(kinds, sort=False).mean()


def fall(seen: str, frames: Frames, column: str = "named") -> pd.Series:
    """Return by how much more a window lowers what is named of a far fact than of a near one, in points, by kind."""

    def of(place: str) -> pd.Series:
        whole, cut = (right(view, place, frames, column).astype(float) for view in (FULL, seen))
        return 100 * (whole - cut)

    return by_kind(of(FAR) - of(NEAR), frames)


def beyond_chance(frames: Frames) -> pd.Series:
    """Return how much more often the value is named with the whole text than without the fact, in points, by kind."""
    far, unstated = (right(FULL, place, frames).astype(float) for place in (FAR, UNSTATED))
    return by_kind(100 * (far - unstated), frames)


def falls(fall: Estimate, chance: Estimate) -> Verdict:
    """Return whether values are named less often, if they are named more often than by chance."""
    return decide(fall.low > 0, fall.high < LEVEL) if chance.low > 0 else Verdict.UNDECIDED


def stays(fall: Estimate, chance: Estimate) -> Verdict:
    """Return whether values are named no less often, if they are named more often than by chance."""
    return decide(fall.high < LEVEL, fall.low > 0) if chance.low > 0 else Verdict.UNDECIDED


def by_kind_in_table(frames: Frames) -> list[str]:
    """Return the lines of the table of both measures by the kind of facts."""
    both = zip(FACTS, fall(SEEN, frames)[list(FACTS)], beyond_chance(frames)[list(FACTS)], strict=True)
    return table(
        ["kind", "window of 64", "far − not stated"], [[kind, f"{a:+.1f}", f"{b:+.1f}"] for kind, a, b in both]
    )


FALL = Measure("fall by a window of 64, far − near, points", partial(fall, SEEN), 1, "+")
CHANCE = Measure("far − not stated, whole text, points", beyond_chance, 1, "+")
STUDY = Study(
    protocol=__doc__,
    page="in-context",
    claim='reading the whole context "helps generate content that is consistent with the context" (Section 4.1)',
    unit="kinds of facts, twelve prompts each",
    stated="before the run; that kinds are the units, afterwards",
    predictions=(
        Prediction(
            "with 64 tokens and the first in view, a far fact is named less often",
            "confirmed if the fall's interval is above 0, refuted if it is below 10; undecided if with the whole text"
            " the value isn't named more often than by chance",
            (FALL, CHANCE),
            falls,
        ),
        Prediction(
            "the opposite view: it is named no less often, as layers pass on what they need",
            "confirmed if the fall's interval is below 10, refuted if it is above 0, undecided likewise",
            (FALL, CHANCE),
            stays,
        ),
    ),
    control=CHANCE,
    headline="A window of 64 tokens lowers how often SmolLM2-135M names a far fact by {outcome} points more than a near"
    " one; stating it adds {control}, in two of {n} kinds of facts nothing.",
    against="Of cities the window takes {By kind / city / window of 64}, of colours"
    " {By kind / colour / window of 64} points.",
    limits="Windows are cut into a model that was trained without them. Four kinds of facts.",
    tables={
        "The stated value, named": Table(
            "written",
            ("sees", "fact"),
            {"written": per_cent("named"), "at once": per_cent("at once")},
            prepare=_right,
            note="Clopper and Pearson's intervals over 48 prompts.",
        ),
        "By kind": by_kind_in_table,
        "Named less often with windows": lambda frames: table(
            ["attention sees", "written", "at once"],
            [
                [seen, *(estimate(fall(seen, frames, of)).written(1, "+") for of in ("named", "at once"))]
                for seen in list(WINDOWS)[1:3]
            ],
        ),
    },
    measure=measure,
    settings={
        "written": WRITTEN,
        "length": LENGTH,
        "windows": WINDOWS,
        "ways": WAYS,
        "texts": [prompt.texts for prompt in prompts()],
    },
)
