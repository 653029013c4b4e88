"""Every study's record: its sentences are of kept results, and its headline is its primary outcome."""

import json

import numpy as np
import pandas as pd
import pytest

from experiments import run
from experiments.estimate import Method, estimate, ratio, share
from experiments.findings import FOLDER, PAGES, RECORDS, page_of_tables, record, records
from experiments.record import faults, filled_sentence, record_of
from experiments.studies import studies, study_of
from experiments.study import Measure, Piece, Prediction, Study, in_frames
from experiments.table import Cell, Table, render, rows_of
from experiments.verdict import Verdict, above, every, together


@pytest.mark.parametrize("name", studies())
def test_a_headline_is_the_primary_outcome_with_its_control_and_n(name):
    study = study_of(name)
    assert not list(faults(name, study))
    headline, frames = record(name).headline, run.frames_of(name)
    for number in (study.outcome.written(frames), study.control.written(frames), str(record(name).n)):
        assert number in headline


@pytest.mark.parametrize("name", studies())
def test_the_page_of_tables_shows_the_kept_results(name):
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page_of_tables(name), "`make pages` writes it"


def test_no_page_of_tables_is_of_another_study():
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted([*studies(), "claims"])


def test_the_file_of_records_has_the_kept_results():
    kept = {of["study"]: of for of in json.loads(RECORDS.read_text(encoding="utf-8"))}
    assert kept == {of.study: json.loads(json.dumps(as_data(of))) for of in records()}, "`make pages` writes it"
    assert {of.page for of in records()} <= set(PAGES)


def as_data(of):
    return {**of._asdict(), "predictions": [each._asdict() for each in of.predictions]}


def study(values=(1.0, 2.0, 4.0), **changed):
    def measure():
        for seed, value in enumerate(values):
            rows = yield Piece("losses", {"seed": seed}, lambda value=value: {"loss": value, "kind": "small"})
            assert rows == [{"seed": seed, "loss": value, "kind": "small"}]

    outcome = Measure("loss", lambda frames: frames["losses"].loss, 1)
    control = Measure("loss at random", lambda frames: frames["losses"].loss + 1, 1)
    given = {
        "protocol": "Is the loss above zero?\n\nIt is measured.",
        "page": "pruning",
        "claim": "none: a test",
        "unit": "seeds",
        "stated": "before the run",
        "predictions": (Prediction("it is above zero", "confirmed if its interval is", (outcome,), above),),
        "control": control,
        "headline": "The loss is {outcome} over {n} seeds, at random {control}.",
        "against": "The first seed has {Losses / 0 / loss}.",
        "limits": "Made up.",
        "tables": {"Losses": Table("losses", ("seed",), "loss")},
        "measure": measure,
        "settings": {"seeds": [0, 1, 2]},
    }
    return Study(**given | changed)


def test_a_study_is_run_once_and_its_rows_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    run.run("made_up", study())
    kept = json.loads((tmp_path / "made_up.json").read_text())
    assert kept["frames"] == {"losses": {"seed": [0, 1, 2], "loss": [1.0, 2.0, 4.0], "kind": 3 * ["small"]}}
    assert not list((tmp_path / "work").iterdir())
    # What is kept isn't measured again: other values would be seen.

    def changed():
        for seed in range(4):
            yield Piece("losses", {"seed": seed}, lambda seed=seed: {"loss": 10.0 * seed, "kind": "large"})

    run.run("made_up", study(measure=changed))
    assert run.frames_of("made_up")["losses"].loss.tolist() == [1.0, 2.0, 4.0, 30.0]
    run.run("made_up", study(measure=changed, settings={"seeds": 4}, parallel=False))
    assert run.frames_of("made_up")["losses"].loss.tolist() == [0.0, 10.0, 20.0, 30.0], "other settings"


def test_a_record_is_filled_in_from_measurements():
    frames = {"losses": pd.DataFrame({"seed": [0, 1, 2], "loss": [1.0, 2.0, 4.0]})}
    found = record_of("made_up", study(), frames, {"Losses / 0 / loss": "1.000"})
    assert found.headline == "The loss is 2.3 [-1.5, 6.1] over 3 seeds, at random 3.3 [-0.5, 7.1]."
    assert (found.verdict, found.n, found.method) == ("undecided", 3, Method.STUDENT)
    with pytest.raises(KeyError, match="Losses / 9"):
        record_of("made_up", study(against="{Losses / 9 / loss}"), frames, {})


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"headline": "Over {n} seeds: {control}."}, "lacks {outcome}"),
        ({"headline": "{outcome} over {n} seeds."}, "lacks {control}"),
        ({"headline": "{outcome} and {control}."}, "lacks {n}"),
        ({"headline": "{outcome} and {control} of {n}, at most 0.5."}, "0.5 is typed"),
        ({"headline": "{outcome} and {control} of {n}; others weren't measured."}, "what was measured"),
        ({"short": "{outcome} and {control}."}, "more than one number"),
        ({"protocol": "The loss."}, "is the question"),
        ({"protocol": "How large is the loss?"}, "says yes"),
    ],
)
def test_a_misleading_headline_is_refused(changed, fault):
    (found,) = faults("made_up", study(**changed))
    assert fault in found
    assert not list(faults("made_up", study()))


def test_an_interval_fits_its_number_of_units():
    few, many = np.arange(19.0), np.arange(20.0)
    assert [estimate(few).method, estimate(many).method] == [Method.STUDENT, Method.BOOTSTRAP]
    assert estimate([True, False]).method == Method.EXACT
    assert estimate([2.0, 2.0]).written() == estimate([2.0]).written() == "2.000"
    assert ratio([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]).written() == "0.500"
    scattered = [0.0, 0.0, 9.0], [1.0, 1.0, 1.0]
    assert ratio(*scattered, of_sizes=True).low > 0 > ratio(*scattered).low, "a ratio that can't be negative"
    assert (share([0.8, 1.0, 1.0]).high, share([0.2, 0.0, 0.0]).low) == (1.0, 0.0)


def test_a_table_has_a_row_of_each_group_and_averages_within_units():
    losses = pd.DataFrame(
        {
            "method": ["a", "a", "a", "b", "b"],
            "size": [1, 1, 2, 1, 2],
            "seed": [0, 0, 0, 0, 1],
            "loss": [1.0, 3.0, 5.0, 7.0, 8.0],
        }
    )
    shown = render(Table("losses", ("method",), "loss", columns="size", unit="seed"), {"losses": losses})
    assert shown == ["| method | 1 | 2 |", "|---|---|---|", "| a | 2.000 | 5.000 |", "| b | 7.000 | 8.000 |"]
    with_note = Table("losses", ("method",), {"per cent": Cell("loss", 0, "+", 100)}, note="Made up.")
    assert render(with_note, {"losses": losses[:1]}) == [
        "| method | per cent |", "|---|---|", "| a | +100 |", "", "*Made up.*"
    ]  # fmt: skip


def test_rows_are_chosen_by_their_columns():
    losses = pd.DataFrame({"method": ["a", "a", "b"], "in its place": ["c", "d", "c"], "loss": [1.0, 2.0, 3.0]})
    assert rows_of(losses, method="a").loss.tolist() == [1.0, 2.0]
    assert rows_of(losses, method="a", **{"in its place": "d"}).loss.tolist() == [2.0]


def test_verdicts_of_several_parts():
    confirmed, refuted, undecided = Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED
    assert together(confirmed, confirmed) == confirmed and together(confirmed, refuted) == Verdict.MIXED
    assert together(confirmed, undecided) == together(refuted, undecided) == undecided
    assert above(estimate([0.0, 0.0])) == undecided
    high, low = estimate([1.0, 1.1]), estimate([-1.0, -1.1])
    assert every(above)(high, high) == confirmed and every(above)(high, low) == Verdict.MIXED
    assert every(above, 2.0)(high, low) == refuted


def test_a_sentence_names_the_field_that_is_missing():
    assert filled_sentence("It is {a / b}.", {"a / b": "0.5"}) == "It is 0.5."
    with pytest.raises(KeyError, match="a / c"):
        filled_sentence("It is {a / c}.", {"a / b": "0.5"})


def test_a_computation_of_several_frames_is_done_once():
    done = []

    def compute():
        done.append("computed")
        return {"a": {"loss": 1}, "b": []}

    pieces = list(in_frames(("a", "b"), {"seed": 0}, compute))
    assert [(piece.frame, piece.keys, piece.compute()) for piece in pieces] == [
        ("a", {"seed": 0}, {"loss": 1}),
        ("b", {"seed": 0}, []),
    ]
    assert done == ["computed"]
