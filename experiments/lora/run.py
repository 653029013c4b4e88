"""Claim: the change by adapters is an exact sum; its share of first order, and the accuracy of each adapter's part.

Run `python -m experiments lora`; it trains adapters on Python's manual, writes experiments/results/lora.json and
the tables in docs/findings/lora.md. What is finished is kept in experiments/results/work, and a killed run goes on.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import duat_jax as duat
from duat_jax.cli.progress import progress_bar
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import mean_loss, stream, windows
from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from duat_jax.json_record import plain
from duat_jax.lora.adapter import Adapters, adapt, new_adapters, parameters_of, scaled
from duat_jax.lora.change import lora_change
from duat_jax.lora.parameters import moved_parameters
from duat_jax.lora.result import COLUMNS
from duat_jax.lora.training import TrainingSettings, train
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, cells, interval, table
from experiments.texts import manual

RESULTS, WORK = Path("experiments/results/lora.json"), Path("experiments/results/work")
HELD_OUT, SEED = 16, 0
ATTENTION, MLP = ("c_attn", "attn.c_proj"), ("c_fc", "mlp.c_proj")


class Training(NamedTuple):
    """Settings of one training.

    Args:
        model: which model.
        modules: which layers; all if empty.
        rank: of every update.
        steps: how many.
        length: tokens of a piece of text.
        texts: how many held-out pieces the change is split on.
    """

    model: str
    modules: tuple[str, ...]
    rank: int
    steps: int
    length: int = 128
    texts: int = HELD_OUT


EMBEDDED, SMOLLM2 = "the embedded model", "SmolLM2-135M-Instruct"
TRAININGS = {
    "every layer": Training(EMBEDDED, (), 8, 100),
    "every layer, 20 steps": Training(EMBEDDED, (), 8, 20),
    "attention alone": Training(EMBEDDED, ATTENTION, 8, 100),
    "MLPs alone": Training(EMBEDDED, MLP, 8, 100),
    "every layer, rank 1": Training(EMBEDDED, (), 1, 100),
    "SmolLM2, queries and values": Training(SMOLLM2, ("q_proj", "v_proj"), 8, 100, 64),
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


def _split(model: Any, adapters: Adapters, piece: np.ndarray) -> dict[str, Any]:
    """Decompose the adapters' change of the logit of a piece's last token, given the tokens before it."""
    ids, token = piece[:-1], int(piece[-1])
    change = lora_change(model, adapters, ids, token)
    content = change.as_dict("")
    names = "before", "after", "difference", "rows", "totals", "adapters", "first_order", "first_order_held"
    return {
        **{name: content[name] for name in names},
        "verdicts": [
            change.completeness.verdict,
            change.by_adapter.verdict,
            *(corner.verdict for corner in change.corners),
        ],
        "error": float(change.completeness.error),
        "left_out": _left_out(model, adapters, jnp.asarray(ids), token),
    }


def _measure(name: str, training: Training) -> dict[str, Any]:
    path = smollm2.path() if training.model == SMOLLM2 else None
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    pieces = windows(stream(tokenizer, manual()), None, training.length, seed=SEED)
    held_out, trained_on = pieces[:HELD_OUT], pieces[HELD_OUT:]
    adapters = new_adapters(model, training.modules, rank=training.rank, seed=SEED)
    settings = TrainingSettings(training.steps, 4 if path is None else 2, 2e-3, SEED)
    WORK.mkdir(parents=True, exist_ok=True)
    stem = name.replace(",", "").replace(" ", "-")
    with progress_bar(name, "steps") as progress:
        adapters, losses = train(
            model, adapters, trained_on, settings, work=WORK / f"lora-{stem}.safetensors", progress=progress
        )
    work = {**training._asdict(), "modules": list(training.modules), **settings._asdict()}
    journal = Journal(WORK / f"lora-{stem}.jsonl", work)
    once: Callable = journal.once
    measured = held_out[: training.texts]
    return {
        "asked": training._asdict(),
        "settings": settings._asdict(),
        "parameters": parameters_of(adapters),
        "losses": losses.tolist(),
        "before": once("before", lambda: mean_loss(model, measured)),
        "after": once("after", lambda: mean_loss(adapt(model, adapters), measured)),
        "moved": once("moved", lambda: plain(moved_parameters(model, adapters, held_out[0, :-1]))),
        "texts": [once(f"text {i}", partial(_split, model, adapters, piece)) for i, piece in enumerate(measured)],
    }


def _ranks(values: Any) -> np.ndarray:
    return np.argsort(np.argsort(values)).astype(float)


def _agreements(texts: list[dict], numbers_of: Callable[[dict, dict], tuple[float, float]]) -> list[float]:
    """Return each text's rank correlation of two numbers of every adapter."""
    correlations = []
    for text in texts:
        first, second = zip(*(numbers_of(text, effect) for effect in text["adapters"]), strict=True)
        correlations.append(np.corrcoef(_ranks(first), _ranks(second))[0, 1])
    return correlations


def _share(means: np.ndarray) -> np.ndarray:
    """Return the mean size of an error over the mean size of the difference, `[..., 2]`, in percent."""
    return 100 * means[..., 0] / means[..., 1]


def _sizes(texts: list[dict], error: Callable[[dict], float]) -> np.ndarray:
    return np.array([[abs(error(text)), abs(text["difference"])] for text in texts])


def _tables(results: dict[str, Any]) -> str:
    done = results["trainings"]
    trained = [
        [
            f"{name} ({training['asked']['model']}, rank {training['asked']['rank']})",
            f"{training['parameters']:,}",
            f"{training['asked']['steps']}",
            f"{training['before']:.3f}",
            f"{training['after']:.3f}",
        ]
        for name, training in done.items()
    ]
    lines = [
        "### What was trained",
        "",
        *table(["adapters", "numbers", "steps", "loss before", "loss after"], trained),
        "",
        "### The three columns",
        "",
        "Mean sizes over the held-out texts, of the change of the logit of the token that comes next.",
        "",
    ]
    rows = []
    for name, training in done.items():
        texts = training["texts"]
        sizes = [np.mean([abs(text["totals"][column]) for text in texts]) for column in COLUMNS]
        holding = sum(set(text["verdicts"]) == {"holds"} for text in texts)
        rows.append(
            [
                name,
                str(len(texts)),
                f"{np.mean([abs(text['difference']) for text in texts]):.3f}",
                *(f"{size:.3f}" for size in sizes),
                f"{holding} of {len(texts)}",
                f"{max(abs(text['error']) for text in texts):.0e}",
            ]
        )
    head = ["adapters", "texts", "change", "moved", "adapter", "interaction", "sums hold", "largest error"]
    lines += [
        *table(head, rows),
        "",
        "### What misses the change",
        "",
        "Errors are mean sizes, in percent of the mean size of the change, with intervals of 95 % by bootstrap"
        " over the texts.",
        "",
    ]
    rows = []
    errors: tuple[Callable[[dict], float], ...] = (
        lambda text: text["totals"]["adapter"] - text["difference"],
        lambda text: text["first_order"] - text["difference"],
        lambda text: sum(e["alone"] for e in text["adapters"]) - text["difference"],
        lambda text: sum(text["left_out"].values()) - text["difference"],
    )
    for name, training in done.items():
        missed = [interval(bootstrap(_sizes(training["texts"], error), _share), 1) for error in errors]
        sizes = _sizes(training["texts"], lambda text: sum(e["part"] for e in text["adapters"]) - text["difference"])
        parts = _share(sizes.mean(0))
        rows.append([name, *missed, f"{parts:.0e}"])
    misses = ["the adapters' column misses", "first order", "each alone, summed", "each left out, summed", "parts"]
    lines += [
        *table(["adapters", *misses], rows),
        "",
        "Rank correlation over the adapters with what running the model again says, mean over texts.",
        "",
    ]
    rows = []
    rerun: tuple[Callable[[dict, dict], float], ...] = (
        lambda text, effect: effect["alone"],
        lambda text, effect: text["left_out"][effect["name"]],
    )
    for name, training in done.items():
        numbers = [
            interval(_agreements(training["texts"], lambda text, effect, by=by, to=to: (effect[by], to(text, effect))))
            for by in ("part", "first_order")
            for to in rerun
        ]
        rows.append([name, *numbers])
    compared = [f"{first} with {second}" for first in ("parts", "first order") for second in ("alone", "left out")]
    lines += [*table(["adapters", *compared], rows), "", "### How far the parameters moved", ""]
    for name in ("every layer", "attention alone", "MLPs alone"):
        if name in done:
            lines += [
                f"{name}, on one held-out text, in percent of each parameter's size, with intervals of 95 % over the"
                " random vectors of the estimates:",
                "",
                *_moved(done[name]),
                "",
            ]
    return "\n".join(lines)


def _moved(training: dict[str, Any]) -> list[str]:
    moved = training["moved"]
    rows = zip(
        moved["inner_maps"],
        list(moved["input_maps"].values())[1:],
        list(moved["biases"].values())[1:],
        moved["inner_maps"].values(),
        moved["inner_biases"].values(),
        moved["outer_maps"].values(),
        strict=True,
    )

    def cell(value: Any) -> str:
        if isinstance(value, dict) and value["value"]:
            share, reach = 100 * value["value"], 196 * value["standard_error"]
            return interval(IntervalEstimate(share, share - reach, share + reach), 1)
        return f"{100 * value:.1f}" if isinstance(value, float) and value else "0"

    return table(["term", "W'₁", "b'₃", "W'₂", "b'₂", "W'₃"], [[row[0], *map(cell, row[1:])] for row in rows])


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    tables = _tables(results)
    return {"tables": tables, **cells(tables)}


def main(options: Sequence[str]) -> None:
    """Run missing trainings, and store the results."""
    parser = argparse.ArgumentParser(
        prog="lora", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--training", choices=TRAININGS, action="append", help="only this one")
    arguments = parser.parse_args(options)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": environment(), "trainings": {}}
    for name in arguments.training or TRAININGS:
        if name not in results["trainings"]:
            trainings = results["trainings"] | {name: _measure(name, TRAININGS[name])}
            results["trainings"] = {known: trainings[known] for known in TRAININGS if known in trainings}
            RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
