"""Every form of a token that a result has, on screen, in JSON, in a page, in a file, given back as target is its id."""

import json
import re

import numpy as np
import pandas
import pytest
import typer
from adapters import random_adapters
from command import run
from damaged import copy_checkpoint, damage

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.in_context import question_of
from duat_jax.lora import lora_change, save_adapters
from duat_jax.models.vocabulary.classes import class_label, find_class
from duat_jax.models.vocabulary.running import run_texts
from duat_jax.models.vocabulary.token import Token, quoted_label, token_label
from duat_jax.models.vocabulary.vocabulary import find_token, vocabulary_of
from duat_jax.survey.tables import _readable
from tests.cli.test_cli import commands, takes
from tests.interpret.test_pages_of_results import read
from tests.layouts import layout
from tests.models.test_vocabulary import SPACES
from tests.test_references import functions, parameters_of

pytestmark = pytest.mark.filterwarnings("ignore:.*has only")

TEXT, OTHER, ROWS = "hello x hello", "hello x paris", 1024
SAYS = (" x", "x", "\n", "⏎", " hello")
"""The tokens that the models find most probable; by their texts alone, pairs of them look alike."""
FORMS = (str, token_label, lambda token: quoted_label(token)[1:-1])

COMMANDS = {
    "explain": ("explain TEXT --model MODEL", "json save html"),
    "contrast": ("contrast TEXT --reference OTHER --model MODEL", "json save html"),
    "attribute": ("attribute TEXT --reference OTHER --model MODEL", "json save html"),
    "graph": ("graph TEXT --top-neurons 2 --model MODEL", "json save html"),
    "intervene": ("intervene TEXT --edit EDIT --model MODEL", "json save html"),
    "steer": ("steer TEXT --towards TEXT --away OTHER --layers 1 --model MODEL", "json save html"),
    "diff": ("diff MODEL TEXT --bits 2 --top 0", "json save"),
    "lora diff": ("lora diff ADAPTER TEXT --model MODEL", "json save"),
}
"""Every command with a target and a record, and its files."""

FUNCTIONS = {
    "explain": duat.explain,
    "contrast": lambda model, text, **asked: duat.contrast(model, text, OTHER, **asked),
    "attribute": lambda model, text, **asked: duat.attribute(model, text, OTHER, **asked),
    "graph": lambda model, text, **asked: duat.graph(model, text, top_neurons=0, **asked),
    "intervene": lambda model, text, **asked: duat.intervene(model, text, duat.edits.Heads(1, 1).set(0), **asked),
    "diff": lambda model, text, **asked: duat.diff(model, text, reference=model, top=0, **asked),
    "lora_change": lambda model, text, **asked: lora_change(model, random_adapters(model, ["fc1"]), text, **asked),
}
"""Every function with a target and a tokenizer."""


@pytest.fixture(scope="module", params=["SentencePiece", "byte-level"])
def checkpoint(request, tmp_path_factory):
    """A small model whose tokenizer has a layout, with an adapter, and a vocabulary of one size."""
    tokenizer = layout(request.param)
    folder = copy_checkpoint(tmp_path_factory.mktemp("layout"), "phi", vocab_size=ROWS)
    tokenizer.save(str(folder / "tokenizer.json"))
    random, bias = np.random.default_rng(0), np.zeros(ROWS, np.float32)
    bias[[find_token(tokenizer, text, "") for text in SAYS]] = 20 - np.arange(len(SAYS)) / 2

    def grow(tensors):
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = random.normal(size=(ROWS, 16)).astype(np.float32)
        tensors["lm_head.bias"] = bias

    damage(folder, grow)
    model = duat.load(folder)
    save_adapters(folder / "adapter", random_adapters(model, ["fc1"]), model)
    return folder


def nested(value, kind):
    """Yield every part of a value that is of a kind."""
    if isinstance(value, kind):
        yield value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for part in [*parts, *getattr(value, "__dict__", {}).values()]:
        yield from nested(part, kind)


def quoted(text):
    """Return the tokens that stand in quotation marks before a probability, or as what is read."""
    marked = r"""(['"])([^'"]*)\1"""
    found = [*re.finditer(rf"(?:logit|probability|that) of {marked}", text), *re.finditer(rf"{marked} \d+\.\d%", text)]
    return [each[2] for each in found]


def printed_by(folder, name, *options):
    """Return what a command writes: its record, its result, and the tokens on its page and on screen."""
    asked, kinds = COMMANDS[name]
    words = {"MODEL": folder, "ADAPTER": folder / "adapter", "TEXT": TEXT, "OTHER": OTHER, "EDIT": "head 1:1 set 0"}
    files = {kind: folder / ("result" if kind == "save" else f"result.{kind}") for kind in kinds.split()}
    result = run(
        *(words.get(word, word) for word in asked.split()),
        *(part for kind, file in files.items() for part in (f"--{kind}", file)),
        *options,
    )
    assert result.exit_code == 0, result.output
    pages = [read(files["html"].read_text())] if "html" in files else []
    on_page = [text for page in pages for said in page["said"] for text, _ in said["predictions"]]
    on_page += [text for page in pages for text in quoted(page["target"])]
    record = json.loads(files["json"].read_text())
    return record, duat.open(files["save"]), on_page, quoted(" ".join(result.stdout.split()))


@pytest.mark.parametrize(
    "name", [name if name == "explain" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
)
def test_what_a_command_prints_given_back_is_the_same_token(checkpoint, name):
    tokenizer = duat.load_tokenizer(checkpoint)

    def ids(texts):
        return [find_token(tokenizer, text, "") for text in texts]

    spaced, inside = vocabulary_of(tokenizer).tokens(ids(SAYS[:2]))
    asked = "--target", token_label(spaced), "--contrast", inside
    record, result, on_page, on_screen = printed_by(checkpoint, name, *asked)
    assert [record["target"][each]["id"] for each in ("output", "contrast")] == [spaced.id, inside.id]
    with_id = [each for each in nested(record, dict) if "id" in each]
    known = [each["id"] for each in with_id]
    assert ids(each.get("text") or each.get("token") or each["output"] for each in with_id) == known
    assert ids(on_screen)[:2] == [spaced.id, inside.id] and set(ids(on_screen)) <= set(known)
    assert set(ids(on_page)) <= set(known) and (len(on_page) > 5) == ("html" in COMMANDS[name][1])
    in_file = list(nested(result, Token))
    assert in_file and all(ids(map(form, in_file)) == [token.id for token in in_file] for form in FORMS)
    if name in ("explain", "graph"):
        assert set(known) >= set(ids(SAYS))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_function_returns_given_back_is_the_same_token(checkpoint, name):
    model, tokenizer = duat.load(checkpoint), duat.load_tokenizer(checkpoint)
    spaced, inside = vocabulary_of(tokenizer).tokens(find_token(tokenizer, text, "") for text in SAYS[:2])
    for form in FORMS:
        result = FUNCTIONS[name](model, TEXT, target=form(spaced), contrast=form(inside), tokenizer=tokenizer)
        target = getattr(result, "explanation", result).target  # a graph is one of an explanation
        assert (target.output, target.contrast) == ((spaced.id, spaced), (inside.id, inside))


@pytest.mark.parametrize("name", SPACES)
def test_a_surveys_tokens_given_back_are_the_same_and_stand_in_their_text(name):
    tokenizer, text = layout(name), "hello x hello def x paris x hello x x paris x def hello x x"
    corpus = np.array([tokenizer.encode(text, add_special_tokens=False).ids])
    rows = _readable(pandas.DataFrame({"place": range(corpus.size)}), corpus, tokenizer)
    assert [find_token(tokenizer, token, "") for token in rows.token] == list(rows.token_id) == corpus[0].tolist()
    if "without" not in name:
        assert all(f"{row.before}{row.token}{row.after}" in f" {text}" for row in rows.itertuples())
        assert all(tokenizer.decode(corpus[0, : i + 5].tolist()).endswith(row.after) for i, row in rows.iterrows())
        assert sum(row.after.startswith(" ") for row in rows.itertuples()) > len(rows) / 2


@pytest.mark.parametrize("name", SPACES)
def test_an_answer_given_back_is_the_same_tokens(name):
    tokenizer = layout(name)
    for text in (" x", "x", " hello x") if "without" not in name else ():
        prompt = question_of(tokenizer, ["x"], "x", text)
        ((_, again),) = run_texts(tokenizer, [[prompt.ids.tolist(), prompt.answers]])
        assert again == text and question_of(tokenizer, ["x"], "x", again).answers == prompt.answers


CLASSES = (("no", "yes", "no"), ("1", "0"), ("a", "·a", " a", "a\n", "a⏎"), ("#1", "1", "", ""), ())


@pytest.mark.parametrize("names", CLASSES)
def test_every_printed_form_of_a_class_names_it(names):
    labels = [class_label(names, index) for index in range(len(names) or 3)]
    for form in FORMS:
        texts = [form(label) for label in labels]
        assert [find_class(names, text) for text in texts] == [label.id for label in labels] == [*range(len(labels))]


def test_every_command_and_function_that_takes_a_token_is_here():
    taking = {name for name, command in commands(typer.main.get_command(application)) if takes(command, "target")}
    assert taking == {*(name.partition(" --")[0] for name in COMMANDS), "survey"}
    taking = {name for name, each in functions().items() if {"target", "tokenizer"} <= parameters_of(each)}
    assert taking == {*FUNCTIONS}
