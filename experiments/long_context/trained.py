"""Claim: attention reads the context as a whole, and a 1D convolution in fragments (Wang & Li, Section 4.1, Figure 5).

Beside it stands LongLoRA, which `001` names as a way to long texts.  Run `python -m experiments long_context_trained`;
it writes experiments/results/long_context_trained.json and the tables in docs/findings/long-context.md, which states
beforehand
what decides.  What is measured is kept in experiments/results/work as it is finished: a run that was stopped goes on.
"""

from functools import partial

import jax.numpy as jnp
from flax import nnx

from duat_jax.evaluation.journal import Journal
from duat_jax.models.transformer import Transformer
from experiments.kept_results import journal_of, store
from experiments.long_context import afterwards, extension, longer
from experiments.long_context.choice import SEEDS, at_the_edge, best, sizes_of
from experiments.long_context.measures import Found, measure, recall, rounded
from experiments.long_context.networks import FULL, KINDS, count, losses_of, network, train
from experiments.long_context.tasks import HELD_OUT, TESTED, TRAINING, held_out_texts, training_texts
from experiments.long_context.trained_report import tables
from experiments.markdown import Fields, cells

TRIAL_SEED = 3
STEPS = 3000, 6000
"""Steps of a training: the first number with which full attention recalls a word, or the last one."""
RATES = 0.5, 1.0, 2.0
"""Factors of the embedded model's learning rates that are tried."""
VERSION = 2
"""Of the measurements; results of another one aren't gone on with."""


def trained(kind: str, rate: float, seed: int, steps: int) -> Transformer:
    """Return a trained network."""
    model = network(sizes_of(kind), nnx.Rngs(seed))
    return train(model, jnp.asarray(training_texts(TRAINING, steps, seed)), jnp.asarray(rate))[0]


def trial(kind: str, rate: float, steps: int) -> float:
    """Return the validation loss of a network that is trained with a rate, in a quarter of the steps."""
    model = trained(kind, rate, TRIAL_SEED, steps // 4)
    return rounded(losses_of(model, held_out_texts(TRAINING.tokens, 0)[0]).mean())


def recalled(steps: int) -> dict[str, float]:
    """Return how full attention recalls after some steps, by the texts for choosing."""
    texts = held_out_texts(TRAINING.tokens, 0)[0]
    return {name: rounded(loss) for name, loss in recall(trained(FULL, 1.0, TRIAL_SEED, steps), texts).items()}


def measured(kind: str, rate: float, seed: int, steps: int) -> Found:
    """Return what is measured on a trained network."""
    return measure(trained(kind, rate, seed, steps))


def untrained(kind: str) -> Found:
    """Return what is measured on a network before its training, and the number of its parameters."""
    sizes = sizes_of(kind)
    return {"parameters": count(sizes), "neurons": sizes.neurons, **measure(network(sizes, nnx.Rngs(0)))}


def enough_steps(journal: Journal) -> int:
    """Return the steps of all trainings: the fewest with which full attention recalls a word at half the loss."""
    for steps in STEPS:
        losses = journal.once(f"{FULL}, {steps} steps", partial(recalled, steps))
        if losses["64"] < losses["64, first copy"] / 2:
            return steps
    return STEPS[-1]


def compare_kinds(journal: Journal, steps: int) -> Found:
    """Return what is measured on networks of all kinds, before and after training."""
    found: Found = {}
    for kind in KINDS:
        trials = {rate: journal.once(f"{kind}, rate {rate}", partial(trial, kind, rate, steps)) for rate in RATES}
        found[kind] = {
            "untrained": journal.once(f"{kind}, untrained", partial(untrained, kind)),
            "trials": list(trials.items()),
            "rate": best(trials),
            "at the edge": at_the_edge(trials),
            "seeds": [],
        }
    for seed in SEEDS:
        for kind, of_kind in found.items():
            compute = partial(measured, kind, of_kind["rate"], seed, steps)
            of_kind["seeds"].append(journal.once(f"{kind}, seed {seed}", compute))
    return found


def fields(results: Found) -> Fields:
    """Return the fields of the documentation pages."""
    text = tables(results)
    return {"tables": text, **cells(text)}


def main() -> None:
    """Run what isn't measured yet, and store the results."""
    work = {
        "version": VERSION,
        "training": TRAINING._asdict(),
        "steps": STEPS,
        "rates": RATES,
        "longer": longer.SETTINGS,
        "texts": [HELD_OUT, TESTED],
    }
    journal = journal_of("long_context_trained", work)
    steps = enough_steps(journal)
    costs = {
        f"{way}, {tokens}": journal.once(f"costs, {way}, {tokens}", partial(longer.costs, way, tokens))
        for way in extension.WAYS
        for tokens in longer.COST_LENGTHS
    }
    kinds, ways = compare_kinds(journal, steps), longer.compare_extensions(journal, steps)
    results = {
        "work": work | {"steps": steps},
        "costs": costs,
        "kinds": kinds,
        "longer": ways,
        "afterwards": afterwards.compare_kinds(journal, kinds, steps, trial, measured),
        "longer, afterwards": afterwards.compare_tuning(journal, steps, ways),
    }
    store("long_context_trained", results)
