"""Surveys: sums against explanations, merging in any grouping, the same bytes from one worker or many, resuming."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import duckdb
import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER, GOLDEN
from helpers import close, near, relative
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax import files as duat_files
from duat_jax.cli import application
from duat_jax.cli.errors import NOT_WRITTEN
from duat_jax.inputs.baselines import Reference
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.survey import run
from duat_jax.survey.explained import MARGIN, Explained
from duat_jax.survey.measure import DRAWN, TOP, _units, counted, measure
from duat_jax.survey.state import BOUNDS, Extremes, flat, merge, merge_all, merge_extremes, nested, priorities
from duat_jax.survey.texts import read_corpus
from experiments import smollm2

ROOT = Path(__file__).parents[2]
LICENSE = (ROOT / "LICENSE").read_text(encoding="utf-8")
TEXTS = [LICENSE[:3000], LICENSE[3000:6000], LICENSE[6000:9500]]
TOKENS = 8
PAGE = (ROOT / "docs" / "how-to" / "corpora.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished survey of several parts, measured here, and its directory."""
    directory = tmp_path_factory.mktemp("survey") / "one"
    return duat.survey.survey(None, TEXTS, directory, tokens=TOKENS), directory


def files(directory):
    """Return the content of each file, but of temporary ones, of which a process killed while it writes leaves one."""
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("[!.]*") if path.is_file()}


def corpus_of(directory):
    return load_file(directory / "corpus.safetensors")["windows"]


def test_the_parts_sum_to_the_margin(finished):
    survey, _ = finished
    parts = survey.parts.set_index("part").contribution
    near(parts.drop("margin").sum(), parts["margin"], within=1e-6 * parts.abs().sum())
    assert survey.manifest["worst"] < 1


def test_extremes_and_quantiles_are_those_of_all_activations(finished):
    survey, directory = finished
    model, corpus = duat.load(), corpus_of(directory)
    recorded = jax.vmap(lambda ids: duat.record(model.output)(model.embed(ids)).dynamics.activations)(corpus)
    activations = np.asarray(list(recorded.values())[2])[:, :-1]
    neurons = survey.neurons.query("layer == 2").set_index("neuron")
    close(neurons.activation, activations.mean((0, 1)), layers=6)
    close(neurons.activation_std, activations.std((0, 1)), layers=6)
    median = np.quantile(activations, 0.5, axis=(0, 1), method="inverted_cdf")
    upper = neurons.activation_at_most_50
    assert ((median <= upper) & (BOUNDS[np.searchsorted(BOUNDS, upper) - 1] <= median)).all()
    strongest = survey.contexts.query(
        "layer == 2 and kind == 'neuron' and what == 'strongest activation' and rank == 0"
    )
    close(strongest.set_index("unit").value.sort_index(), activations.max((0, 1)), layers=6)
    close(activations[strongest.window, strongest.position, strongest.unit], strongest.value)


@given(st.lists(st.floats(-300, 300, width=32), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_every_activation_is_counted_in_its_interval(values):
    counts = np.asarray(counted(jnp.array(values, jnp.float32)[None, :, None], jnp.array([True])))[:, 0]
    assert counts.sum() == len(values)
    for value in np.array(values, np.float32):
        interval = np.flatnonzero(counted(jnp.array([[[value]]]), jnp.array([True]))[:, 0])[0]
        assert (BOUNDS[interval - 1] if interval else -np.inf) <= value <= BOUNDS[interval]


@pytest.mark.parametrize("kind", ["margin", "target", "baseline"])
def test_merging_doesnt_depend_on_the_grouping(kind):
    """Counts, extremes and the sample exactly, sums to rounding; the order of parts doesn't matter either."""
    model = duat.load(GOLDEN / "gpt2")
    corpus, others = np.random.default_rng(0).integers(0, model.config.vocab, (2, 18, 5))
    explained = Explained(11, 7) if kind == "target" else MARGIN

    def part(begin, end):
        rows = others[begin:end]
        reference = Reference(Inputs(rows, np.ones(rows.shape, bool), None), np.zeros(rows.shape, bool))
        return measure(model, corpus[begin:end], begin, explained, reference if kind == "baseline" else None)

    parts = [part(i, i + 6) for i in (0, 6, 12)]
    whole = flat(part(0, 18))
    for merged in (
        merge(merge(parts[0], parts[1]), parts[2]),
        merge(parts[0], merge(parts[1], parts[2])),
        merge(parts[2], merge(parts[1], parts[0])),
        merge_all(parts),
    ):
        found = flat(merged)
        assert found.keys() == whole.keys()
        for name, expected in whole.items():
            if expected.dtype.kind in "iu":
                np.testing.assert_array_equal(found[name], expected, err_msg=name)
            else:
                sizes = np.nan_to_num(expected, neginf=0)
                near(
                    np.nan_to_num(found[name], neginf=0), sizes, within=1e-4 + 1e-5 * np.abs(sizes).max(), message=name
                )


def test_equal_values_are_kept_in_the_order_of_the_corpus():
    ones = [Extremes(np.ones((1, 2), np.float32), np.array([places])) for places in ([3, 9], [1, 5])]
    assert merge_extremes(*ones).places.tolist() == merge_extremes(*ones[::-1]).places.tolist() == [[1, 3]]


def test_a_state_is_read_back_as_it_was_kept():
    state = measure(duat.load(GOLDEN / "gpt2"), np.array([[5, 6, 7]]), 0)
    assert state.units["layers.0.mlp/neurons"].highest.values.shape[1] == TOP
    assert len(state.sample.places) == DRAWN and (state.sample.places >= 0).sum() == 2
    back = flat(nested(flat(state)))
    for name, expected in flat(state).items():
        np.testing.assert_array_equal(back[name], expected)


def test_drawn_tokens_are_a_fair_sample():
    """The numbers of places are distinct, and their order has nothing to do with the corpus'."""
    numbers = priorities(np.arange(100_000))
    assert len(np.unique(numbers)) == 100_000
    assert abs(np.corrcoef(np.arange(100_000), numbers.astype(float))[0, 1]) < 0.01


def test_shards_and_workers_give_the_same_bytes(finished, tmp_path):
    _, directory = finished
    expected = files(directory)
    assert len([*directory.glob("parts/*")]) > 3
    assert duat.survey.survey(None, TEXTS, tmp_path / "shards", tokens=TOKENS, shard=(1, 2)) is None
    duat.survey.survey(None, TEXTS, tmp_path / "shards", tokens=TOKENS, shard=(2, 2))
    with ThreadPoolExecutor(2) as executor:
        duat.survey.survey(None, TEXTS, tmp_path / "threads", tokens=TOKENS, executor=executor)
    for other in ("shards", "threads"):
        assert files(tmp_path / other) == expected


def sizes(model, texts, directory, **options):
    """Survey, and return the size that was said, and the true sizes of the first part and of all tables."""
    said = []
    duat.survey.survey(model, texts, directory, on_start=said.append, **options)
    tables = sum(path.stat().st_size for path in directory.glob("*.parquet"))
    return said[0], (directory / "parts" / "000000.safetensors").stat().st_size, tables


@pytest.mark.parametrize("name", ["embedded", pytest.param("SmolLM2", marks=pytest.mark.slow)])
def test_the_size_is_said_before_the_first_part(name, tmp_path):
    model = {"embedded": lambda: None, "SmolLM2": smollm2.path}[name]()
    said, part, tables = sizes(model, TEXTS, tmp_path / "survey", tokens=TOKENS)
    relative(said.part_bytes, part, within=0.02)
    relative(said.table_bytes, tables, within=0.2)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_size_of_a_small_models_part_is_said(name, tmp_path):
    """Its tables say nothing: texts of its few tokens, and activations that are equal, are compressed more."""
    said, part, _ = sizes(GOLDEN / name, TEXTS[:1], tmp_path / "survey", tokens=4)
    relative(said.part_bytes, part, within=0.1)


def test_the_page_shows_the_size_that_is_said(tmp_path):
    class Stopped(Exception):
        pass

    def stop(size):
        raise Stopped(size)

    with pytest.raises(Stopped) as stopped:
        duat.survey.survey(None, [LICENSE], tmp_path / "survey", tokens=64, on_start=stop)
    assert f"\n{stopped.value}\n" in PAGE


def test_the_size_counts_what_is_there(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path / "survey")
    (tmp_path / "survey" / "parts" / "000002.safetensors").unlink()
    corpus, parts, reports = corpus_of(finished[1]), finished[0].manifest["parts"], []
    options = {"shard": (1, 2), "progress": lambda *numbers: reports.append(numbers)}
    said, _, _ = sizes(None, TEXTS, tmp_path / "survey", tokens=TOKENS, **options)
    mine = len(range(0, parts, 2))
    assert said[:5] == (corpus.size, len(corpus), parts, mine, mine - 1) and reports == [(mine - 1, mine), (mine, mine)]
    words = f"{parts} parts of about 3.8 MB, {mine} in this shard, {mine - 1} measured already"
    assert str(said).startswith(f"{corpus.size:,} tokens in {len(corpus)} windows, {words}")


def test_what_is_there_isnt_measured_again(finished, tmp_path, monkeypatch):
    _, directory = finished
    measured = []
    monkeypatch.setattr(
        run,
        "measure",
        lambda model, windows, first, *given: measured.append(first) or measure(model, windows, first, *given),
    )
    expected = files(directory)
    (directory / "parts" / "000001.safetensors").unlink()
    duat.survey.survey(None, TEXTS, directory, tokens=TOKENS)
    assert measured == [run.PART] and files(directory) == expected


def test_a_part_that_fails_cancels_the_others(finished, tmp_path, monkeypatch):
    """The worker may have begun the second part before it is told, and no other."""
    begun, refused = [], threading.Event()

    def fails(model, windows, first, *given):
        if begun:
            refused.wait()
        begun.append(first)
        raise duat.NotFinite("no number")

    monkeypatch.setattr(run, "measure", fails)
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(duat.NotFinite):
            duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS, executor=executor)
        refused.set()
    assert len(begun) <= 2 < finished[0].manifest["parts"]


def test_workers_load_a_changed_model_again_and_refuse_another_one(tmp_path, monkeypatch):
    """A worker outlives a survey, and may run where the same path leads to another model."""
    shutil.copytree(GOLDEN / "gpt2", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    options = {"tokens": 4, "dtype": "float64"}
    weights = tmp_path / "model" / "model.safetensors"
    with ThreadPoolExecutor(1) as executor:
        duat.survey.survey("model", TEXTS[:1], "before", **options, executor=executor)
        changed = {name: array * 1.5 for name, array in load_file(weights).items()}
        weights.write_bytes(save(changed))
        duat.survey.survey("model", TEXTS[:1], "after", **options, executor=executor)
        duat.survey.survey("model", TEXTS[:1], "alone", **options)
        assert files(tmp_path / "after") == files(tmp_path / "alone") != files(tmp_path / "before")
        monkeypatch.setattr(run, "fingerprint", lambda *given: "another")
        surveyed = run._Surveyed("model", "float64", "here")
        with pytest.raises(duat.BadCheckpoint, match="model is another model where a worker runs"):
            executor.submit(run._measure_part, surveyed, MARGIN, "after", 0).result()


class Dying(ThreadPoolExecutor):
    """An executor whose workers die."""

    def submit(self, *given):
        """Submit nothing but the end of a worker."""
        from concurrent.futures.process import BrokenProcessPool

        def die():
            raise BrokenProcessPool

        return super().submit(die)


def test_bad_input_is_refused_in_one_line(finished, tmp_path):
    _, directory = finished

    def ask(texts=TEXTS, place=directory, model=None, **options):
        return lambda: duat.survey.survey(model, texts, place, **{"tokens": TOKENS} | options)

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "manifest.json").write_text("{")
    before = files(directory)
    for message, question in {
        "another corpus and another windows": ask(TEXTS[:1]),
        "another corpus and another tokens and another windows": ask(tokens=9),
        "another model and another dtype": ask(dtype="bfloat16"),
        "isn't empty, and holds no survey": ask(place=tmp_path / "full"),
        "isn't a survey's manifest": ask(place=tmp_path / "torn"),
        "shard 3/2 isn't there": ask(shard=(3, 2)),
        "only models of the next token": ask(model=ENCODER),
        "the model has experts": ask(model=GOLDEN / "mixtral"),
        "windows of 1 tokens": ask(tokens=1),
        "give more text": ask(["def"], tmp_path / "short"),
        "run the same again": ask(place=tmp_path / "dying", executor=Dying(1)),
        "isn't finished: run it again": lambda: duat.survey.open(tmp_path / "dying"),
        "isn't there": lambda: duat.survey.open(tmp_path / "nowhere"),
    }.items():
        with pytest.raises(duat.DuatError, match="^[^\n]*$") as refused:
            question()
        assert message in str(refused.value), refused.value
    assert files(directory) == before
    part = directory / "parts" / "000002.safetensors"
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    with pytest.raises(duat.DuatError, match="000002.safetensors is damaged .*: remove it"):
        ask()()
    part.write_bytes(whole)
    for manifest in ("[]", "3", '["windows"]'):
        (tmp_path / "torn" / "manifest.json").write_text(manifest)
        with pytest.raises(duat.InvalidInput, match="isn't a survey's manifest"):
            ask(place=tmp_path / "torn")()


def test_a_damaged_corpus_is_named_and_written_again(finished, tmp_path):
    shutil.copytree(finished[1], tmp_path / "survey")
    (tmp_path / "survey" / "corpus.safetensors").write_bytes(b"")
    (tmp_path / "survey" / "parts" / "000000.safetensors").unlink()
    with pytest.raises(duat.DuatError, match="corpus.safetensors is damaged .*: remove it"):
        duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS)
    (tmp_path / "survey" / "corpus.safetensors").unlink()
    duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS)
    assert files(tmp_path / "survey") == files(finished[1])


def test_files_of_another_part_or_another_survey_are_refused(finished, tmp_path):
    place, other = tmp_path / "survey", tmp_path / "other"
    shutil.copytree(finished[1], place)
    duat.survey.survey(None, [LICENSE[1000:4000]], other, tokens=TOKENS)
    first, second = (place / "parts" / f"00000{part}.safetensors" for part in (0, 1))
    for file, there, message in (
        (second, first, "is of another part: remove it"),
        (first, other / "parts" / first.name, "is of another survey: remove it"),
    ):
        kept = file.read_bytes()
        file.write_bytes(there.read_bytes())
        with pytest.raises(duat.DuatError, match=message):
            duat.survey.survey(None, TEXTS, place, tokens=TOKENS)
        file.write_bytes(kept)
    shutil.copy(other / "heads.parquet", place)
    with pytest.raises(duat.InvalidInput, match="heads.parquet is damaged, or another survey's"):
        duat.survey.open(place)
    shutil.copy(finished[1] / "heads.parquet", place)
    manifest = json.loads((place / "survey.json").read_bytes())
    (place / "survey.json").write_text(json.dumps(manifest | {"predicted": 1}))
    with pytest.raises(duat.InvalidInput, match="survey.json is damaged: run the survey again"):
        duat.survey.open(place)
    older = {name: value for name, value in manifest.items() if name not in ("digest", "tables")} | {"version": 2}
    (place / "survey.json").write_text(json.dumps(older))
    with pytest.warns(UserWarning, match="older duat-jax, without digests"):
        assert repr(duat.survey.open(place)) == repr(finished[0])


def test_shards_that_begin_together_dont_refuse_each_other(finished, tmp_path):
    """One has made the directory, and not yet written the manifest."""
    (tmp_path / "survey" / "parts").mkdir(parents=True)
    (tmp_path / "survey" / ".duat-00.part").touch()
    assert duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS, shard=(2, 2)) is None


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("file", ["manifest.json", "corpus.safetensors"])
@pytest.mark.parametrize("other", [{}, {"target": 7}, {"corpus": "another"}], ids=str)
def test_of_shards_that_begin_together_all_but_one_survey_are_refused(other, file, links, tmp_path, monkeypatch):
    """The second one begins, from first to last, when the first is about to write a file."""
    place, path_of, refused = tmp_path / "survey", duat_files.temporary_path, {}
    first = {"corpus": "this", "target": None}
    waiting = {"second": first | other}

    def begin(name, manifest):
        try:
            run._begin(place, manifest, {"windows": np.array([len(manifest["corpus"])])})
        except duat.InvalidInput as error:
            refused[name] = str(error)

    def interrupted(path):
        if path.name == file and waiting:
            begin(*waiting.popitem())
        return path_of(path)

    def no_links(*given, **options):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(duat_files, "temporary_path", interrupted)
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    begin("first", first)
    assert not waiting and len(refused) == bool(other)
    assert all(f"a survey with another {name}" in message for name in other for message in refused.values())
    kept = first if "second" in refused else first | other
    assert json.loads((place / "manifest.json").read_bytes()) == kept
    assert corpus_of(place) == [len(kept["corpus"])]


def test_the_tables_are_asked_by_duckdb(finished):
    survey, directory = finished
    largest = duckdb.sql(f"SELECT layer, neuron FROM '{directory}/neurons.parquet' ORDER BY contribution DESC LIMIT 1")
    row = survey.neurons.loc[survey.neurons.contribution.idxmax()]
    assert largest.fetchall() == [(row.layer, row.neuron)]
    assert len(survey.sample.columns) == 6 + len(survey.neurons)
    opened = duat.survey.open(directory)
    assert repr(opened) == repr(survey) and "4,608 neurons" in repr(opened)


def test_every_question_of_the_page_is_answered(finished):
    _, directory = finished
    questions = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert len(questions) == 5
    for question in questions:
        duckdb.sql(re.sub(r"'(?:survey|code|prose|base|tuned)/", f"'{directory}/", question)).fetchall()


def test_a_number_that_isnt_finite_is_named():
    model = duat.load(GOLDEN / "gpt2")
    token = model.embedding.token
    token[...] = token[...].at[7].set(jnp.nan)
    with pytest.raises(duat.NotFinite, match="window 3 of the corpus"):
        measure(model, np.array([[5, 6], [6, 7]]), 3)


def test_tokens_that_look_like_markup_are_printed(finished, monkeypatch):
    survey, _ = finished
    monkeypatch.setattr("duat_jax.survey.largest.readable", lambda tokenizer, ids: ["[/b]"] * len(ids))
    monkeypatch.setattr(run, "survey", lambda *given, **options: survey)
    assert "'[/b]', '[/b]'" in command(__file__, "--out", "unused").output


def command(*arguments):
    return CliRunner().invoke(application, ["survey", *map(str, arguments)])


def test_the_command_reads_every_kind_of_file(finished, tmp_path):
    import pandas as pd

    survey, _ = finished
    frame = pd.DataFrame({"text": TEXTS})
    frame.to_json(tmp_path / "corpus.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "corpus.parquet")
    for name in ("corpus.jsonl", "corpus.parquet"):
        done = command(tmp_path / name, "--out", tmp_path / name.replace(".", "-"), "--tokens", TOKENS)
        assert done.exit_code == 0, done.output
        assert f"{survey.manifest['predicted']:,} tokens" in done.output and "margin" in done.output
        assert f"{survey.manifest['parts']} parts of about 3.8 MB, 0 measured already" in done.stderr
        pd.testing.assert_frame_equal(duat.survey.open(tmp_path / name.replace(".", "-")).heads, survey.heads)


def test_the_command_names_every_file_that_it_cant_read(tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"text": "a"}\n{"text"\n')
    (tmp_path / "other.jsonl").write_text('{"content": "a"}\n')
    (tmp_path / "broken.parquet").write_text("no")
    done = command(*sorted(tmp_path.iterdir()), tmp_path / "nowhere.txt", "--out", tmp_path / "survey")
    assert done.exit_code == 2
    for message in (
        "broken.jsonl can't be read",
        "other.jsonl: row 0 has no 'text'",
        "broken.parquet has no",
        "nowhere.txt",
    ):
        assert message in done.output.replace("\n", " "), done.output
    assert "1/4 for the first" in command(__file__, "--out", tmp_path / "s", "--shard", "x").output.replace("\n", " ")


def test_a_line_of_jsonl_ends_where_its_line_does(tmp_path):
    """Unicode has further line ends, which may stand in a JSON string as they are."""
    texts = ["one\u2028line", "a\x85b"]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in texts), "utf-8")
    assert read_corpus([tmp_path / "a.jsonl"]) == texts


def test_addresses_are_read_by_fsspec(finished, tmp_path):
    """In memory every kind of file; for the command an archive, which is measured already."""
    import pandas as pd

    frame = pd.DataFrame({"text": TEXTS})
    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus.jsonl", frame.to_json(orient="records", lines=True).encode())
    memory.pipe("/corpus.parquet", frame.to_parquet())
    memory.pipe("/corpus.txt", TEXTS[0].encode())
    for name, texts in {"jsonl": TEXTS, "parquet": TEXTS, "txt": TEXTS[:1]}.items():
        assert read_corpus([f"memory://corpus.{name}"]) == texts
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("corpus.jsonl", memory.cat("/corpus.jsonl"))
    address = f"zip://corpus.jsonl::file://{tmp_path}/texts.zip"
    shutil.copytree(finished[1], tmp_path / "survey")
    done = command(address, "--out", tmp_path / "survey", "--tokens", TOKENS)
    assert done.exit_code == 0, done.output
    assert f"{finished[0].manifest['parts']} measured already" in done.stderr
    assert files(tmp_path / "survey") == files(finished[1])


def test_addresses_that_cant_be_read_are_one_line(tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "texts.zip").write_text("no archive")
    for address, message in {
        "memory://nowhere.txt": "can't be read: FileNotFoundError: /nowhere.txt",
        "carrier-pigeon://a.txt": "can't be read: Protocol not known: carrier-pigeon",
        "s3://bucket/a.jsonl": "can't be read: Install s3fs",
        f"file://{tmp_path}/empty.txt": "is empty",
        f"file://{tmp_path}/*.md": "can't be read: ",
        f"zip://a.txt::file://{tmp_path}/texts.zip": "can't be read: BadZipFile: File is not a zip file",
        f"zip://a.txt::{tmp_path}/nowhere.zip": "can't be read: No such file or directory",
    }.items():
        with pytest.raises(duat.InvalidInput, match="^[^\n]*$") as refused:
            read_corpus([address])
        assert f"{address} {message}" in str(refused.value)
    done = command("memory://nowhere.txt", "--out", tmp_path / "survey")
    assert done.exit_code == 2 and done.stderr.startswith("duat: memory://nowhere.txt can't be read")


def test_a_full_disk_is_one_line_and_what_was_written_is_whole(finished, tmp_path, monkeypatch):
    """A disk with room for so many files; on the next one the system reports that it is full, and names none."""
    corpus, place = tmp_path / "corpus.jsonl", tmp_path / "survey"
    corpus.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    sync = os.fsync
    for room, name in {
        0: "manifest.json",
        1: "corpus.safetensors",
        4: "000003.safetensors",
        finished[0].manifest["parts"] - 3 + 1: "heads.parquet",
    }.items():
        left = iter(range(room))

        def sync_with_room(file, left=left):
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(file)

        monkeypatch.setattr(os, "fsync", sync_with_room)
        done = command(corpus, "--out", place, "--tokens", TOKENS)
        last = done.stderr.splitlines()[-1]
        assert done.exit_code == NOT_WRITTEN and "Traceback" not in done.stderr
        assert re.fullmatch(f"duat: .*/{name} couldn't be written: No space left on device; finished .*", last), last
        assert not list(tmp_path.rglob("*.part"))
    monkeypatch.setattr(os, "fsync", sync)
    assert command(corpus, "--out", place, "--tokens", TOKENS).exit_code == 0
    assert files(place) == files(finished[1])


@pytest.mark.slow
def test_a_killed_survey_goes_on(tmp_path):
    """The command is killed as soon as its first part is there; the rest is measured by two processes."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    asked = [sys.executable, "-m", "duat_jax", "survey", corpus, "--tokens", str(TOKENS), "--out"]
    subprocess.run([*asked, tmp_path / "whole"], check=True)
    with subprocess.Popen([*asked, tmp_path / "killed"]) as process:
        while not list(tmp_path.glob("killed/parts/*.safetensors")):
            time.sleep(0.01)
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "killed" / "survey.json").exists()
    subprocess.run([*asked, tmp_path / "killed", "--workers", "2"], check=True)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    # Every worker is told that numbers may be float64.
    subprocess.run([*asked, tmp_path / "float64", "--workers", "2", "--dtype", "float64"], check=True)


@pytest.mark.slow
def test_a_worker_that_dies_for_good_is_one_line(tmp_path):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        executor.submit(os._exit, 1)
        with pytest.raises(duat.DuatError, match="a worker died: run the same again"):
            duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS, executor=executor)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.filterwarnings("ignore:os.fork")
def test_forked_workers_are_refused_in_one_line(tmp_path):
    with (
        ProcessPoolExecutor(1, mp_context=get_context("fork")) as executor,
        pytest.raises(duat.DuatError, match=r'^the executor\'s workers are forked.*get_context\("spawn"\)\)$'),
    ):
        duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS, executor=executor)
    assert not list(tmp_path.rglob("parts/*"))


def test_cancelled_parts_are_one_line(tmp_path):
    class Cancelling(Executor):
        def submit(self, *_, **__):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    with pytest.raises(duat.DuatError, match="the scheduler ended or the executor was shut down: run the same again"):
        duat.survey.survey(None, TEXTS, tmp_path / "survey", tokens=TOKENS, executor=Cancelling())


@pytest.mark.slow
def test_the_script_on_the_page_runs_as_it_is_shown(tmp_path):
    """As a file of its own: worker processes that are spawned read it again."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "corpora.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    ((script, shown),) = ((script, shown) for script, shown in blocks if "__main__" in script)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def test_the_place_of_an_extreme_is_that_of_its_window_and_token():
    """Windows of 5 tokens, of which 4 predict: the eighth predicted one is the fourth token of the second window."""
    values, index = np.array([[3.0, 2.0, -np.inf]]), np.array([[7, 0, 0]])
    statistics = {"sums": [np.zeros(1)] * 4, "counts": np.zeros((1, 1)), "extremes": [(values, index)] * 3}
    found = _units(statistics, 10, 5).strongest
    assert found.places[0, :3].tolist() == [10 + 5 + 3, 10, -1] and found.values[0, :2].tolist() == [3.0, 2.0]
