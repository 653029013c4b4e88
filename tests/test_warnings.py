"""Every warning names the user's line, however deep in the package it is raised."""

import ast
import contextlib
import json
import shutil
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from cases import GOLDEN
from matplotlib.figure import Figure
from tokenizer_layouts import LAYOUTS

import duat_jax as duat
from duat_jax.display.pictures import styled
from duat_jax.evaluation.journal import Journal
from duat_jax.lora import load_adapters, new_adapters, save_adapters
from duat_jax.models.encoding import encode

PACKAGE = Path(duat.__file__).parent
OURS = {"errors", "deprecation", "records"}
"""The modules that have the functions that warn."""


def write(folder, layout="gpt2", **fields):
    """Write a checkpoint with some fields of its configuration changed."""
    shutil.copytree(GOLDEN / layout, folder, dirs_exist_ok=True)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | fields))
    return folder


def journal(folder):
    (folder / "work").write_text('{"seed": 0}\n{"name": "a", "found": 2.5}\n')
    Journal(folder / "work", {"seed": 0})


def saved(folder):
    duat.open(Path(__file__).parent / "cli" / "saved_version_4.safetensors")


def adapters(folder):
    model = duat.load(GOLDEN / "llama")
    save_adapters(folder / "a", new_adapters(model, ["q_proj", "v_proj"]), model)
    file = folder / "a" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": ["q_proj"]}))
    load_adapters(folder / "a", model)


def ignored_fields(folder):
    duat.load_config(write(folder, nothing=1))


def ignored_fields_of_a_model(folder):
    duat.load(write(folder, nothing=1)).tokenizer  # noqa: B018


def few_tokens(folder):
    duat.load_tokenizer(write(folder, vocab_size=10_000))


def another_class(folder):
    LAYOUTS["bert"].make().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 99}')
    duat.load_tokenizer(folder)


def first_token(folder):
    tokenizer = LAYOUTS["llama"].make()
    encode(tokenizer, "<s>hello", "the text")


def missing_characters(folder):
    @styled
    def draw():
        figure = Figure()
        figure.text(0, 0, "\U0001f999")
        return figure

    draw()


def older_survey(folder):
    (folder / "survey.json").write_text('{"version": 2}')
    duat.survey.open(folder)


def baseline(folder):
    duat.contrast(duat.load(GOLDEN / "gpt2"), [5, 6], "mask")


def old_order(folder):
    model = duat.load(GOLDEN / "gpt2")
    duat.diff(model, model, [5, 6], 3, nothing=0)


def channels_last(folder):
    duat.image_maps(lambda x: x.sum(), jnp.ones((5, 6, 3)))


def probability(_):
    duat.auto(lambda x: jax.nn.sigmoid(x[0]))(jnp.ones(2))


def probability_in_a_trace(_):
    duat.decompose(lambda x: jax.nn.sigmoid(x[0]), jnp.ones(2), marks="auto")


def no_such_marks(_):
    duat.secant(lambda x: jnp.tanh(x[0]), at="activation")(jnp.ones(2), jnp.zeros(2))


RAISED = {
    "evaluation/journal": [journal],
    "saved": [saved],
    "lora/peft": [adapters],
    "models/loader": [ignored_fields, ignored_fields_of_a_model],
    "models/tokenizer": [few_tokens],
    "models/checkpoint/tokenizer_configured": [another_class],
    "models/encoding": [first_token],
    "marking/automatic": [probability, probability_in_a_trace],
    "forms/secant": [no_such_marks],
    "display/fonts": [missing_characters],
    "survey/tables": [older_survey],
    "inputs/baseline_kinds": [baseline],
    "weights/old_order": [old_order],
    "interpret/images/compute": [channels_last],
}
"""A warning or more of each module; old names are in `test_deprecation.py`."""


def modules_with(*calls):
    """Return the names of the modules of the package with a call of one of some functions."""
    sources = {file: file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}
    return {
        file.relative_to(PACKAGE).with_suffix("").as_posix()
        for file, source in sources.items()
        if any(f"{call}(" in source for call in calls)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls
    }


def test_every_warning_is_raised_by_one_function_and_raised_here():
    assert modules_with("warnings.warn", "warnings.warn_explicit") == {"errors"}
    assert modules_with("warn_caller", "warn") - OURS == RAISED.keys()


@pytest.mark.parametrize("action", [action for actions in RAISED.values() for action in actions])
def test_a_warning_names_the_line_of_the_user(action, tmp_path):
    with warnings.catch_warnings(record=True) as seen, contextlib.suppress(TypeError, OSError, duat.DuatError):
        warnings.simplefilter("always")
        action(tmp_path)
    lines = [line for code in _codes(action) for *_, line in code.co_lines()]
    assert seen and {warning.filename for warning in seen} == {__file__}
    assert all(warning.lineno in lines for warning in seen)


def _codes(function):
    code = function.__code__
    return [code, *(constant for constant in code.co_consts if hasattr(constant, "co_lines"))]
