"""Question: does the lead of scores over masks hold on other tasks, for heads, in another model and with means?

Run `python -m experiments masks_elsewhere`; it writes experiments/results/masks_elsewhere.json and tables in
docs/findings/circuits.md, which states beforehand what decides.  A task that a stopped run has finished isn't run
again.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from rich.progress import track

import duat_jax as duat
from duat_jax.evaluation.circuit_curve import FRACTIONS
from duat_jax.evaluation.circuits import UNITS, UnitKind, run, top, values
from duat_jax.evaluation.refined_ranking import refine
from duat_jax.inputs.prompts import Prompt, draw
from duat_jax.models.transformer import Transformer
from experiments import smollm2
from experiments.edges.run import KNOWN, NEW
from experiments.kept_results import journal_of, kept, store
from experiments.markdown import Fields, cells
from experiments.masks.elsewhere_scores import FIRST, METHODS, OPTIMISED, Scores
from experiments.masks.elsewhere_tables import leads, tables_of
from experiments.task_curves import Kept, measured

SMOLLM2, EMBEDDED = "SmolLM2-135M", "embedded"
SEED, OTHERS, STEPS = 5, 64, 60
"""The seed of the prompts, the number of other prompts whose texts means are taken over, and the steps of a ranking
that is optimised on one prompt."""


class Setting(NamedTuple):
    """A setting of the study.

    Args:
        model: which model.
        tasks: names of tasks.
        kind: a name in `UNITS`.
        prompts: the number of prompts of each task.
        means: whether units that aren't live have their means over other prompts' corrupted texts; the circuits are
            then also run with the own corrupted text's values, which their scores don't know.
    """

    model: str
    tasks: tuple[str, ...]
    kind: str
    prompts: int
    means: bool = False


CROSSED, EMPTY = "crossed, ", "empty"
NEURONS, HEADS = "neuron x position", "head x position"
SETTINGS = {
    "heads": Setting(SMOLLM2, NEW + KNOWN, HEADS, 32),
    "means": Setting(SMOLLM2, NEW + KNOWN, NEURONS, 32, means=True),
    "known tasks": Setting(SMOLLM2, KNOWN, NEURONS, 100),
    "code, neurons": Setting(EMBEDDED, ("parameter",), NEURONS, 100),
    "code, heads": Setting(EMBEDDED, ("parameter",), HEADS, 100),
}


@partial(jax.jit, static_argnames=("scores", "kind"))
def scored(
    scores: Scores, model: Transformer, prompt: Prompt, kind: UnitKind, replaced: Float[Array, "layers tokens *unit"]
) -> Array:
    """Return the score of each unit."""
    return scores(model, prompt, kind, replaced)


def piece(model: Transformer, tokenizer: Any, task: str, setting: Setting) -> Kept:
    """Return the logit differences of every method's circuits on one task."""
    kind, means = UNITS[setting.kind], None
    if setting.means:
        others = draw(model, task, setting.prompts + OTHERS, seed=SEED).prompts.corrupted[setting.prompts :]
        means = jax.lax.map(lambda ids: values(model, ids, kind), others).mean(0)

    def of_prompt(i: int, prompt: Prompt) -> Mapping[str, Array]:
        own = values(model, prompt.corrupted, kind)
        given = own if means is None else means
        circuits = {
            name: jnp.asarray(top(np.asarray(scored(scores, model, prompt, kind, given))))
            for name, (scores, _) in METHODS.items()
        }
        runs = {name: run(model, prompt, kind, live, given) for name, live in circuits.items()}
        if means is not None:
            empty = jnp.zeros_like(circuits[FIRST][:1])
            crossed = {CROSSED + name: run(model, prompt, kind, live, own) for name, live in circuits.items()}
            runs |= crossed | {EMPTY: run(model, prompt, kind, empty, means)}
        return runs

    found = measured(model, tokenizer, task, setting.prompts, SEED, of_prompt)
    if means is None:
        return found
    runs = found["runs"]
    return found | {
        "empty": [each[0] for each in runs[EMPTY]],
        "runs": {name: runs[name] for name in METHODS},
        "crossed": {name: runs[CROSSED + name] for name in METHODS},
    }


def optimised(model: Transformer, tokenizer: Any, task: str) -> Kept:
    """Return the logit differences of circuits that are optimised on one prompt, beside those of two scores."""
    kind = UNITS[NEURONS]

    def of_prompt(i: int, prompt: Prompt) -> Mapping[str, Array]:
        replaced = values(model, prompt.corrupted, kind)
        chosen = {name: METHODS[name][0] for name in (FIRST, "secant")}
        found = {name: np.asarray(scored(of, model, prompt, kind, replaced)) for name, of in chosen.items()}
        alone = jax.tree.map(lambda leaf: leaf[None], prompt)
        found[f"optimised, {STEPS} steps"] = refine(model, alone, kind, found[FIRST], replaced[None], STEPS)
        return {name: run(model, prompt, kind, jnp.asarray(top(scores)), replaced) for name, scores in found.items()}

    return measured(model, tokenizer, task, 1, SEED, of_prompt)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation page."""
    eight = {
        name: task | {"runs": {method: of["kept"] for method, of in task["runs"].items()}}
        for name, task in kept("masks")["tasks"].items()
    }
    text = tables_of(results["tasks"], eight)
    return {"tables": text, **cells(text), **leads(results["tasks"])}


def main(options: Sequence[str]) -> None:
    """Run what isn't kept, and store the results."""
    parser = argparse.ArgumentParser(
        prog="masks_elsewhere", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--setting", choices=(*SETTINGS, OPTIMISED), action="append", help="only this one, for the journal alone"
    )
    chosen = parser.parse_args(options).setting or (*SETTINGS, OPTIMISED)
    asked = {
        "settings": {name: setting._asdict() for name, setting in SETTINGS.items()},
        "methods": {name: passes for name, (_, passes) in METHODS.items()},
        "seed": SEED,
        "others": OTHERS,
        "steps": STEPS,
        "fractions": FRACTIONS,
    }
    journal = journal_of("masks_elsewhere", {"asked": asked})
    loaded: dict[str, tuple[Transformer, Any]] = {}

    def compute_with_model(name: str, compute: Callable[..., Kept]) -> Kept:
        jax.clear_caches()  # each task's length of text has programs of its own, which together fill the memory
        if name not in loaded:
            path = smollm2.path() if name == SMOLLM2 else None
            loaded[name] = duat.load(path), duat.load_tokenizer(path)
        return compute(*loaded[name])

    found: dict[str, dict[str, Kept]] = {}
    for name, setting in SETTINGS.items():
        if name in chosen:
            found[name] = {
                task: journal.once(
                    f"{name}; {task}",
                    partial(compute_with_model, setting.model, partial(piece, task=task, setting=setting)),
                )
                for task in track(setting.tasks, name)
            }
    if OPTIMISED in chosen:
        found[OPTIMISED] = {
            task: journal.once(
                f"{OPTIMISED}; {task}", partial(compute_with_model, SMOLLM2, partial(optimised, task=task))
            )
            for task in track(NEW + KNOWN, OPTIMISED)
        }
    if len(found) <= len(SETTINGS):
        return  # what is finished is in the journal
    results = {"asked": asked, "tasks": found}
    store("masks_elsewhere", results)
