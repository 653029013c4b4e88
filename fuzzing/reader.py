"""Coverage-guided fuzzing of the checkpoint reader with atheris.

    python -m venv .venv-fuzz && .venv-fuzz/bin/pip install -e . atheris
    .venv-fuzz/bin/python -m fuzzing.reader -max_total_time=3600

Every input changes a small checkpoint in one place: some bytes of one file, some characters of a field, a field, a
tensor or a length.  What isn't a `DuatError` is a finding: atheris stops and leaves the input in a file `crash-…`,
which is given as an argument to see it again.  Further arguments are libFuzzer's.
"""

import functools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

with atheris.instrument_imports(include=["duat_jax.models", "duat_jax.inputs.question"]):
    from duat_jax.models import loader
    from duat_jax.models.transformer import Config, Transformer

from fuzzing.checkpoints import (
    COMPONENTS,
    SIZES,
    WORDS,
    read_model,
    read_text,
    safetensors_file,
    split_safetensors,
    with_one_tensor,
)

TESTS = Path(__file__).parent.parent / "tests"
sys.path.append(str(TESTS))
from containers import GATED, as_stored, decoder, write_gguf  # noqa: E402 - found by the line before

GOLDEN = TESTS / "golden"
NAMES = ("gpt2", "bert")
FILES = ("config.json", "model.safetensors", "tokenizer.json")
GGUF = ("", "decoder.gguf")
"""A checkpoint in a single file."""

ORIGINAL = {(name, file): (GOLDEN / name / file).read_bytes() for name in NAMES for file in FILES}
LIBFUZZER = ["-len_control=0", "-max_len=1024"]
"""Inputs of every length from the beginning: the first bytes decide which file is changed, and where."""

SHOWN_CHARACTERS = 4000
"""No error message may be longer, whatever the file says."""


def _value(data: atheris.FuzzedDataProvider) -> Any:
    """Return any JSON value."""
    match data.ConsumeIntInRange(0, 8):
        case 0:
            return data.ConsumeInt(9)
        case 1:
            return data.ConsumeFloat()
        case 2:
            return data.ConsumeUnicode(20)
        case 3:
            return data.ConsumeBool()
        case 4:
            return None
        case 5:
            return [_value(data) for _ in range(data.ConsumeIntInRange(0, 3))]
        case 6:
            return {data.ConsumeUnicode(8): _value(data) for _ in range(data.ConsumeIntInRange(0, 3))}
        case 7:
            return data.PickValueInList(WORDS)
        case _:
            return data.ConsumeIntInRange(0, 64)


def _change(data: atheris.FuzzedDataProvider, value: Any) -> Any:
    """Return JSON with one place of it changed."""
    if isinstance(value, dict) and value and data.ConsumeIntInRange(0, 5):
        name = data.PickValueInList(list(value))
        match data.ConsumeIntInRange(0, 4):
            case 0:
                return {key: each for key, each in value.items() if key != name}
            case 1:
                return value | {data.ConsumeUnicode(20): value[name]}
            case _:
                return value | {name: _change(data, value[name])}
    if isinstance(value, list) and value and data.ConsumeIntInRange(0, 5):
        place = data.ConsumeIntInRange(0, len(value) - 1)
        return [_change(data, each) if i == place else each for i, each in enumerate(value)]
    return _value(data)


def _tensor(data: atheris.FuzzedDataProvider, original: bytes) -> bytes:
    """Return a safetensors file with another tensor in the place of one."""
    name = data.PickValueInList(sorted(split_safetensors(original)[0].keys() - {"__metadata__"}))
    new_name = data.PickValueInList(
        [name, name, "", "transformer." + name, name.removeprefix("transformer."), data.ConsumeUnicode(20)]
    )
    shape = split_safetensors(original)[0][name]["shape"]
    if data.ConsumeBool():
        shape = [data.ConsumeIntInRange(0, 14) for _ in range(data.ConsumeIntInRange(0, 3))]
    return with_one_tensor(original, name, new_name, data.PickValueInList(sorted(SIZES)), shape, data.ConsumeBytes(64))


def _tokenizer(data: atheris.FuzzedDataProvider, original: bytes) -> bytes:
    """Return a tokenizer with another part in the place of one, and one place of that changed."""
    tokenizer = json.loads(original)
    for _ in range(data.ConsumeIntInRange(1, 2)):
        field = data.PickValueInList(sorted(COMPONENTS))
        part = data.PickValueInList(COMPONENTS[field])
        part = _change(data, part) if data.ConsumeBool() else part
        tokenizer[field] = [part] if field == "added_tokens" else part
    return json.dumps(tokenizer).encode()


def _changed(data: atheris.FuzzedDataProvider, file: str, original: bytes) -> bytes:
    """Return a file with one place of it changed."""
    match data.ConsumeIntInRange(0, 9):
        case 0:
            place = data.ConsumeIntInRange(0, len(original))
            inserted = data.ConsumeBytes(16)
            return original[:place] + inserted + original[place + data.ConsumeIntInRange(0, 16) :]
        case 1:
            return data.ConsumeBytes(sys.maxsize)
        case _ if file == GGUF[1]:
            place = data.ConsumeIntInRange(0, len(original))
            number = data.PickValueInList([0, 1, 2**8, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
            written = number.to_bytes(8, "little")[: data.PickValueInList([1, 4, 8])]
            return original[:place] + written + original[place + len(written) :]
        case 2 | 3 | 4 | 5 | 6 if file == "model.safetensors":
            return _tensor(data, original)
        case _ if file == "model.safetensors":
            header, content = split_safetensors(original)
            return safetensors_file(_change(data, header), content)
        case 2 | 3 | 4 | 5 | 6 if file == "tokenizer.json":
            return _tokenizer(data, original)
        case _:
            return json.dumps(_change(data, json.loads(original))).encode()


_skeleton = functools.lru_cache(16)(loader.skeleton)


def skeleton(config: Config, dtype: DTypeLike) -> Transformer:
    """Return the skeleton of a model, made once for each shape: most of the time would go into it.

    Args:
        config: the shape.
        dtype: dtype of the parameters.
    """
    return nnx.clone(_skeleton(config, jnp.dtype(dtype)))


def fuzz(given: bytes) -> None:
    """Read one checkpoint.

    Args:
        given: what decides how it differs from a good one.
    """
    data = atheris.FuzzedDataProvider(given)
    name, file = data.PickValueInList(list(ORIGINAL))
    (DIRECTORY / name / file).write_bytes(_changed(data, file, ORIGINAL[name, file]))
    try:
        read: dict[str, list[Callable[[Path], str | None]]] = {
            "config.json": [read_text, read_model],
            "model.safetensors": [read_model],
            "tokenizer.json": [read_text],
            GGUF[1]: [read_text, read_model],
        }
        checkpoint = DIRECTORY / file if (name, file) == GGUF else DIRECTORY / name
        for message in [each(checkpoint) for each in read[file]]:
            if message is not None and len(message) > SHOWN_CHARACTERS:
                raise RuntimeError(f"a message of {len(message)} characters")
    finally:
        (DIRECTORY / name / file).write_bytes(ORIGINAL[name, file])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        DIRECTORY = Path(directory)
        for each in NAMES:
            shutil.copytree(GOLDEN / each, DIRECTORY / each)
        ORIGINAL[GGUF] = write_gguf(DIRECTORY / GGUF[1], "llama", as_stored(decoder(GATED), permuted=True)).read_bytes()
        loader.skeleton = skeleton
        atheris.Setup([sys.argv[0], *LIBFUZZER, *sys.argv[1:]], fuzz)
        atheris.Fuzz()
