"""Small runs of whole studies: what they keep makes their tables, and rates are those that tuning finds."""

from dataclasses import replace
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import close, near
from measured import frames_of
from studies import filled_tables, run_small

import duat_jax as duat
from duat_jax import papers
from duat_jax.papers.networks import ALIKE, FOUR, PROMPT_NETWORKS, PromptSizes, drawn
from duat_jax.papers.parameters import SOURCES
from duat_jax.papers.prompted import root_mean_square
from experiments.approximation import measuring, run
from experiments.circuits import run as circuits
from experiments.estimate import estimate
from experiments.findings import tables_of
from experiments.lora import run as lora
from experiments.lora import savings
from experiments.lora.tuning import EVERYTHING, METHODS
from experiments.markdown import cells


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def _first(yielding, count):
    return islice(yielding(), count)


@pytest.fixture
def small(monkeypatch):
    """Make the study of approximation small: two seeds, few steps, and the first of its networks."""
    few = {"SEEDS": 2, "STEPS": 40, "SHORT": 20, "LAYERS": (1,), "WIDTHS": (8,), "TESTED": 32, "TAKEN_APART": 2}
    for name, value in few.items():
        monkeypatch.setattr(measuring, name, value)
    for name, count in {"compared": 6, "further": 2}.items():
        monkeypatch.setattr(measuring, name, partial(_first, getattr(measuring, name), count))
    for module in (run, measuring):
        monkeypatch.setattr(module, "FIT_STEPS", {1: 20})
    monkeypatch.setattr(run, "NEURONS", (16, 32))
    monkeypatch.setattr(papers, "FUNCTIONS", {"cone": papers.FUNCTIONS["cone"]})


@pytest.mark.slow
def test_a_small_study_of_approximation_makes_all_tables(small, monkeypatch, tmp_path):
    frames = run_small(run.STUDY, tmp_path, monkeypatch)
    assert len(filled_tables(run.STUDY, frames)) == 7
    networks, tuned = frames["networks"], frames["tuned"]
    names = ["part", "task", "network", "layers", "neurons", "heads", "prompt"]
    best = tuned.loc[tuned.groupby(names).error.idxmin()].set_index(names).rate
    assert (networks.set_index(names).rate == best.reindex(networks.set_index(names).index)).all()
    assert set(networks.seed) == {0, 1} and len(frames["sources"]) == 6 * 2 * (len(SOURCES) + 3)
    near(networks.error.to_numpy(), np.array([np.mean(of) for of in networks.errors]), within=1e-5)


def test_the_rate_is_chosen_on_a_seed_and_sequences_of_their_own(monkeypatch):
    """The error of each rate is that of a training that is made here."""
    sizes = PromptSizes(kind="perceptron", task=FOUR, layers=1, features=8, neurons=4)
    monkeypatch.setattr(measuring, "TESTED", 16)
    tuned = {row["rate"]: row["error"] for row in measuring.tuned(sizes, 20)}
    rate = measuring.RATES[2]
    network = papers.train_prompted(sizes, jax.random.key(measuring.SEEDS)[None], steps=10, rate=rate)
    content = papers.draw_sequences(jax.random.key(measuring.SEEDS + 1), 16)
    off = papers.prompted_outputs(network, content)[0] - papers.prompted_targets(FOUR, content)
    near(tuned[rate], root_mean_square(off).mean(), within=1e-5)
    assert len(set(tuned.values())) == 3


@pytest.mark.parametrize(
    ("perceptron", "transformer", "verdict"),
    [(0.9, 0.1, "confirmed"), (0.4, 0.1, "refuted"), (0.7, 0.1, "undecided"), (0.9, 0.6, "undecided")],
)
def test_what_decides_on_nearly_alike_prompts(perceptron, transformer, verdict):
    assert run.same_output(estimate([perceptron]), estimate([transformer])) == verdict


def test_slopes_are_of_every_seed():
    fits = pd.DataFrame(
        [
            {"function": "cone", "dimensions": 2, "way": "trained", "neurons": n, "seed": seed}
            | {"supremum": n**power, "root_mean_square": n ** (2 * power)}
            for n in (4, 8, 16)
            for seed, power in enumerate((-1.0, -0.5))
        ]
    )
    found = run.slopes(fits)
    near(found.slope.to_numpy(), np.array([-1.0, -0.5]), within=1e-9)
    near(found["slope of the rms"].to_numpy(), np.array([-2.0, -1.0]), within=1e-9)
    assert found.known.tolist() == 2 * ["-0.50"]


@pytest.mark.parametrize("kind", PROMPT_NETWORKS)
def test_prompts_stand_at_every_number_or_are_nearly_alike(kind):
    sizes = PromptSizes(kind=kind, task=FOUR, layers=1, features=8, neurons=4)
    content = papers.draw_sequences(jax.random.key(1), 1)[0]

    def apart(place):
        network = drawn(replace(sizes, prompt=place), jax.random.key(0))
        return network.embed(content, jnp.array(2)) - network.embed(content, jnp.array(1))

    own = apart("own token")
    close(apart("nearly alike"), ALIKE * own)
    if kind != "perceptron":
        every = apart("every number")
        close(every, jnp.broadcast_to(own[0], every.shape))
        assert not own[1:].any()
    like = replace(sizes, prompt="nearly alike")
    gradient = jax.grad(lambda network: network(content, jnp.array(2)).sum())(drawn(like, jax.random.key(0)))
    assert not gradient.prompt[...].any(), "vectors that are nearly alike aren't trained"


@pytest.mark.slow
def test_a_small_study_of_circuits_has_rows_of_both_tests():
    asked = circuits.COMPARISONS["A code task"]._replace(methods=circuits.PAIR, units=("neuron x position",), prompts=3)
    rows = circuits.rows_on_task(duat.load(), asked, "parameter")
    assert [(row["method"], row["test"]) for row in rows] == [
        (method, test) for method in circuits.PAIR for test in ("kept", "removed")
    ]
    for row in rows:
        assert [np.shape(row[part]) for part in ("clean", "zero", "runs")] == [(3,), (3,), (3, 9)]


@pytest.mark.slow
def test_a_small_study_of_adapters_makes_all_tables(monkeypatch, tmp_path):
    monkeypatch.setattr(lora.run, "FOLDER", tmp_path)
    (tmp_path / "work").mkdir()
    training = lora.Training(lora.EMBEDDED, ("attn.c_proj",), 1, steps=3, length=24, texts=2)
    monkeypatch.setattr(lora, "TRAININGS", {"attention alone": training})
    lora.trained.cache_clear()
    frames = frames_of(lora.measure())
    assert len(frames["trainings"].losses[0]) == 3 and len(frames["texts"]) == 2
    for text in frames["texts"].to_dict("records"):
        assert text["holds"]
        near(sum(text["parts"]), text["difference"], within=1e-4)
        near(text["moved"] + text["adapter"] + text["interaction"], text["difference"], within=1e-4)
        assert len(text["left out"]) == len(text["alone"]) == len(text["parts"])
    columns = cells("# Columns\n" + "\n".join(tables_of(lora.STUDY, frames)["The three columns"]))
    assert columns["Columns / attention alone / sums hold"] == "2 of 2"
    sizes = frames["texts"].difference.abs().mean()
    near(float(columns["Columns / attention alone / change"]), sizes, within=0.001)
    filled_tables(lora.STUDY, frames)


@pytest.mark.slow
def test_adapters_keep_no_state_for_what_is_frozen(monkeypatch):
    """Full fine-tuning holds the weights three times, with Adam's two numbers for each; adapters once."""
    monkeypatch.setattr(savings, "REPEATS", 1)
    model = duat.load()
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
    found = {name: savings.timed_steps(model, METHODS[name], 16)[0] for name in ("rank 1", EVERYTHING)}
    near(found[EVERYTHING]["arguments"] / weights, 3, within=0.05)
    near(found["rank 1"]["arguments"] / weights, 1, within=0.05)
    assert found[EVERYTHING]["numbers"] * 4 == weights and found["rank 1"]["temporary"] > 0
