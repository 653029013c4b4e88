"""Do the adapters' own terms, with the base's patterns and norms, give the change that adapters make?

A low-rank adapter adds to a weight matrix a product of two thin ones.  A number that a model computes depends on its
weights W and on its dynamic parameters d, which are attention patterns, scales of norms and gates.  With the weights
and the dynamic parameters of either run there are four numbers f(W, d), and the change is a sum of three columns:
*moved*, the base's terms under moved dynamics; *adapter*, the adapters' own under the base's dynamics; and their
*interaction*.  All four runs are real runs, each of whose closed forms is checked.  The secant splits the same change
over the adapters, exactly.  Beside it stand the change to first order in the adapters, and the model run again with
each adapter alone or with each left out.

Adapters are trained on Python's reference manual, in English; the embedded model knows Python code, SmolLM2 English.
The 16 held-out pieces aren't trained on; the split is of the logit of each piece's last token after all before it.
Pieces have 128 tokens, SmolLM2's 64.  An account *misses* the change by its mean error over the mean size of the
change.  SmolLM2's set decides since after the run, too, which changes no verdict.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

import duat_jax as duat
from duat_jax.display.pictures import styled
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.json_record import plain
from duat_jax.lora.adapter import Adapters, adapt, new_adapters, parameters_of, scaled
from duat_jax.lora.change import lora_change
from duat_jax.lora.parameters import moved_parameters
from duat_jax.lora.result import COLUMNS
from duat_jax.lora.training import TrainingSettings, train
from experiments import run, smollm2
from experiments.estimate import Estimate, ratio
from experiments.pictures.panels import OURS, dots
from experiments.study import Measure, Measurements, Picture, Piece, Prediction, Row, Study
from experiments.table import Cell, Frames, Table, rows_of
from experiments.texts import manual
from experiments.verdict import below, every

HELD_OUT, SEED, RATE = 16, 0, 2e-3
ATTENTION, MLP = ("c_attn", "attn.c_proj"), ("c_fc", "mlp.c_proj")


class Training(NamedTuple):
    """Settings of one training.

    Args:
        model: which model.
        modules: which layers; all if empty.
        rank: of every update.
        steps: how many.
        batch: pieces of text of a step.
        length: tokens of a piece of text.
        texts: how many held-out pieces the change is split on.
    """

    model: str
    modules: tuple[str, ...]
    rank: int
    steps: int
    batch: int = 4
    length: int = 128
    texts: int = HELD_OUT


EMBEDDED, SMOLLM2 = "the embedded model", "SmolLM2-135M-Instruct"
TRAININGS = {
    "every layer": Training(EMBEDDED, (), 8, 100),
    "every layer, 20 steps": Training(EMBEDDED, (), 8, 20),
    "attention alone": Training(EMBEDDED, ATTENTION, 8, 100),
    "MLPs alone": Training(EMBEDDED, MLP, 8, 100),
    "every layer, rank 1": Training(EMBEDDED, (), 1, 100),
    "SmolLM2, queries and values": Training(SMOLLM2, ("q_proj", "v_proj"), 8, 100, 2, 64),
}


@jax.jit
def _run(model: Any, adapters: Adapters, ids: Any, scales: Any) -> Any:
    return jax.lax.map(lambda scale: adapt(model, scaled(adapters, scale)).states(model.embed(ids))[-1], scales)


def _left_out(model: Any, adapters: Adapters, ids: Any, token: int) -> dict[str, float]:
    """Measure the decrease of the logit when one adapter is left out, for each adapter."""
    names = list(adapters)
    without = 1 - np.eye(len(names) + 1, len(names), dtype=np.float32)
    scales = {name: jnp.asarray(without[:, i]) for i, name in enumerate(names)}
    logits = np.asarray(_run(model, adapters, ids, scales) @ model.unembedding[token])
    return dict(zip(names, (logits[-1] - logits[:-1]).tolist(), strict=True))


class Adapted(NamedTuple):
    """A model with trained adapters.

    Args:
        model: the base.
        adapters: the adapters.
        losses: the losses along their training.
        held_out: pieces of text that they weren't trained on.
    """

    model: Any
    adapters: Adapters
    losses: np.ndarray
    held_out: np.ndarray


@lru_cache(1)
def trained(name: str) -> Adapted:
    """Train adapters, or go on with a training that was stopped."""
    training = TRAININGS[name]
    path = smollm2.path() if training.model == SMOLLM2 else None
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    pieces = windows(stream(tokenizer, manual()), None, training.length, seed=SEED)
    adapters = new_adapters(model, training.modules, rank=training.rank, seed=SEED)
    settings = TrainingSettings(training.steps, training.batch, RATE, SEED)
    work = run.FOLDER / "work" / f"lora-{name.replace(',', '').replace(' ', '-')}.safetensors"
    adapters, losses = train(model, adapters, pieces[HELD_OUT:], settings, work=work)
    return Adapted(model, adapters, losses, pieces[: training.texts])


def split(name: str, text: int) -> Row:
    """Decompose the adapters' change of the logit of a text's last token, given the tokens before it."""
    model, adapters, _, held_out = trained(name)
    ids, token = held_out[text, :-1], int(held_out[text, -1])
    change = lora_change(model, adapters, ids, token)
    content = change.as_dict("")
    left_out = _left_out(model, adapters, jnp.asarray(ids), token)
    checks = change.completeness, change.by_adapter, *change.corners
    return {
        "difference": content["difference"],
        **content["totals"],
        "first order": content["first_order"],
        "holds": all(check.verdict == "holds" for check in checks),
        "error": float(change.completeness.error),
        "parts": [of["part"] for of in content["adapters"]],
        "first orders": [of["first_order"] for of in content["adapters"]],
        "alone": [of["alone"] for of in content["adapters"]],
        "left out": [left_out[of["name"]] for of in content["adapters"]],
    }


def moved(name: str) -> list[Row]:
    """Return how far each term's parameters moved on the first text, relative to their size."""
    model, adapters, _, held_out = trained(name)
    found = plain(moved_parameters(model, adapters, held_out[0, :-1]))
    by_term = zip(
        found["inner_maps"],
        list(found["input_maps"].values())[1:],
        list(found["biases"].values())[1:],
        *(found[key].values() for key in ("inner_maps", "inner_biases", "outer_maps")),
        strict=True,
    )
    return [
        {
            "term": term,
            **{
                parameter: each["value"] if isinstance(each, dict) else each
                for parameter, each in zip(PARAMETERS, of, strict=True)
            },
        }
        for term, *of in by_term
    ]


PARAMETERS = "W'₁", "b'₃", "W'₂", "b'₂", "W'₃"


def sizes(name: str) -> Row:
    """Return the number of trained numbers, and held-out losses before and after."""
    of = trained(name)
    return {
        "numbers": parameters_of(of.adapters),
        "loss before": mean_loss(of.model, of.held_out),
        "loss after": mean_loss(adapt(of.model, of.adapters), of.held_out),
        "losses": of.losses,
    }


def measure() -> Measurements:
    """Yield every training's sizes, and its change on every text."""
    for name, training in TRAININGS.items():
        keys: dict[str, str | int] = {"adapters": name}
        yield Piece("trainings", keys | {"model": training.model, "rank": training.rank}, partial(sizes, name))
        yield Piece("moved", keys, partial(moved, name))
        for text in range(training.texts):
            yield Piece("texts", keys | {"text": text}, partial(split, name, text))


OWN, FIRST, EACH_ALONE, EACH_LEFT_OUT = MISSES = (
    "the adapters' column misses",
    "first order",
    "each alone, summed",
    "each left out, summed",
)
ACCOUNTS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    OWN: lambda texts: texts.adapter,
    FIRST: lambda texts: texts["first order"],
    EACH_ALONE: lambda texts: texts.alone.map(sum),
    EACH_LEFT_OUT: lambda texts: texts["left out"].map(sum),
}
"""Accounts of the change, by the number that they give for each text."""


def missed(account: str, texts: pd.DataFrame) -> Estimate:
    """Return by how much an account misses the change, in per cent of it."""
    off = (ACCOUNTS[account](texts) - texts.difference).abs()
    return ratio(off, texts.difference.abs(), of_sizes=True).scaled(100)


def of_training(account: str, adapters: str, frames: Frames) -> Estimate:
    """Return by how much an account misses the change that a training's adapters make."""
    return missed(account, rows_of(frames["texts"], adapters=adapters))


def miss(account: str, adapters: str) -> Measure:
    """Return the measure of an account's miss."""
    return Measure(f"{adapters}: {account}, %", partial(of_training, account, adapters), 1)


def agreement(first: str, second: str) -> Cell:
    """Return the cell of the rank correlation of two numbers of every adapter, of each text."""

    def of_texts(texts: pd.DataFrame) -> list[float]:
        return [spearmanr(*of).statistic for of in zip(texts[first], texts[second], strict=True)]

    return Cell(of_texts)


def picture() -> dict[str, Any]:
    """Return by how much three simpler accounts miss the change that adapters make."""
    frames, shown = run.frames_of("lora"), [name for name in TRAININGS if name != "every layer, 20 steps"]
    return {
        account: {name: [round(end, 4) for end in of_training(account, name, frames)[:3]] for name in shown}
        for account in MISSES[:3]
    }


@styled
def draw_lora(numbers: dict[str, Any]) -> Figure:
    """Draw by how much three simpler accounts miss the change that adapters make."""
    figure = Figure(figsize=(8.6, 2.6))
    titles = "the adapters' own terms", "first order in the adapters", "each adapter alone, summed"
    for axes, title, estimates in zip(figure.subplots(1, 3, sharey=True), titles, numbers.values(), strict=True):
        dots(axes, estimates, OURS)
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.axvline(100, color="black", linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("miss, in % of the change")
    return figure


EXACT = 10.0
"""A miss in per cent, up to which an account would give the change."""
MISSED = "What misses the change"
SHOWN = "every layer", "attention alone", "MLPs alone"
"""Trainings whose moved parameters are shown."""


def _mean_size(column: str) -> Callable[[pd.DataFrame], str]:
    return lambda texts: f"{texts[column].abs().mean():.3f}"


STUDY = Study(
    protocol=__doc__,
    page="lora",
    claim='"LoRA essentially fine-tunes the DUAT parameters layer by layer for a specific task" (Section 4.4)',
    unit="held-out texts",
    stated="after the run",
    predictions=(
        Prediction(
            "the adapters' own terms, with the base's patterns and norms, give the change",
            f"confirmed if they miss it by less than {EXACT} % in each set, refuted if by more",
            tuple(miss(OWN, name) for name in TRAININGS),
            every(below, EXACT),
        ),
        Prediction(
            "the change is of first order in the adapters",
            f"confirmed if first order misses it by less than {EXACT} % in each set, refuted if by more",
            tuple(miss(FIRST, name) for name in TRAININGS),
            every(below, EXACT),
        ),
    ),
    control=miss(FIRST, "attention alone"),
    headline="With the base's patterns and norms held, adapters' own terms miss the change of a logit by {outcome} to"
    f" {{{MISSED} / every layer, 20 steps / {OWN}}} % in five sets of the embedded model, and by {{{MISSED} / SmolLM2,"
    f" queries and values / {OWN} / value}} % in SmolLM2; first order misses it by {{control}} to {{{MISSED} / every"
    f" layer, rank 1 / {FIRST} / value}} %, in SmolLM2 by {{{MISSED} / SmolLM2, queries and values / {FIRST} / value}}"
    " % ({n} texts).",
    against="A miss says little where the parts of the change cancel: in SmolLM2 the change has a size of"
    " {The three columns / SmolLM2, queries and values / change}, the adapters' own terms one of"
    " {The three columns / SmolLM2, queries and values / adapter}.",
    limits="Six short trainings with one seed, one logit of each text. Patterns and norms that move are parameters of"
    ' the papers\' form, too: a miss with them held speaks against "layer by layer" alone.',
    tables={
        "What was trained": Table(
            "trainings",
            ("adapters", "model", "rank"),
            {
                "numbers": Cell(lambda rows: f"{rows.numbers.iloc[0]:,}"),
                "loss before": Cell("loss before"),
                "loss after": Cell("loss after"),
            },
        ),
        "The three columns": Table(
            "texts",
            ("adapters",),
            {
                "change": Cell(lambda texts: f"{texts.difference.abs().mean():.3f}"),
                **{column: Cell(_mean_size(column)) for column in COLUMNS},
                "sums hold": Cell(lambda texts: f"{texts.holds.sum()} of {len(texts)}"),
                "largest error": Cell(lambda texts: f"{texts.error.abs().max():.0e}"),
            },
            note="Mean sizes over the texts.",
        ),
        MISSED: Table(
            "texts",
            ("adapters",),
            {account: Cell(partial(missed, account), 1) for account in ACCOUNTS},
            note="Per cent.",
        ),
        "Agreement with running the model again": Table(
            "texts",
            ("adapters",),
            {
                f"{said} with {other}": agreement(first, other)
                for said, first in (("parts", "parts"), ("first order", "first orders"))
                for other in ("alone", "left out")
            },
            note="Rank correlation over the adapters.",
        ),
        "How far the parameters moved": Table(
            "moved",
            ("adapters", "term"),
            {parameter: Cell(parameter, 1, scale=100) for parameter in PARAMETERS},
            prepare=lambda moved: moved[moved.adapters.isin(SHOWN)],
            note="On one text, in per cent of each parameter's size.",
        ),
    },
    measure=measure,
    pictures={
        "lora": Picture(
            picture,
            draw_lora,
            "By how much three simpler accounts miss the change of a logit that adapters make: one that leaves out"
            " moved patterns and norms, one that leaves out higher orders, one that leaves out what adapters do"
            " together. At 100 % (dotted) the miss is as large as the change. Lines are 95 % intervals over texts.",
        )
    },
    settings={"trainings": {name: training._asdict() for name, training in TRAININGS.items()}, "rate": RATE},
)
