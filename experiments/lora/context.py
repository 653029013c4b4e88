"""Claim: "contextual interaction … permeates every phase from training and fine-tuning to prediction" (Section 4.2).

Of fine-tuning; of training see `make emergence`.  Run `make lora_context`; it writes
experiments/results/lora_context.json and the tables of docs/lora.md, which states beforehand what decides.
"""

from functools import partial
from typing import Any

import numpy as np

import duat_jax as duat
from duat_jax.cli.compiled import keep_compiled
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.evaluation.statistics import bootstrap, students_mean
from duat_jax.models.transformer import Transformer
from experiments.kept_results import journal_of, store
from experiments.long_context.networks import losses_of
from experiments.lora.tuning import EVERYTHING, LENGTH, METHODS, STEPS, TESTED, Task, english, train_along
from experiments.pages import Fields, cells, kept, table
from experiments.texts import held_out_sources

SEEDS, STOPS, COMPARED = (1, 2, 3), (10, 30, STEPS), ("rank 16", EVERYTHING)
LATE, NEAR = 20, 8
"""The number of last tokens whose loss is compared, and of those before them that stay when far ones are cut off."""
TEXTS = "the task's", "the base's"
FALLS = 0.25
"""The part of the gain that is lost, from which on fine-tuning counts as wearing it down."""

Results = dict[str, Any]


def gains(model: Transformer, texts: np.ndarray) -> list[float]:
    """Return of every text how much higher the loss of its last tokens is with all but few tokens before them cut off.

    Args:
        model: the model.
        texts: texts of `LENGTH` tokens.
    """
    whole = losses_of(model, texts)[:, -LATE:].mean(1)
    cut = losses_of(model, texts[:, -LATE - NEAR :])[:, -LATE:].mean(1)
    found: list[float] = np.round(cut - whole, 5).tolist()
    return found


def texts_of(task: Task) -> dict[str, np.ndarray]:
    """Return test texts of the task, and others of the kind that the base model was trained on.

    Args:
        task: the task.
    """
    sources = windows(stream(duat.load_tokenizer(), held_out_sources()), TESTED, LENGTH, seed=0)
    return dict(zip(TEXTS, (task.test, sources), strict=True))


def measured(task: Task, name: str, seed: int) -> dict[str, Any]:
    """Return the gains after some steps of a fine-tuning, by the kind of text.

    Args:
        task: the task.
        name: of the method.
        seed: of the training.
    """
    rate = kept("lora_why")["tasks"]["English"]["methods"][name]["rate"]
    models = train_along(duat.load(), task, METHODS[name], rate, seed, STOPS)
    return {
        str(steps): {kind: gains(model, texts) for kind, texts in texts_of(task).items()}
        for steps, model in zip(STOPS, models, strict=True)
    }


def fields(results: Results) -> Fields:
    """Return the fields of the documentation page.

    Args:
        results: what was kept.
    """
    rows = []
    for kind in TEXTS:
        before = np.array(results["before"][kind])
        rows.append([kind, "none", "0", bootstrap(before).written(sign="+"), "", _there(before), ""])
        for name, seeds in results["methods"].items():
            for steps in map(str, STOPS):
                of_seeds = np.array([seed[steps][kind] for seed in seeds])
                more = students_mean(of_seeds.mean(1) - before.mean())
                fell = students_mean(1 - of_seeds.mean(1) / before.mean())
                verdict = "worn down" if fell.low > FALLS else "kept" if fell.high < FALLS else "open"
                gain = bootstrap(of_seeds.mean(0)).written(sign="+")
                rows.append([kind, name, steps, gain, more.written(sign="+"), _there(of_seeds.mean(0)), verdict])
    head = ["texts", "fine-tuned", "steps", "gain by far tokens", "more than before", "a gain", "of the gain"]
    text = "\n".join(["### Gain by context along fine-tuning", "", *table(head, rows)])
    return {"tables": text, **cells(text)}


def _there(gain: np.ndarray) -> str:
    found = bootstrap(gain)
    return "yes" if found.low > 0 else "no" if found.high < 0 else "open"


def main() -> None:
    """Fine-tune the models, store the results, and write the page."""
    keep_compiled()
    settings = {"seeds": SEEDS, "stops": STOPS, "compared": COMPARED, "late": LATE, "near": NEAR}
    journal, task = journal_of("lora_context", settings), english(duat.load_tokenizer())
    before = {kind: gains(duat.load(), texts) for kind, texts in texts_of(task).items()}
    methods = {
        name: [journal.once(f"{name}, seed {seed}", partial(measured, task, name, seed)) for seed in SEEDS]
        for name in COMPARED
    }
    store("lora_context", {"settings": settings, "before": before, "methods": methods})


if __name__ == "__main__":
    main()
