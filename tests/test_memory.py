"""Weights and programs are compared with the memory that is free before any of it is taken."""

import jax
import jax.numpy as jnp
import pytest
from cases import GOLDEN
from command import run
from every_result import MAKERS

import duat_jax as duat
from duat_jax import memory
from duat_jax.nn.linear import product
from duat_jax.transform import stored_program

GB = 2**30


def system(root, available=None, groups=(), files=(), swap=0):
    """Write what a system tells: memory in bytes, lines of control groups, and files under `sys/fs/cgroup`."""
    told = {"proc/self/cgroup": "\n".join(groups), **{f"sys/fs/cgroup/{name}": str(text) for name, text in files}}
    if available is not None:
        told["proc/meminfo"] = f"MemTotal: 1 kB\nMemAvailable:  {available // 1024} kB\nSwapFree: {swap // 1024} kB\n"
    for name, text in told.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def group(place, most, used, stat="", names=("memory.max", "memory.current")):
    return [(f"{place}{name}", value) for name, value in zip((*names, "memory.stat"), (most, used, stat), strict=True)]


OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")

SYSTEMS = {
    "nothing is told": ({}, None),
    "without limits": ({"available": 8 * GB}, 8 * GB),
    "with swap": ({"available": 8 * GB, "swap": GB}, 9 * GB),
    "a group without limit": ({"available": 8 * GB, "groups": ["0::/"], "files": group("", "max", GB)}, 8 * GB),
    "a group": ({"available": 8 * GB, "groups": ["0::/"], "files": group("", 4 * GB, GB)}, 3 * GB),
    "its cache is free": (
        {"available": 8 * GB, "groups": ["0::/"]}
        | {"files": group("", 4 * GB, 3 * GB, f"anon 1\nactive_file {GB}\ninactive_file {GB}\n")},
        3 * GB,
    ),
    "a group in another": (
        {"available": 8 * GB, "groups": ["0::/a/b"]}
        | {"files": [*group("a/b/", 4 * GB, GB), *group("a/", 3 * GB, 2 * GB)]},
        GB,
    ),
    "the top alone": ({"available": 8 * GB, "groups": ["0::/not/here"], "files": group("", 2 * GB, GB)}, GB),
    "more than its limit": ({"available": 8 * GB, "groups": ["0::/"], "files": group("", GB, 2 * GB)}, 0),
    "an older group": (
        {"available": 8 * GB, "groups": ["5:cpu:/x", "4:memory,pids:/a"]}
        | {"files": group("memory/a/", 4 * GB, 3 * GB, f"active_file 7\ntotal_active_file {GB}\n", OLD)},
        2 * GB,
    ),
    "an older group without limit": (
        {"available": 8 * GB, "groups": ["4:memory:/"], "files": group("memory/", 2**63 - 4096, GB, "", OLD)},
        8 * GB,
    ),
    "nothing but words": (
        {"groups": ["what", "0::/"], "files": group("", "?", "?", "?\n?")},
        None,
    ),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_memory_that_is_free(tmp_path, monkeypatch, name):
    told, free = SYSTEMS[name]
    system(tmp_path, **told)
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    assert memory.free_memory() == free


@pytest.mark.parametrize("name", ["gpt2", "albert", "llama"])
def test_weights_that_do_not_fit_are_refused_before_they_are_read(monkeypatch, name):
    model = duat.load(GOLDEN / name)
    entries = sum(leaf.size for leaf in {id(leaf): leaf for leaf in jax.tree.leaves(model)}.values())
    with monkeypatch.context() as patched:
        # Exactly what it takes is enough.
        patched.setattr(memory, "free_memory", lambda: 4 * entries)
        duat.load(GOLDEN / name)
        patched.setattr(memory, "free_memory", lambda: None)
        duat.load(GOLDEN / name)
        patched.setattr(memory, "free_memory", lambda: 4 * entries - 1)
        duat.load(GOLDEN / name, dtype=jnp.bfloat16)
        patched.setattr("duat_jax.models.checkpoint.safetensors_files.Safetensors.read", lambda *_: 1 / 0)
        with pytest.raises(duat.BadCheckpoint, match="in float32, but .* MB of memory are free: load them in bfloat16"):
            duat.load(GOLDEN / name)
        patched.setattr(memory, "free_memory", lambda: 10)
        with pytest.raises(duat.BadCheckpoint, match="of memory are free: use a machine with more"):
            duat.load(GOLDEN / name)


def test_weights_of_another_device_take_none_of_this_memory(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 10)
    monkeypatch.setattr("duat_jax.models.loader._is_in_memory", lambda place: False)
    duat.load(GOLDEN / "gpt2")


OWN_CODE = {duat.results.ImageMaps, *(kind for kind in MAKERS if kind.__module__.startswith("duat_jax.training."))}
"""Results of a user's own functions, whose programs are compiled elsewhere."""


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind not in OWN_CODE], ids=lambda kind: kind.__name__)
def test_a_question_that_does_not_fit_is_refused_before_it_runs(monkeypatch, kind):
    monkeypatch.setattr(stored_program, "_fitting", set())
    monkeypatch.setattr("duat_jax.models.loader.check_weights", lambda *given: None)
    monkeypatch.setattr(memory, "free_memory", lambda: 1)
    with pytest.raises(duat.NotEnoughMemory, match=r"needs [\d.]+ .B of memory beside the weights, but 1e-06 MB"):
        MAKERS[kind]()
    assert not stored_program._fitting


def test_exactly_what_a_program_needs_is_enough(monkeypatch):
    def question(weights, x):
        return jnp.tanh(x @ weights) @ weights

    arguments = jnp.ones((300, 300), jnp.float32), jnp.ones((70, 300), jnp.float32)
    compiled = jax.jit(question).lower(*arguments).compile().memory_analysis()
    needed = compiled.temp_size_in_bytes + compiled.output_size_in_bytes
    assert needed >= 4 * 70 * 300
    asked = stored_program.stored_program(question)
    monkeypatch.setattr(memory, "free_memory", lambda: needed - 1)
    with pytest.raises(duat.NotEnoughMemory, match="a smaller model$"):
        asked(*arguments)
    monkeypatch.setattr(memory, "free_memory", lambda: needed)
    asked(*arguments)


def test_weights_in_half_precision_have_another_remedy(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: 1)
    asked = stored_program.stored_program(lambda weights: product(jnp.ones((2, 9), jnp.float32), weights))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    with pytest.raises(duat.NotEnoughMemory, match="or set XLA_FLAGS=--xla_cpu_enable_concurrency_optimized"):
        asked(jnp.ones((9, 9), jnp.bfloat16))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_concurrency_optimized_scheduler=false")
    with pytest.raises(duat.NotEnoughMemory, match="a smaller model$"):
        asked(jnp.ones((9, 9), jnp.bfloat16))


@pytest.mark.parametrize(("dtype", "copied"), [("float32", 0), ("bfloat16", 4)])
def test_a_forward_pass_holds_copies_of_weights_in_half_precision(dtype, copied, optimised):
    """Products with them are computed in single precision, 4 bytes an entry."""
    weights = [jnp.zeros((400, 400), dtype)] * 6

    def chain(x, weights):
        for matrix in weights:
            x = jnp.tanh(product(x, matrix))
        return x

    needed = jax.jit(chain).lower(jnp.zeros((4, 400), jnp.float32), weights).compile().memory_analysis()
    assert needed.temp_size_in_bytes / sum(matrix.size for matrix in weights) < copied + 0.3


@pytest.mark.parametrize("reference", [(), ("--reference", "w5 w17 w4")])
def test_too_little_memory_is_one_line_of_the_command(monkeypatch, reference):
    monkeypatch.setattr(stored_program, "_fitting", set())
    monkeypatch.setattr("duat_jax.models.loader.check_weights", lambda *given: None)
    monkeypatch.setattr(memory, "free_memory", lambda: 1)
    result = run("explain", "w5 w17 w3", "--model", GOLDEN / "gpt2", *reference)
    assert result.exit_code == 2 and result.stderr.count("of memory beside the weights") == 1
