"""Programs on disk: a second process answers every question as the first one did, and traces and compiles nothing."""

import enum
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.inputs.batching import batches
from duat_jax.inputs.model_inputs import checked_input
from duat_jax.interpret import pipeline
from duat_jax.models.config import Head
from duat_jax.models.tokenizer import OwnTokenizer
from duat_jax.transform import stored_program
from duat_jax.transform.stored_program import _content, _Unknown

EVERY_QUESTION = """
import sys
from duat_jax.cli.compiled import start_jax
start_jax()
if "again" in sys.argv:
    from duat_jax.transform import stored_program
    stored_program._written = None  # what would trace a program
from tests.every_result import MAKERS
for make in MAKERS.values():
    print(make())
"""


class Colour(enum.Enum):
    """One of one's own."""

    RED = 1


class Pair(NamedTuple):
    """One of one's own."""

    one: int
    two: int


def own(x):
    return x


def asked():
    """Return a model and a batch of one text, and a question that no process has asked."""
    model = duat.load(GOLDEN / "gpt2")
    (batch,) = batches([checked_input(model.config, [1, 2, 3], "the text", [])], model.config.positions, 1)
    question = stored_program.stored_program(pipeline.forward_passes.__wrapped__, static_argnames=("streams",))
    return partial(question, model, batch.inputs)


@pytest.fixture
def kept_in(tmp_path, monkeypatch):
    monkeypatch.setenv("DUAT_PROGRAMS", "1")
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)


def same(result, other):
    assert jax.tree.structure(result) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(result), jax.tree.leaves(other), strict=True):
        assert one.dtype == two.dtype and one.weak_type == two.weak_type
        np.testing.assert_array_equal(one, two)


def test_a_program_is_traced_once(kept_in, monkeypatch):
    plain = jax.jit(pipeline.forward_passes.__wrapped__)(*asked().args)
    same(asked()(), plain)
    (file,) = kept_in.glob("*.program")
    monkeypatch.setattr(stored_program, "_written", None)  # what would trace it again
    same(asked()(), plain)
    assert list(kept_in.glob("*.program")) == [file]


def test_a_file_that_is_not_whole_is_made_again(kept_in):
    expected = asked()()
    (file,) = kept_in.glob("*.program")
    whole = file.read_bytes()
    for content in (b"", whole[:-9], b"\x80\x04N."):
        file.write_bytes(content)
        same(asked()(), expected)
        assert len(file.read_bytes()) == len(whole)


def test_other_settings_shapes_and_static_arguments_are_other_programs(kept_in):
    question = asked()
    question()
    with jax.default_matmul_precision("float32"):
        question()
    question(streams=(1,))
    model, batch = question.args
    question.func(model, jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), batch))
    assert len(list(kept_in.glob("*.program"))) == 4


def test_a_trace_and_a_process_that_keeps_nothing_write_nothing(kept_in, monkeypatch):
    question = asked()
    expected = question()
    (file,) = kept_in.glob("*.program")
    file.unlink()
    same(jax.jit(asked().func)(*question.args), expected)
    monkeypatch.setenv("DUAT_PROGRAMS", "0")
    same(asked()(), expected)
    assert not list(kept_in.glob("*.program"))


def test_static_arguments_that_are_equal_and_of_another_type_are_other_programs():
    times = stored_program.stored_program(lambda x, by: x * by, static_argnames=("by",))
    with jax.numpy_dtype_promotion("standard"):
        found = [times(jnp.ones(2, jnp.int32), by=by).dtype for by in (1, 1.0, True)]
    assert [dtype.kind for dtype in found] == ["i", "f", "i"]


@pytest.mark.parametrize("value", [lambda x: x, own, Pair(1, 2), Colour.RED, object(), partial(own, 1), (1, [own])])
def test_code_of_others_has_no_content(value):
    with pytest.raises(_Unknown):
        _content(value)


def test_contents_are_alike_where_values_are():
    head = duat.load_config(GOLDEN / "gpt2").head
    assert isinstance(head, Head) and _content(head) == _content(duat.load_config(GOLDEN / "gpt2").head)
    assert _content(OwnTokenizer(None)) == _content(OwnTokenizer(Path("elsewhere")))
    assert _content(frozenset("abcdef")) == _content(frozenset("fedcba"))
    different = [
        *(replace(head, kind="classes"), replace(head, scale=2.0)),
        *(None, True, 1, 1.0, np.float32(1), np.int32(1), np.ones(1), "1", b"1", (1,), [1], (1, 1), {1: 1}, {1}),
        *(0.0, -0.0, head, Head, jnp.tanh, jax.nn.gelu, jnp.dtype("int8"), jax.typeof(jnp.ones(1)), partial(jnp.tanh)),
        *(jax.tree.structure([1]), jax.tree.structure((1,)), jax.tree.structure([None]), jax.typeof(1.0)),
    ]
    assert len({repr(_content(value)) for value in different}) == len(different)


def answers(seed, folder, monkeypatch, *arguments):
    """Return what a process with a hash seed prints of every question, and the programs that are kept then."""
    for name, value in (("PYTHONHASHSEED", seed), ("JAX_COMPILATION_CACHE_DIR", str(folder)), ("DUAT_PROGRAMS", "1")):
        monkeypatch.setenv(name, value)
    run = subprocess.run([sys.executable, "-c", EVERY_QUESTION, *arguments], capture_output=True, text=True, check=True)
    return run.stdout, {file.name for file in folder.iterdir() if not file.name.endswith("-atime")}


@pytest.mark.slow
def test_a_second_process_adds_no_program_whatever_is_asked(tmp_path, monkeypatch):
    said, kept = answers("1", tmp_path, monkeypatch)
    said_again, kept_then = answers("2", tmp_path, monkeypatch, "again")
    assert sum(name.endswith(".program") for name in kept) > 10
    assert said_again == said
    assert kept_then == kept
