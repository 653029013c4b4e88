"""Claim: "contextual interaction … permeates every phase from training and fine-tuning to prediction" (Section 4.2).

Of fine-tuning; of training see `python -m experiments emergence`.  Run `python -m experiments lora_context`; it writes
experiments/results/lora_context.json and the tables of docs/findings/lora.md, which states beforehand what decides.
"""

from functools import partial
from typing import Any

import numpy as np

import duat_jax as duat
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.evaluation.statistics import IntervalEstimate, bootstrap
from duat_jax.models.transformer import Transformer
from experiments.kept_results import journal_of, kept, store
from experiments.long_context.networks import losses_of
from experiments.lora.tuning import EVERYTHING, LENGTH, METHODS, STEPS, TESTED, Task, english, train_along
from experiments.markdown import Fields, cells, table
from experiments.texts import held_out_sources

SEEDS, STOPS, COMPARED = (1, 2, 3), (10, 30, STEPS), ("rank 16", EVERYTHING)
LATE, NEAR = 20, 8
"""The number of last tokens whose loss is compared, and of those before them that stay when far ones are replaced."""
TEXTS = "the task's", "the base's"
FALLS = 0.25
"""The part of the gain that is lost, from which on fine-tuning counts as wearing it down."""

Results = dict[str, Any]


def losses(model: Transformer, texts: np.ndarray) -> dict[str, list[float]]:
    """Return the loss of every text's last tokens, and that with the far tokens before them from another text."""
    far = LENGTH - LATE - NEAR
    other = np.concatenate([np.roll(texts, 1, axis=0)[:, :far], texts[:, far:]], axis=1)
    both = {"whole": texts, "other": other}
    return {name: losses_of(model, of)[:, -LATE:].mean(1).round(5).tolist() for name, of in both.items()}


def texts_of(task: Task) -> dict[str, np.ndarray]:
    """Return test texts of the task, and others of the kind that the base model was trained on."""
    sources = windows(stream(duat.load_tokenizer(), held_out_sources()), TESTED, LENGTH, seed=0)
    return dict(zip(TEXTS, (task.test, sources), strict=True))


def measured(task: Task, name: str, seed: int) -> dict[str, Any]:
    """Return the losses after some steps of a fine-tuning, by the kind of text."""
    rate = kept("lora_why")["tasks"]["English"]["methods"][name]["rate"]
    models = train_along(duat.load(), task, METHODS[name], rate, seed, STOPS)
    return {
        str(steps): {kind: losses(model, texts) for kind, texts in texts_of(task).items()}
        for steps, model in zip(STOPS, models, strict=True)
    }


def gain(of: dict[str, list[float]]) -> np.ndarray:
    """Return by how much the own far tokens lower the loss of every text."""
    lower: np.ndarray = np.subtract(of["other"], of["whole"])
    return lower


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page."""
    rows = []
    for kind in TEXTS:
        before = gain(results["before"][kind])
        whole = bootstrap(np.array(results["before"][kind]["whole"])).written()
        rows.append([kind, "none", "0", whole, bootstrap(before).written(sign="+"), "", "", ""])
        for name, seeds in results["methods"].items():
            for steps in map(str, STOPS):
                # Texts are the unit; the seeds of a training are averaged.
                after = np.mean([gain(seed[steps][kind]) for seed in seeds], axis=0)
                whole = bootstrap(np.mean([seed[steps][kind]["whole"] for seed in seeds], axis=0)).written()
                more, lost = bootstrap(after - before), _lost(before, after)
                written = bootstrap(after).written(sign="+"), more.written(sign="+"), lost.written(2)
                rows.append([kind, name, steps, whole, *written, _verdict(kind, more, lost)])
    head = ["texts", "fine-tuned", "steps", "loss", "gain by far tokens", "more than before", "part that is lost"]
    text = "\n".join(["### Gain by context along fine-tuning", "", *table([*head, "verdict"], rows)])
    return {"tables": text, **cells(text)}


def _lost(before: np.ndarray, after: np.ndarray) -> IntervalEstimate:
    """Return the part of the gain that is lost, with an interval over texts."""
    return bootstrap(np.stack([before, after], 1), lambda means: 1 - means[..., 1] / means[..., 0])


def _verdict(kind: str, more: IntervalEstimate, lost: IntervalEstimate) -> str:
    """Return whether a task's gain grew, or the base's was worn down."""
    if kind == TEXTS[0]:
        return "grew" if more.low > 0 else "fell" if more.high < 0 else "open"
    return "worn down" if lost.low > FALLS else "kept" if lost.high < FALLS else "open"


def main() -> None:
    """Fine-tune the models, and store the results."""
    settings = {"seeds": SEEDS, "stops": STOPS, "compared": COMPARED, "late": LATE, "near": NEAR}
    journal, task = journal_of("lora_context", settings), english(duat.load_tokenizer())
    before = {kind: losses(duat.load(), texts) for kind, texts in texts_of(task).items()}
    methods = {
        name: [journal.once(f"{name}, seed {seed}", partial(measured, task, name, seed)) for seed in SEEDS]
        for name in COMPARED
    }
    store("lora_context", {"settings": settings, "before": before, "methods": methods})
