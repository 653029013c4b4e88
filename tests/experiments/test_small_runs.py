"""Small runs of whole studies: what they store makes their tables, and what is finished isn't run again."""

from types import SimpleNamespace

import pytest
from studies import filled_tables, run_small

from experiments import run
from experiments.approximation import further, trainings
from experiments.approximation.tokens import JUMPS, SMOOTH, Numbers
from experiments.emergence import longer
from experiments.emergence.texts import Sizes
from experiments.emergence.training import make_network
from experiments.generalization import rare, sized
from experiments.generalization.networks import TRANSFORMER
from experiments.heads import sliced
from experiments.in_context import consistent
from experiments.lora import context, scratch, tuning
from experiments.retraining import planted, planted_training

pytestmark = pytest.mark.slow


def tiny():
    """Return a Transformer of one layer with the embedded model's vocabulary."""
    network = make_network(Sizes(layers=1, features=16, heads=2), 0)
    return network.model(network.weights)


EMERGENCE = run.frames_of("emergence")
SMALL = {
    sized: {"SEEDS": 2, "STEPS": 4, "RATES": (3e-3,), "WIDTHS": (4, 8), "TESTED": 32},
    rare: {"SEEDS": range(2), "STEPS": 30, "FEWER": 3, "TESTED": 16},
    scratch: {
        "FACTORS": (1.0,),
        "TUNED": 2,
        "LENGTHS": (2, 4),
        "TRAINED": 8,
        "adapted": lambda: [
            {"trained": "adapted", "steps": 2, "seed": seed, "loss": 1.0, "right": 0.5} for seed in range(4)
        ],
        "seconds": lambda: [{"trained": way, "seconds": 0.1} for way in ("rank 16", "from random weights")],
        "kept_runs": lambda task, name: ({}, [{"seed": 1, "loss": [1.0], "accuracy": [0.5]}]),
    },
    context: {"SEEDS": (1, 2), "STOPS": (1, 2), "COMPARED": ("rank 16",), "rate_of": lambda task, name: 1e-3},
    consistent: {"PROMPTS": 1, "WRITTEN": 1},
    sliced: {
        "RATES": (1.0,),
        "STEPS": 4,
        "measures": SimpleNamespace(
            DISTANCES=(64,),
            rounded=float,
            measure=lambda model: {
                key: [1.0] for key in ("positions", "late", "gain", "gain, shuffled", "recall", "recall, first copy")
            },
        ),
    },
    longer: {
        "SIZES": Sizes(layers=2, features=16, heads=2, tokens=24, batch=2, steps=8, every=2, measured=4, short=16),
        "frames_of": lambda name: EMERGENCE,
    },
}
"""The settings of a small run, by the module of a study."""


@pytest.mark.parametrize("module", SMALL, ids=lambda module: module.__name__.removeprefix("experiments."))
def test_a_small_run_of_a_study_makes_its_tables(module, monkeypatch, tmp_path):
    for name, value in SMALL[module].items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(tuning, "STEPS", 2)
    monkeypatch.setattr(longer, "FOLDER", tmp_path / "trainings")
    filled_tables(module.STUDY, run_small(module.STUDY, tmp_path, monkeypatch))


def test_a_small_run_of_further_approximation_makes_its_tables(monkeypatch, tmp_path):
    few = {
        "SEEDS": 2,
        "RATES": (3e-3,),
        "STEPS": {"numbers": 4, "pointers": 4},
        "OF_TUNING": {"numbers": 2, "pointers": 2},
        "TESTED": 32,
        "WIDTHS": (4, 8),
        "WIDEST": 8,
        "KINDS": ("one layer", TRANSFORMER),
        "DEEP": (("one layer", 1), (TRANSFORMER, 2), (TRANSFORMER, 4)),
        "SCALES": (1.0,),
        "FITTED": 64,
        "DIRECT": {"cone": Numbers(name="cone")},
    }
    for name, value in few.items():
        monkeypatch.setattr(trainings, name, value)
    monkeypatch.setattr(further, "SMOOTH", {"cone": SMOOTH["cone"]})
    monkeypatch.setattr(further, "JUMPS", {"board": JUMPS["board"]})
    frames = run_small(further.STUDY, tmp_path, monkeypatch)
    filled_tables(further.STUDY, frames)
    assert set(frames["networks"].times) == {1, trainings.LONGER}


def test_a_small_run_of_planted_pieces_makes_its_tables(monkeypatch, tmp_path):
    for name, value in {"STEPS": 8, "EVERY": 4, "LEFT_OUT": 2, "duat": SimpleNamespace(load=tiny)}.items():
        monkeypatch.setattr(planted_training, name, value)
    for name in ("DRAWS", "LEFT_OUT"):
        monkeypatch.setattr(planted, name, 2)
    planted_training.train_with.cache_clear()
    filled_tables(planted.STUDY, run_small(planted.STUDY, tmp_path, monkeypatch))
    planted_training.train_with.cache_clear()
