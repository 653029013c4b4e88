"""Whatever a configuration, a file, a tokenizer or an argument says, only the package's own errors come out."""

import functools
import json
import shutil
import string
import tempfile
import warnings
from contextlib import chdir, contextmanager
from pathlib import Path

import numpy as np
from cases import GOLDEN
from containers import GATED, KEYS, as_stored, decoder, write_gguf
from damaged import real_configurations
from helpers import described
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.inputs.question import ask
from fuzzing.checkpoints import WORDS, read_model, read_text, safetensors_file, split_safetensors

NAMES = st.sampled_from(["gpt2-untied-relu", "bert-silu"])
WORD = st.sampled_from(WORDS) | st.text(max_size=8)
NUMBER = st.integers(-3, 70) | st.integers() | st.floats() | st.sampled_from([2**32 - 1, 2**63, 10**400, 1e39])
PLAIN = st.none() | st.booleans() | NUMBER | WORD
JSON = st.recursive(
    PLAIN, lambda each: st.lists(each, max_size=3) | st.dictionaries(WORD, each, max_size=3), max_leaves=6
)


def few(examples):
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def changed(name, **files):
    """A copy of a golden checkpoint with the contents of some files replaced."""
    with tempfile.TemporaryDirectory() as parent:
        directory = shutil.copytree(GOLDEN / name, Path(parent) / name)
        for file, content in files.items():
            found = next(directory.glob(f"{file}.*"))
            found.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        yield directory


@functools.cache
def original(name, file):
    return (GOLDEN / name / file).read_bytes()


@st.composite
def with_one_change(draw, value):
    """JSON like the given one, with one place of it changed."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(list(value)))
        match draw(st.sampled_from(["change", "change", "change", "drop", "copy"])):
            case "drop":
                return {key: each for key, each in value.items() if key != name}
            case "copy":
                return value | {draw(WORD): value[name]}
            case _:
                return value | {name: draw(with_one_change(value[name]))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(with_one_change(value[place])), *value[place + 1 :]]
    return draw(JSON)


def one_line(message):
    assert message is None or (len(message) < 4000 and "\n" not in message), message[:5000]
    return message


FIELDS = sorted(set().union(*real_configurations().values()))


@few(150)
@given(NAMES, st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3), st.dictionaries(WORD, JSON, max_size=2))
@example("gpt2-untied-relu", {"layer_norm_epsilon": 10**400}, {})
@example("gpt2-untied-relu", {}, {"": [[[[[[1]]]]]]})
def test_any_configuration(name, known, unknown):
    values = json.loads(original(name, "config.json")) | known | unknown
    with changed(name, config=values) as directory:
        try:
            config = duat.load_config(directory)
        except duat.BadCheckpoint as error:
            one_line(str(error))
        else:
            assert config.features % config.blocks[0].heads == 0
            assert 0 < np.float32(config.blocks[0].epsilon) < np.inf


@few(100)
@given(NAMES, st.text(string.ascii_lowercase + "_", min_size=1), JSON.filter(lambda value: value is not None))
def test_any_unknown_field_is_named(name, field, value):
    values = json.loads(original(name, "config.json"))
    if field not in FIELDS:
        with changed(name, config=values | {field: value}) as directory, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                duat.load_config(directory)
            except duat.BadCheckpoint as error:
                said = str(error)
            else:  # the reference doesn't read it either
                said = " ".join(str(each.message) for each in warned)
            assert repr(field)[1:-1][:10] in said


@few(40)
@given(NAMES, st.data())
def test_any_header(name, data):
    header, content = split_safetensors(original(name, "model.safetensors"))
    header = data.draw(with_one_change(header) | st.binary(max_size=40) | JSON)
    with changed(name, model=safetensors_file(header, content)) as directory:
        one_line(read_model(directory))


@few(100)
@given(NAMES, st.binary(max_size=24), st.integers(0, 10**6), st.integers(0, 100))
def test_any_bytes(name, inserted, place, removed):
    file = original(name, "model.safetensors")
    place %= len(file)
    with changed(name, model=file[:place][:5000] + inserted + file[place + removed :][:5000]) as directory:
        assert one_line(read_model(directory)) is not None


STORED = st.sampled_from([np.float64, np.float32, np.float16, np.int32, np.bool_, np.uint8])
ENTRY = st.floats() | st.sampled_from([1e300, np.nan, -np.inf])


@few(40)
@given(NAMES, st.data())
def test_any_tensor(name, data):
    tensors = load_file(GOLDEN / name / "model.safetensors")
    chosen = data.draw(st.sampled_from(sorted(tensors)))
    tensor = tensors.pop(chosen)
    prefix = data.draw(st.sampled_from(["", "", "transformer.", "bert.", "x"]))
    shape = data.draw(st.just(tensor.shape) | st.lists(st.integers(0, 13), max_size=3))
    with np.errstate(all="ignore"):
        new = np.full(shape, data.draw(ENTRY)).astype(data.draw(STORED))
    again = {chosen: tensor} if data.draw(st.booleans()) else {}
    with changed(name, model=save(again | tensors | {prefix + chosen.removeprefix("transformer."): new})) as directory:
        one_line(read_model(directory))


@few(200)
@given(NAMES, st.data())
def test_any_tokenizer(name, data):
    tokenizer = data.draw(with_one_change(json.loads(original(name, "tokenizer.json"))))
    text = data.draw(st.text(max_size=12) | st.just("w5 w6"))
    with changed(name, tokenizer=tokenizer) as directory:
        one_line(read_text(directory, text))


@few(300)
@given(NAMES, st.lists(st.integers(0, 62), max_size=18) | JSON, JSON, JSON, st.lists(NUMBER) | JSON, NUMBER | JSON)
def test_any_question(name, ids, target, contrast, against, position):
    config = duat.load_config(GOLDEN / name)
    try:
        question = ask(described(config), ids, target, contrast, against, position)
    except duat.InvalidInput as error:
        one_line(str(error))
    else:
        assert len(question.inputs) == len(question.targets) > 0
        for (text, _, _), targets in zip(question.inputs, question.targets):
            assert 0 < len(text) <= config.positions
            assert text.min() >= 0
            assert text.max() < config.vocab
            if config.head.kind == "hidden":
                assert all(len(asked.against) for asked in targets)
            else:
                assert all(0 <= asked.position < len(text) for asked in targets)


ARGUMENT = st.sampled_from(["w5", "w6 w7", "w8 w9 w10", "", " ", "[CLS]", "é", "\udcff", "-1", "0", "1e9"]) | st.text(
    max_size=6
)
OPTIONS = {
    "--target": ARGUMENT,
    "--contrast": ARGUMENT,
    "--against": ARGUMENT,
    "--position": st.integers(-4, 4).map(str) | ARGUMENT,
    "--top": st.integers(0, 10**20).map(str) | ARGUMENT,
    "--json": st.sampled_from(["-", "a.json", "b/a.json", "", ".", "a" * 254, "a" * 300, "a\0"]) | ARGUMENT,
    # Without a NUL, which no command line can carry and older versions of typer raise for.
    "--plot": st.sampled_from(["b/a.png", "", ".png", "..", "a" * 300 + ".png"]),
    "--dtype": st.sampled_from(["float32", "float64", "int8"]),
}


@few(40)
@example("gpt2-untied-relu", "w5", {"--json": "a\0b"})
@example("gpt2-untied-relu", "w5", {"--json": "a" * 255})
@given(NAMES, ARGUMENT, st.fixed_dictionaries({}, optional=OPTIONS))
def test_any_command_line(name, text, options):
    arguments = [part for option, value in options.items() for part in (option, value)]
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        here = Path(directory)
        result = CliRunner().invoke(application, ["explain", text, "--model", str(GOLDEN / name), *arguments])
        assert result.exit_code in (0, 2), (arguments, result.exception)
        assert "Traceback" not in result.output
        written = [path for path in here.rglob("*") if path.is_file()]
        if result.exit_code:
            assert written == []
            assert result.stdout == ""
            assert result.stderr.count("\n") == 1 or result.stderr.startswith("Usage"), result.stderr
        assert all(".part" not in path.name for path in written)


@functools.cache
def gguf_file():
    with tempfile.TemporaryDirectory() as parent:
        tensors = as_stored(decoder(GATED), permuted=True)
        return write_gguf(Path(parent) / "a.gguf", "llama", tensors).read_bytes()


def read_gguf(content):
    """Read a GGUF file as `duat explain` does, and return what was said of it."""
    with tempfile.TemporaryDirectory() as parent:
        file = Path(parent) / "a.gguf"
        file.write_bytes(content)
        return one_line(read_text(file)), one_line(read_model(file))


HEADER = 12_000
"""Bytes of the file's header, in which a change is most telling: counts, lengths, keys and types."""


@few(50)
@given(
    st.integers(0, HEADER) | st.integers(0, 10**6),
    st.binary(max_size=12) | st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\xff" * 4, b"\x7f"]),
    st.sampled_from([0, 1, 4, 8, 12]),
)
def test_any_bytes_in_a_gguf_file(place, written, removed):
    file = gguf_file()
    place %= len(file)
    read_gguf(file[:place] + written + file[place + removed :])


@few(15)
@given(st.integers(0, 10**6))
def test_any_end_of_a_gguf_file(kept):
    assert read_gguf(gguf_file()[: kept % len(gguf_file())])[1] is not None


@few(30)
@given(
    st.sampled_from(sorted(KEYS)), st.none() | st.booleans() | st.integers(0, 2**32 - 1) | st.floats(width=32) | WORD
)
def test_any_value_in_a_gguf_file(key, value):
    with tempfile.TemporaryDirectory() as parent:
        file = write_gguf(Path(parent) / "a.gguf", "llama", {}, **{key.replace(".", "__"): value})
        one_line(read_text(file))
        assert one_line(read_model(file)) is not None


@few(30)
@given(st.data())
def test_any_index(data):
    tensors = load_file(GOLDEN / "gpt2-untied-relu" / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "a.safetensors")}
    with changed("gpt2-untied-relu") as directory:
        (directory / "model.safetensors").rename(directory / "a.safetensors")
        (directory / "model.safetensors.index.json").write_text(json.dumps(data.draw(with_one_change(index))))
        one_line(read_model(directory))
