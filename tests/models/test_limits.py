"""What a checkpoint's files state is compared with limits before anything of them is parsed."""

import json
import struct
import time

import pytest
from damaged import copy_checkpoint

import duat_jax as duat
from duat_jax.models.checkpoint import limits
from duat_jax.models.checkpoint.directory import Directory
from duat_jax.models.checkpoint.gguf_header import read_header

STRING, ARRAY = 8, 9


def large_configuration(directory):
    (directory / "config.json").write_bytes(b"[" + b"0," * 30_000_000 + b"0]")
    return lambda: duat.load_config(directory), limits.CONFIGURATION, 60_000_003


def large_header(directory):
    entry = b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    header = b"{" + b",".join(entry % i for i in range(800_000)) + b"}"
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return lambda: Directory(directory).tensors(), limits.FILE_HEADER, len(header)


def large_headers(directory):
    """Of several files, each of which would be read."""
    header = b" " * (15 * 2**20)
    names = [f"part-{i}.safetensors" for i in range(5)]
    (directory / "model.safetensors").unlink()
    for name in names:
        (directory / name).write_bytes(struct.pack("<Q", len(header)) + header)
    index = {"weight_map": {f"t{i}": name for i, name in enumerate(names)}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return lambda: Directory(directory).tensors(), limits.HEADERS, 5 * len(header)


def sparse(file, size):
    with file.open("wb") as opened:
        opened.truncate(size)


def large_index(directory):
    (directory / "model.safetensors").unlink()
    sparse(directory / "model.safetensors.index.json", 2**30)
    return lambda: Directory(directory).tensors(), limits.INDEX, 2**30


def large_tokenizer(directory):
    sparse(directory / "tokenizer.json", 2**30)
    return lambda: duat.load_tokenizer(directory), limits.TOKENIZER, 2**30


def gguf_file(directory, tensors, keys, content, size=0):
    file = directory / "a.gguf"
    with file.open("wb") as opened:
        opened.write(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + content)
        opened.truncate(max(size, opened.tell()))
    return lambda: read_header(file)


def many_keys(directory):
    return gguf_file(directory, 0, 2_000_000, b"", 2**26), limits.GGUF_KEYS, 2_000_000


def many_tensors(directory):
    return gguf_file(directory, 1_000_000, 0, b"", 2**26), limits.GGUF_TENSORS, 1_000_000


def many_strings(directory):
    """In several lists, each of which would be read."""
    each = struct.pack("<Q1sIIQ", 1, b"a", ARRAY, STRING, 15) + b"\0" * 8 * 15
    return gguf_file(directory, 0, 3, each * 3), 40, 45


def long_string(directory):
    start = struct.pack("<Q1sIQ", 1, b"a", STRING, 2**30)
    return gguf_file(directory, 0, 1, start, 2**31), limits.GGUF_HEADER, 24 + len(start) + 2**30


LARGE = [
    *(large_configuration, large_header, large_headers, large_index, large_tokenizer),
    *(many_keys, many_tensors, many_strings, long_string),
]


@pytest.mark.parametrize("large", LARGE)
def test_what_is_too_large_is_refused_from_what_its_file_states(tmp_path, large, monkeypatch):
    if large is many_strings:
        monkeypatch.setattr("duat_jax.models.checkpoint.gguf_header.GGUF_STRINGS", 40)
    load, most, found = large(copy_checkpoint(tmp_path))
    start = time.process_time()
    with pytest.raises(duat.BadCheckpoint) as raised:
        load()
    message = str(raised.value)
    assert f"it has {found:,} " in message and f"; up to {most:,} are read" in message and "\n" not in message
    assert "copy it again" not in message
    # Parsing took from 3 to 13 seconds.
    assert time.process_time() - start < 0.5


def test_a_field_given_twice_among_many_is_named_at_once(tmp_path):
    directory = copy_checkpoint(tmp_path)
    fields = ",".join(f'"f{i}": 0' for i in [*range(100_000), *range(100)])
    (directory / "config.json").write_text("{" + fields + "}")
    start = time.process_time()
    with pytest.raises(duat.BadCheckpoint, match=r"'f0', 'f1', .* and 88 more is given twice"):
        duat.load_config(directory)
    assert time.process_time() - start < 3
