"""The texts in which each neuron is strongest: from a survey to tables and pages."""

import json

import numpy as np
import pytest
from helpers import near
from safetensors.numpy import load_file
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.display.examples import FILE, SHOWN, Example, Examples, as_bytes, table
from duat_jax.display.page.data import page_data
from duat_jax.display.result import as_text
from duat_jax.evaluation.journal import fingerprint
from duat_jax.models.checkpoint.place import EMBEDDED

TEXT = "for i in range(10): print(i)\n"


@pytest.fixture(scope="module")
def surveyed(tmp_path_factory):
    """A survey's directory, its tables and its windows."""
    directory = tmp_path_factory.mktemp("survey") / "one"
    found = duat.survey.survey(None, [TEXT * 8], directory, tokens=8)
    return directory, found, load_file(directory / "corpus.safetensors")["windows"]


def test_the_first_example_is_the_largest_activation_of_the_windows(surveyed):
    """The reference is the model recorded on every window, of which the last token predicts nothing."""
    directory, _, windows = surveyed
    examples, model = duat.survey.examples(directory), duat.load()
    tokenizer = model.tokenizer
    values = [duat.explain(model, list(map(int, row[:-1])), tokenizer=tokenizer).activations for row in windows]
    for layer, key in enumerate(values[0]):
        fired = np.stack([each[key] for each in values])
        for neuron in range(0, fired.shape[-1], 97):
            first = examples.find_texts(layer, neuron)[0]
            window, token = np.unravel_index(fired[..., neuron].argmax(), fired.shape[:2])
            near(first.activation, float(fired[window, token, neuron]), 1e-3)
            assert first.token == tokenizer.decode([int(windows[window, token])])


def test_the_embedded_models_examples_are_its_own():
    examples, model = duat.survey.examples(), duat.load()
    assert examples.model == fingerprint(model, duat.load_config())
    assert [len(neurons) for neurons in examples.layers.values()] == [768] * model.config.layers
    assert (EMBEDDED / FILE).stat().st_size < 2e6


def test_a_neurons_examples_have_different_tokens_and_the_strongest_first():
    texts = [Example("a", token, "b", value) for token, value in (("x", 4.0), ("y", 2.0), ("x", 1.5), ("z", 1.0))]
    examples = Examples("", "", 9, {1: [[], [*texts, Example("a", "w", "b", 0.5)]]})
    assert [(each.token, each.activation) for each in examples.find_texts(1, 1)] == [("x", 4.0), ("y", 2.0), ("z", 1.0)]
    assert len(examples.find_texts(1, 1)) == SHOWN
    with pytest.warns(FutureWarning, match="'of' is called 'find_texts'"):
        assert examples.of(1, 1) == examples.find_texts(1, 1)
    assert (
        examples.find_texts(1, 0)
        == examples.find_texts(1, 7)
        == examples.find_texts(3, 0)
        == examples.find_texts(None, 0)
        == []
    )


def test_a_table_and_a_page_show_every_neuron_that_they_list():
    model = duat.load()
    tokenizer = model.tokenizer
    explanation, examples = duat.explain(model, TEXT, tokenizer=tokenizer), duat.survey.examples()
    (_, shown) = table(explanation.top(6), examples)
    rows = as_text(shown).splitlines()[2:]
    listed = [tuple(map(int, row.split()[:2])) for row in rows]
    assert listed == list(dict.fromkeys((each.term.layer, each.neuron) for each in explanation.top(6)))
    assert table(explanation.top(6), Examples("", "", 1, {})) == []
    page = page_data(explanation.view(), examples)
    tops = [(row["layer"], top) for row in page["rows"][1:] for top in row["units"][0]["top"]]
    assert page["examples"].keys() == {f"{layer}:{unit}" for layer, top in tops for unit, *_ in top}
    assert page_data(explanation.view()) == page | {"examples": {}}


WHOLE = as_bytes(Examples("", "", 1, {0: []}))


@pytest.mark.parametrize("content", [None, b"", b"no gzip", WHOLE[:-9], WHOLE[:12] + b"\xff\xff" + WHOLE[14:]])
def test_a_directory_without_examples_is_refused_in_one_line(content, tmp_path):
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    found = CliRunner().invoke(application, ["explain", TEXT, "--survey", str(tmp_path)])
    assert found.exit_code == 2
    assert len(found.stderr.splitlines()) == 1
    assert str(tmp_path) in found.stderr


@pytest.mark.parametrize(("family", "neurons"), [("gpt2", [768] * 5), ("gpt2", [768] * 5 + [5]), ("llama", [768] * 6)])
def test_a_survey_of_another_model_is_refused(family, neurons, tmp_path):
    layers = {layer: [[]] * count for layer, count in enumerate(neurons)}
    (tmp_path / FILE).write_bytes(as_bytes(Examples("", family, 1, layers)))
    for command in ("explain", "graph"):
        found = CliRunner().invoke(application, [command, TEXT, "--survey", str(tmp_path)])
        assert found.exit_code == 2
        assert "of another family" in found.stderr


def test_control_characters_of_a_corpus_are_shown_and_long_tokens_cut():
    example = Example("\x1b]0;a\x07", "x" * 300 + "\x9b", "\x7f\r", 1.0)
    explanation = duat.explain(duat.load(), [5, 6, 7])
    neurons = [[example]] * 768
    (_, shown) = table(explanation.top(1), Examples("", "", 1, dict.fromkeys(range(6), neurons)))
    text = as_text(shown)
    assert "␛]0;a␇" in text and "x" * 15 + "…" in text
    assert not any(ord(character) < 32 or 126 < ord(character) < 160 for character in text if character != "\n")


def test_the_command_names_neurons_by_a_survey(surveyed, tmp_path):
    directory, *_ = surveyed
    page = tmp_path / "page.html"
    found = CliRunner().invoke(application, ["explain", TEXT, "--survey", str(directory), "--html", str(page)])
    assert "Where these neurons are strongest" in found.stdout
    assert json.loads((directory / "survey.json").read_bytes())["predicted"] == duat.survey.examples(directory).tokens
