"""Surveys of margins, given targets and differences from a baseline, beside the model and explanations of one place."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import typer
from cases import GOLDEN
from helpers import close, near
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.inputs.baselines import baseline_of
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.survey import run
from duat_jax.survey.explained import MARGIN, Explained, runner_up
from duat_jax.survey.measure import BATCH, TOP, largest, measure
from experiments.command_line import commands

PROSE = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")[:200]
TEXT = " ".join(f"w{number}" for number in np.random.default_rng(0).integers(3, 60, 480))
"""Of words that the small models' tokenizers know."""
IDS = np.array([[34, 17, 0, 5, 9, 7]])
NUMBERS = {"margin": MARGIN, "logit": Explained(11), "logit difference": Explained(11, 7)}
KINDS = {
    "target": {"target": 11},
    "contrast": {"target": 11, "contrast": 7},
    "baseline": {"baseline": "mean"},
    "both": {"target": 11, "baseline": "mean"},
}


@pytest.fixture(scope="module", params=["gptj", "gemma2"])
def model(request):
    """A model with a bias of its read-out, and one with a soft cap and gates; in double precision."""
    return duat.load(GOLDEN / request.param, dtype="float64")


def asked(model, explained):
    """Return of each place of the text the prefix that ends there, the target, and the token that is subtracted."""
    logits, ids = np.asarray(model(IDS[0])), IDS[0]
    for place, row in enumerate(logits[:-1]):
        expected = ids[place + 1]
        order = [int(token) for token in np.argsort(-row) if token != expected]
        pair = (explained.target, explained.contrast) if explained.target is not None else (int(expected), order[0])
        yield ids[: place + 1], *pair


def mean_baseline(windows, special=()):
    """Return the baseline of the vocabulary's mean, at all tokens but special ones."""
    inputs = Inputs(windows, np.ones(windows.shape, bool), None)
    return run.Reference(inputs, ~np.isin(windows, special))


def by_place(tables):
    """Return the sum at each token of tables of prefixes, all but the last token of the whole text."""
    return np.array([sum(np.asarray(table)[t] for table in tables if t < len(table)) for t in range(len(tables))])


def same_units(units, by_token):
    close(units.contribution, by_token.sum(0), layers=2)
    close(units.contribution_squared, np.square(by_token).sum(0), layers=2)
    near(units.highest.values[:, 0], by_token.max(0), within=1e-5)
    near(-units.lowest.values[:, 0], by_token.min(0), within=1e-5)


@pytest.mark.parametrize("name", NUMBERS)
def test_contributions_are_the_sum_of_explanations(model, name):
    state = measure(model, IDS, 0, NUMBERS[name])
    found = [duat.explain(model, ids, target, contrast=other) for ids, target, other in asked(model, NUMBERS[name])]
    close(state.sums[name], sum(each.value for each in found), layers=2)
    close(state.sums["embedding"], sum(np.asarray(each.embedding).sum() for each in found), layers=2)
    for layer in range(model.config.layers):
        same_units(
            state.units[f"layers.{layer}.mlp/neurons"], by_place([list(each.terms.values())[layer] for each in found])
        )


@pytest.mark.parametrize("name", NUMBERS)
def test_a_windows_difference_is_that_of_the_model_run_twice(model, name):
    """The baseline's embeddings are made here; special tokens, here the first of the vocabulary, stay."""
    state = measure(model, IDS, 0, NUMBERS[name], mean_baseline(IDS, [0]))
    ids, table, x = IDS[0], np.asarray(model.embedding.token[...]), model.embed(IDS[0])
    scale = model.config.embedding_scale
    y = jnp.asarray(np.where(ids[:, None] == 0, x, x + scale * (table.mean(0) - table[ids])))
    at_text, at_baseline = np.asarray(model.output(x)), np.asarray(model.output(y))

    def total(logits):
        each = enumerate(asked(model, NUMBERS[name]))
        return sum(
            logits[place, target] - (0 if other is None else logits[place, other]) for place, (_, target, other) in each
        )

    # The sum is smaller than its summands, by whose size it is rounded.
    within = 1e-13 * np.abs(at_text).max() * len(ids)
    near(state.sums[name], total(at_text) - total(at_baseline), within)
    near(state.sums["embedding"], total(at_text) - total(at_baseline), within)
    assert state.worst < 1


@pytest.mark.parametrize("name", NUMBERS)
def test_parts_of_a_difference_are_the_sum_of_contrasts(model, name):
    """The baseline is another text, which `contrast` is given as that."""
    others = np.array([[3, 17, 8, 40, 2, 6]])
    explained = NUMBERS[name]
    state = measure(model, IDS, 0, explained, run.Reference(mean_baseline(others).inputs, np.zeros(IDS.shape, bool)))
    found = [
        duat.contrast(model, ids, others[0, : len(ids)], target, contrast=other)
        for ids, target, other in asked(model, explained)
    ]
    close(state.sums[name], sum(each.difference for each in found), layers=2)
    for layer in range(model.config.layers):
        for kind, tables in {
            "mlp/neurons": [list(each.neurons.values())[layer] for each in found],
            "attention.mixed/heads": [list(each.heads.values())[layer] for each in found],
        }.items():
            same_units(state.units[f"layers.{layer}.{kind}"], by_place(tables))


def test_activations_are_those_of_the_text(model):
    """Whatever is explained."""
    at_text = measure(model, IDS, 0)
    difference = measure(model, IDS, 0, baseline=mean_baseline(IDS))
    for name, units in at_text.units.items():
        close(difference.units[name].activation, units.activation, layers=2)
        np.testing.assert_array_equal(difference.units[name].counts, units.counts)


@pytest.mark.parametrize("kind", KINDS)
def test_shards_and_workers_give_the_same_bytes(kind, tmp_path):
    options = {"tokens": 6, "dtype": "float32"} | KINDS[kind]

    def survey(name, **given):
        return duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / name, **options, **given)

    def files(name):
        place = tmp_path / name
        return {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}

    survey("one")
    assert len([*(tmp_path / "one" / "parts").iterdir()]) > 1
    assert survey("shards", shard=(2, 2)) is None
    survey("shards", shard=(1, 2))
    with ThreadPoolExecutor(2) as executor:
        survey("threads", executor=executor)
    assert files("one") == files("shards") == files("threads")


def test_tables_say_what_their_columns_hold(tmp_path):
    options = {"tokens": 6, "target": 11, "contrast": 7}
    surveys = {
        "contribution": duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / "text", **options),
        "difference": duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / "baseline", baseline="mean", **options),
    }
    for what, survey in surveys.items():
        assert survey.neurons.columns[2:4].tolist() == survey.heads.columns[2:4].tolist() == [what, f"{what}_std"]
        assert {f"highest {what}", f"lowest {what}", "strongest activation"} == set(survey.contexts.what)
        parts = survey.parts.set_index("part")[what]
        (layers,) = {len(parts.filter(like="/neurons"))}
        assert layers == survey.neurons.layer.nunique() and survey.manifest["worst"] < 1
        for kind, table in {"neuron": survey.neurons, "head": survey.heads}.items():
            sums = parts.filter(like=f"/{kind}s")
            if kind == "neuron" or what == "difference":
                near(sums.to_numpy(), table.groupby("layer")[what].sum().to_numpy(), within=1e-5)
    at_text = surveys["contribution"].parts.set_index("part").contribution
    near(at_text.drop("logit difference").sum(), at_text["logit difference"], within=1e-6 * at_text.abs().sum())
    of_baseline = surveys["difference"].parts.set_index("part").difference
    near(of_baseline["embedding"], of_baseline["logit difference"], within=1e-5)
    assert (
        surveys["difference"].manifest | {"baseline": "mean", "target": 11, "contrast": 7}
        == surveys["difference"].manifest
    )


def test_padding_is_a_baseline_where_a_tokenizer_has_it(tmp_path):
    shutil.copytree(GOLDEN / "llama", tmp_path / "model")
    tokenizer = tmp_path / "model" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"w5"', '"<pad>"'))
    text = "w3 w4 w6 w7 w9 w8 w3 w3 w10"
    options = {"tokens": 4, "target": "w12", "baseline": "pad", "dtype": "float64"}
    survey = duat.survey.survey(tmp_path / "model", [text], tmp_path / "survey", **options)
    model = duat.load(tmp_path / "model", dtype="float64")
    rows = load_file(tmp_path / "survey" / "corpus.safetensors")["windows"]
    differences = [np.asarray(model(row) - model(np.full(4, 5)))[:-1, 12].sum() for row in rows]
    near(survey.parts.set_index("part").difference["logit"], np.sum(differences) / (3 * len(rows)), within=1e-9)


@pytest.mark.parametrize("vocab", [7, 521, 1030])
def test_the_runner_up_is_the_first_of_the_most_probable_others(vocab):
    """Many logits are equal."""
    random = np.random.default_rng(vocab)
    logits, expected = random.integers(0, 9, (40, vocab)).astype(float), random.integers(0, vocab, 40)
    found = runner_up(jnp.asarray(logits), jnp.asarray(expected))
    logits[np.arange(40), expected] = -np.inf
    np.testing.assert_array_equal(found, logits.argmax(-1))


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_the_largest_values_of_a_batch_are_the_first_of_them(predicted, seed):
    """Many values are equal, and windows that don't count are minus infinity."""
    values = np.random.default_rng(seed).integers(0, 6, (BATCH, predicted, 3)).astype(float)
    values[seed % BATCH :] = -np.inf
    found, index = largest(jnp.asarray(values))
    flat = values.reshape(-1, 3)
    order = np.argsort(-flat, axis=0, kind="stable")[:TOP]
    np.testing.assert_array_equal(found.T, np.take_along_axis(flat, order, 0))
    np.testing.assert_array_equal(index.T, order)


def test_bad_questions_are_refused_in_one_line(tmp_path):
    place = tmp_path / "survey"

    def ask(place=place, **options):
        duat.survey.survey(GOLDEN / "gpt2", [TEXT[:200]], place, **{"tokens": 6} | options)

    ask(target=11)
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for message, options in {
        "another target": {},
        "another target and another contrast": {"target": 7, "contrast": 11},
        "another contrast": {"target": 11, "contrast": 7},
        "another baseline": {"target": 11, "baseline": "mean"},
        "give target too": {"contrast": 7, "place": tmp_path / "new"},
        "the target": {"target": "no token", "place": tmp_path / "new"},
        "target": {"target": 6100, "place": tmp_path / "new"},
        "give two": {"target": 7, "contrast": 7, "place": tmp_path / "new"},
        "'blur' is no baseline of a gpt2 model: give mask or pad or mean": {
            "baseline": "blur",
            "place": tmp_path / "new",
        },
        "the tokenizer has no pad token: give mean": {"baseline": "pad", "place": tmp_path / "new"},
    }.items():
        with pytest.raises(duat.InvalidInput, match="^[^\n]*$") as refused:
            ask(**options)
        assert message in str(refused.value), refused.value
    assert not (tmp_path / "new").exists()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_the_command_names_target_contrast_and_baseline(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(PROSE)

    def command(*options):
        return CliRunner().invoke(application, ["survey", str(corpus), "--tokens", "16", *map(str, options)])

    first = command("--out", tmp_path / "one", "--target", "self", "--contrast", " cls", "--baseline", "mean")
    assert first.exit_code == 0, first.output
    said = " ".join(first.stdout.split())
    assert "part in the difference from the vocabulary's mean: logit of 'self' minus that of ' cls'" in said
    assert "--target 'self' has no leading space" in first.stderr
    again = duat.survey.survey(
        None, [PROSE], tmp_path / "one", tokens=16, target="self", contrast=" cls", baseline="mean"
    )
    assert again.neurons.difference.abs().max() > 0
    other = command("--out", tmp_path / "one", "--target", " self")
    assert other.exit_code == 2 and "another target and another contrast and another baseline" in other.stderr
    wrong = command("--out", tmp_path / "two", "--target", "two words")
    assert wrong.exit_code == 2 and "is not one token" in wrong.stderr.splitlines()[-1]


def test_the_command_takes_the_baselines_of_texts_alone(tmp_path):
    given = ("survey", str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "survey"), "--baseline", "blur")
    refused = CliRunner().invoke(application, given)
    assert refused.exit_code == 2 and "'blur' is not one of 'mask', 'pad', 'mean'" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("command", ["explain", "survey"])
def test_the_help_says_that_special_tokens_stay(command):
    options = dict(commands(typer.main.get_command(application)))[command].params
    (baseline,) = (option for option in options if option.name == "baseline")
    assert "at every token but special ones" in baseline.help


def test_a_worker_reads_baselines_from_the_directory(tmp_path):
    """A part that is measured from the directory alone is the one that the survey kept."""
    options = {"tokens": 6, "baseline": "mean", "dtype": "float64"}
    duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path, **options)
    file = tmp_path / "parts" / "000000.safetensors"
    expected = file.read_bytes()
    file.unlink()
    model = duat.load(GOLDEN / "gpt2", dtype="float64")
    windows, baseline = run._rows(0, load_file(tmp_path / "corpus.safetensors"))
    assert baseline.averaged.all() and jax.tree.leaves(baseline)[0].shape == windows.shape
    run._measure_with(model, "float64", MARGIN, tmp_path, 0)
    assert file.read_bytes() == expected


def test_special_tokens_stay_in_a_baseline():
    config, tokenizer = duat.load_config(), duat.load_tokenizer()
    windows = np.array([[0, 5, 6], [7, 0, 0]])
    inputs = Inputs(windows, np.ones(windows.shape, bool), None)
    np.testing.assert_array_equal(baseline_of(config, inputs, "mean", tokenizer).averaged, windows != 0)


def test_a_corpus_without_its_manifest_is_that_of_this_survey_or_refused(tmp_path):
    """A killed survey may leave the corpus alone: it goes on, and a survey from a baseline is refused there."""
    options = {"tokens": 6, "dtype": "float64"}
    duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / "one", **options)
    (tmp_path / "two").mkdir()
    shutil.copy(tmp_path / "one" / "corpus.safetensors", tmp_path / "two")
    with pytest.raises(duat.InvalidInput, match="corpus of another survey"):
        duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / "two", baseline="mean", **options)
    again = duat.survey.survey(GOLDEN / "gpt2", [TEXT], tmp_path / "two", **options)
    assert again.manifest["baseline"] is None
