"""The benchmark of questions measures the times, memory and shares that it says, and its page shows them."""

import json
import time

import jax
import numpy as np
import pytest
from flax import nnx

import duat_jax as duat
from benchmarks import many_texts, neighbours, questions
from duat_jax.interpret.explain import compute
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig


def small_model():
    """Return a model of two layers that knows the tokens which the benchmark exchanges."""
    block = BlockConfig(arrangement="pre-norm", features=12, heads=3, neurons=8)
    head = Head(kind="next token", outputs=1100, tied=True)
    config = duat.models.Config(family="gpt2", blocks=(block,) * 2, vocab=1100, positions=16, head=head)
    return duat.models.Transformer(config, rngs=nnx.Rngs(0))


def test_compiling_and_preparing_are_no_part_of_a_ratio(monkeypatch):
    """The forward pass takes 1 s; a question 10 s at first, then 2.5 s; to prepare it takes 100 s."""
    now, first = [0.0], [True]

    def passes(seconds):
        now[0] += seconds

    def ask():
        passes(10.0 if first else 2.5)
        first.clear()

    def prepare():
        passes(100.0)
        return ask

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = questions.measure(prepare, lambda: passes(1.0), seconds=400.0)
    assert (found["first_s"], found["median_s"], found["median_of_ratio"], found["rounds"]) == (10.0, 2.5, 2.5, 4)
    for seconds, rounds in ((30.0, questions.FEWEST), (20.0, 2), (0.0, 1)):
        assert questions.measure(prepare, lambda: passes(1.0), seconds)["rounds"] == rounds


def test_memory_is_that_of_the_largest_program():
    """Of `x xᵀ` the argument has n numbers, and the result n²."""
    outer, small = jax.jit(lambda x: x[:, None] * x), jax.jit(lambda x: x + 1)
    x = np.ones(50)
    found = questions.measure(lambda: lambda: (small(x), outer(x)), lambda: None, seconds=0.0)
    assert found["programs"] == 2
    assert found["peak_mb"] == (50 + 50**2) * x.itemsize / 1e6 and found["temporary_mb"] == 0


def test_programs_are_timed_and_put_back():
    model, split = small_model(), compute._split
    with many_texts.timed_programs() as times:
        assert compute._split is not split
        began = time.perf_counter()
        duat.explain(model, [[1, 2, 3], [4, 5]], 7)
        whole = time.perf_counter() - began
    assert compute._split is split
    assert len(times) >= 2 and 0.5 * whole < sum(times) < whole, "the first call compiles, which programs do"


def test_many_texts_give_a_rate_and_a_part_of_the_time(monkeypatch):
    for name, value in {"TEXTS": 4, "SHORTEST": 3, "LONGEST": 5, "REPEATS": 1}.items():
        monkeypatch.setattr(many_texts, name, value)
    found = many_texts.many_texts(small_model())
    for each in found.values():
        assert each["texts_a_second"][0] > 0 and 0 < each["programs"][0] < 1


def test_another_interpreter_runs_its_methods_one_at_a_time(tmp_path):
    """It says its versions and methods, and answers each line; a long text is kept from a slow method."""
    slow, lines = next(iter(neighbours.LONGEST)), tmp_path / "lines"
    python = tmp_path / "python"
    said = json.dumps([{"torch": "2"}, ["quick", slow]])
    python.write_text(f"#!/bin/sh\necho '{said}'\nwhile read line; do echo \"$line\" >> {lines}; echo null; done\n")
    python.chmod(0o755)
    with neighbours.neighbours(str(python), small_model().config) as (versions, methods):
        assert versions == {"torch": "2"} and list(methods(8)) == ["quick", slow] and list(methods(512)) == ["quick"]
        methods(8)["quick"]()
    assert json.loads(lines.read_text()) == ["quick", 8]
    with neighbours.neighbours(None, small_model().config) as (versions, methods):
        assert not versions and not methods(8)


def test_the_table_has_ratios_and_what_the_first_call_took():
    forward = {"median_s": 0.05, "quartiles_of_ratio": [1, 1], "median_of_ratio": 1, "first_s": 1.05, "peak_mb": 200.0}
    forward |= {"temporary_mb": 10.0, "rounds": 25}
    asked = {
        "median_s": 0.1,
        "quartiles_of_ratio": [1.9, 2.125],
        "median_of_ratio": 2,
        "first_s": 3.1,
        "peak_mb": 220.0,
    }
    asked |= {"temporary_mb": 25.0, "rounds": 3}
    names = "gradient", "complete table", "`explain`", "`contrast`"
    case = {questions.FORWARD: forward} | dict.fromkeys(names, asked)
    direct = {"TransformerLens: direct attribution of neurons, last token": asked | {"median_s": 0.7}}
    shown = questions.fields(
        {
            "cases": {"SmolLM2-135M, 128 tokens": case | direct, "embedded model, 64 tokens": case},
            "texts": {"`explain`": {"texts_a_second": [90.0, 110.0, 100.0], "programs": [0.9, 0.95, 0.97]}},
            "versions": {"torch": "2.13.0", "captum": "0.9.0"},
        }
    )
    assert "| forward pass | 50 ms | 50 ms |" in shown["times"]
    assert "| `contrast` | 2.00 [1.90, 2.12] | 2.00 [1.90, 2.12] |" in shown["times"]
    assert shown["times / contrast / embedded model, 64 tokens"] == "2.00 [1.90, 2.12]"
    assert shown["times"].splitlines()[-1].endswith("| 2.00 [1.90, 2.12] |  |"), "not measured on the embedded model"
    assert "| `explain` | 3.0 s | 3.0 s |" in shown["compiling"] and "TransformerLens" not in shown["compiling"]
    assert "| `explain` | 1.10; 2.50 |" in shown["memory"] and "| `contrast` | 1.00; 1.00 |" in shown["memory"]
    assert "| `explain` | 100 | 0.95 |" in shown["texts"]
    assert shown["rounds"] == "3 to 25"
    assert (shown["TransformerLens"], shown["versions"]) == ("7", "torch 2.13.0, captum 0.9.0")


@pytest.mark.slow
def test_every_question_is_answered():
    answers = {
        name: prepare()()
        for name, prepare in questions.questions(small_model(), np.arange(8), np.arange(8) + 1).items()
    }
    assert answers.pop(questions.COLLAPSE).shape == (8,)
    certified = {name: answer.completeness for name, answer in answers.items() if hasattr(answer, "completeness")}
    assert certified.keys() == answers.keys() - {questions.FORWARD, "gradient", "`attribute`"}
    assert {name: str(verdict) for name, each in certified.items() if (verdict := each.verdict) != "holds"} == {}
