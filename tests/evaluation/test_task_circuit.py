"""The circuit of a task: its units derived again, its effect measured again, its tables, its CSV, and resuming."""

import csv
import io
import json
import shlex

import jax.numpy as jnp
import numpy as np
import pytest
from command import run as command
from helpers import close

from duat_jax.cli.errors import INTERRUPTED, MISTAKE
from duat_jax.evaluation import circuit_csv
from duat_jax.evaluation.circuit_curve import FRACTIONS, Curve
from duat_jax.evaluation.circuit_study import Study
from duat_jax.evaluation.circuit_table import circuit_lines, columns_explained, next_steps, render_circuit
from duat_jax.evaluation.circuits import AT_ONCE, UNITS, measure
from duat_jax.evaluation.comparison import compare
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.task_circuit import TaskCircuit, chosen_size, task_circuits
from duat_jax.inputs.tasks.case import Case
from tests.cli.test_widths import lines_of
from tests.evaluation.test_circuits import LAYERS, TOKENS, by_hand, fixed, language_model, one_of, prompts_of

COUNT = AT_ONCE + 2
EXAMPLE = Case("a b c", "a d c", " e", " f")


def with_streams(*arguments):
    streams = jnp.asarray(np.random.default_rng(1).normal(size=(LAYERS + 1, TOKENS)))
    return fixed(*arguments)._replace(streams=jnp.roll(streams, arguments[1].sum()))


@pytest.fixture(scope="module")
def found():
    model, prompts = language_model(activation="gelu"), prompts_of(COUNT)
    return model, prompts, task_circuits(model, prompts, "fixed", with_streams, tuple(UNITS), size=0.2)


def test_the_units_are_those_with_the_largest_mean_scores(found):
    model, prompts, circuits = found
    totals = {kind: {} for kind in UNITS}
    for i in range(COUNT):
        neurons, heads, streams = map(np.asarray, with_streams(model, *one_of(prompts, i)))
        for kind, scores in (("neuron x position", neurons), ("head x position", heads), ("layer x token", streams)):
            for place, score in np.ndenumerate(scores):
                totals[kind][place] = totals[kind].get(place, 0) + score / COUNT
        for (layer, _, neuron), score in np.ndenumerate(neurons):
            key = layer, None, neuron
            totals["neuron"][key] = totals["neuron"].get(key, 0) + score / COUNT
    for kind, scores in totals.items():
        expected = sorted(scores, key=lambda place: -abs(scores[place]))[: round(0.2 * len(scores))]
        units = list(circuits[kind].units())
        assert [tuple(unit[:3]) for unit in units] == [(*place, None)[:3] for place in expected]
        close(np.array([unit.score for unit in units]), np.array([scores[place] for place in expected]))
        assert all(unit.inside for unit in units)
        every = list(circuits[kind].units(every=True))
        assert len(every) == len(scores) and not any(unit.inside for unit in every[len(units) :])


def test_the_listed_circuit_keeps_what_is_said_when_the_model_runs_again(found):
    model, prompts, circuits = found
    everything = {
        "neuron x position": np.ones((LAYERS, TOKENS, 10), bool),
        "head x position": np.ones((2, 5, 2, 1), bool),
    }
    for kind in everything:
        circuit = circuits[kind]
        listed = np.zeros(everything[kind].shape, bool)
        for unit in circuit.units():
            listed[unit.layer, unit.position, unit.unit] = True
        runs = {}
        for name, live in (("kept", listed), ("removed", ~listed)):
            lives = everything | {kind: live}
            arguments = lives["head x position"], lives["neuron x position"]
            runs[name] = np.mean([by_hand(model, one_of(prompts, i), *arguments) for i in range(COUNT)])
        clean, corrupted = circuit.curve.clean.mean(), circuit.curve.corrupted.mean()
        for name, run in runs.items():
            close(getattr(circuit, name)[FRACTIONS.index(0.2)], (run - corrupted) / (clean - corrupted))


def test_the_size_is_the_smallest_that_keeps_half():
    kept = np.linspace(0, 1, len(FRACTIONS))
    assert chosen_size(kept) == FRACTIONS[4] and chosen_size(kept * 0.4) == FRACTIONS[-1]
    assert chosen_size(np.ones(len(FRACTIONS))) == FRACTIONS[0]


def test_an_interrupted_search_goes_on_and_finds_the_same(tmp_path, monkeypatch):
    model, prompts, units = language_model(), prompts_of(COUNT), ["head x position", "neuron"]

    def search(path):
        journal = Journal(path, {"model": "this one"})
        curves = measure(model, prompts, {"fixed": fixed, "again": fixed}, units, mean=True, journal=journal)
        return curves, task_circuits(model, prompts, "fixed", fixed, tuple(units), mean=True, journal=journal)

    whole, once, pieces = search(None), Journal.once, 0

    def dies(self, name, compute):
        nonlocal pieces
        if name not in self:
            pieces += 1
            if pieces % 3 == 0:
                raise KeyboardInterrupt
        return once(self, name, compute)

    monkeypatch.setattr(Journal, "once", dies)
    path, interruptions, again = tmp_path / "work", 0, None
    while again is None:
        try:
            again = search(path)
        except KeyboardInterrupt:
            interruptions += 1
    # Two methods on two batches, the mean scores, and the circuit on two batches.
    assert interruptions == 3 and len(path.read_bytes().splitlines()) == 1 + 7
    for one, other in zip(whole, again, strict=True):
        for kind in units:
            of_kind = [
                each[kind] if isinstance(each[kind], dict) else {"one": each[kind].curve} for each in (one, other)
            ]
            for name in of_kind[0]:
                for expected, actual in zip(of_kind[0][name], of_kind[1][name], strict=True):
                    np.testing.assert_array_equal(expected, actual)
    np.testing.assert_array_equal(whole[1]["neuron"].scores, again[1]["neuron"].scores)


def circuit_of(kind="neuron x position", shape=(3, 2, 40), size=0.5, key=0):
    random = np.random.default_rng(key)
    measured = random.random((2, 4, len(FRACTIONS)))
    return TaskCircuit(kind, "secant", random.normal(size=shape), Curve(np.ones(4), np.zeros(4), *measured), size)


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [("neuron x position", (3, 2, 40)), ("neuron", (3, 1, 40)), ("layer x token", (4, 2, 1))],
)
def test_the_table_lists_the_largest_units_and_each_layers_largest(kind, shape, width):
    circuit, tokens = circuit_of(kind, shape), ("The", " a very long token of spaces        ")
    lines = lines_of(render_circuit("title", circuit, tokens), width)
    assert all(len(line) <= width for line in lines) and not any("…" in line for line in lines)
    units = list(circuit.units())
    by_layer = {unit.layer: [each for each in units if each.layer == unit.layer] for unit in units}
    largest = units[:20] + [max(of_layer, key=lambda unit: abs(unit.score)) for of_layer in by_layer.values()]
    text = "\n".join(lines)
    for unit in largest:
        assert f"{unit.score:+.4f}" in text
    for of_layer in by_layer.values():
        assert f"{sum(unit.score for unit in of_layer):+.4f}" in text
    said = " ".join(circuit_lines(circuit, EXAMPLE, chosen=False))
    assert f"of {circuit.scores.size:,} units the {len(units)} " in said and "keeps at least 50%" in said
    assert f"{circuit.kept[-1]:.2f}" in said and f"{circuit.removed[-1]:.2f}" in said


def test_what_to_do_next_names_method_size_and_a_command():
    def curve(kept):
        random = np.random.default_rng(0)
        return Curve(np.ones(9), np.zeros(9), kept + random.random((9, 9)) / 100, np.zeros((9, 9)))

    circuit = circuit_of()
    curves = {"first": curve(0.5), "better": curve(0.9), "level": curve(0.5), "worse": curve(0.1)}

    def said(names, model=None):
        return next_steps(
            {circuit.kind: compare([{n: curves[n] for n in names}])}, {circuit.kind: circuit}, EXAMPLE, model
        )

    assert "Ahead of first: better." in said(["first", "better", "worse"])[0]
    assert "No method is ahead of first; it can't be told apart from level." in said(["first", "level", "worse"])[0]
    assert "first is ahead of all other methods" in said(["first", "worse"])[0]
    lines = said(["first"], "a model")
    words = shlex.split(lines[-2])
    unit = next(circuit.units())
    assert words[:3] == ["duat", "intervene", "a b c"] and words[-2:] == ["--model", "a model"]
    assert f"neuron {unit.layer}:{unit.unit}@{unit.position} set 0" in words
    explained = " ".join(columns_explained(mean=False, compared=True))
    for column in ("0.1%, 1.0%, 10.0%:", "logf:", "CPR:", "CMD:", "removed:", "first ahead by:"):
        assert column in explained
    assert "mean over all corrupted texts" in columns_explained(mean=True, compared=False)[0]


def test_the_csv_has_every_unit_or_those_of_the_circuit(monkeypatch):
    circuit, tokens = circuit_of(), ('a,"b"\n', " c")
    study = Study(
        {}, {"task": tokens}, {}, {"task": {circuit.kind: circuit, "neuron": circuit_of("neuron", (3, 1, 9))}}
    )

    def rows():
        return list(csv.DictReader(io.StringIO(circuit_csv.to_csv(study), newline="")))

    every = rows()
    assert len(every) == 3 * 2 * 40 + 27
    for each in every:
        scores = study.circuits["task"][each["units"]]
        place = int(each["layer"]), int(each["position"] or 0), int(each["unit"])
        assert float(each["score"]) == scores.scores[place] and int(each["in_circuit"]) == scores.circuit[place]
        assert each["token"] == (tokens[place[1]] if each["position"] else "")
    monkeypatch.setattr(circuit_csv, "MOST", 100)
    some = rows()
    assert [each["in_circuit"] for each in some if each["units"] == circuit.kind] == ["1"] * 120
    assert len(some) == 120 + 27


ASKED = ("circuit", "--task", "parameter", "--prompts", 2, "--units", "head x position", "--method", "random")
ALSO = ("--method", "norm of change x W_out")


@pytest.mark.slow
def test_the_command_killed_goes_on_and_its_next_command_runs(tmp_path, monkeypatch):
    def files(name):
        return "--json", tmp_path / f"{name}.json", "--csv", tmp_path / f"{name}.csv"

    once, work = Journal.once, tmp_path / "work"

    def dies(self, name, compute):
        if "one circuit" in name and "scores" not in name:
            raise KeyboardInterrupt
        return once(self, name, compute)

    monkeypatch.setattr(Journal, "once", dies)
    killed = command(*ASKED, *ALSO, "--work", work, *files("killed"))
    assert killed.exit_code == INTERRUPTED and f"kept in {work}: the same command continues" in killed.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"work"}
    monkeypatch.setattr(Journal, "once", once)
    kept = work.read_bytes()
    again = command(*ASKED, *ALSO, "--work", work, *files("again"))
    assert again.exit_code == 0 and work.read_bytes().startswith(kept)
    assert command(*ASKED, *ALSO, *files("whole")).exit_code == 0
    for suffix in ("json", "csv"):
        assert (tmp_path / f"again.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    content = json.loads((tmp_path / "again.json").read_text())["tasks"]["parameter"]["circuits"]["head x position"]
    rows = list(csv.DictReader((tmp_path / "again.csv").read_text().splitlines()))
    assert len(rows) == content["scored"] == 480
    inside = [row for row in rows if row["in_circuit"] == "1"]
    assert [(int(row["layer"]), int(row["unit"]), float(row["score"]), row["token"]) for row in inside] == [
        (unit["layer"], unit["unit"], unit["score"], unit["token"]) for unit in content["units"]
    ]
    assert content["size"] in FRACTIONS
    (line,) = [line for line in again.stdout.splitlines() if line.startswith("duat intervene")]
    result = command(*shlex.split(line)[1:])
    assert result.exit_code == 0 and "difference" in result.stdout
    other = command(*ASKED, "--units", "neuron", "--work", work)
    assert other.exit_code == MISTAKE and "holds other work" in other.stderr


def test_a_size_that_is_none_is_refused_before_the_model_is_loaded(monkeypatch):
    monkeypatch.setattr("duat_jax.models.loader.load", None)
    result = command(*ASKED, "--size", 0.3, "--task", "chess")
    assert result.exit_code == MISTAKE and "no size 0.3: choose one of 0.001, 0.002" in result.stderr
    assert "no task 'chess'" in result.stderr
