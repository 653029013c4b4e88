"""Programs on several devices: shards, explicit sharding, and arrays that are sharded when they arrive."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import GOLDEN

PREAMBLE = """
import jax, jax.numpy as jnp
import duat_jax as duat
from helpers import close
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
x = jax.random.normal(jax.random.key(0), (4, 6))
w = jax.random.normal(jax.random.key(1), (6, 6))
mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.{axis},))
assert len(mesh.devices.ravel()) == 2
def check(fn, x, plain):
    for neurons in (True, False):
        for transform in (lambda f: f, jax.jit):
            parts = transform(lambda x: duat.decompose(fn, x, by_neuron=neurons))(x)
            assert parts.completeness.verdict == "holds", parts.completeness
            alone = duat.decompose(plain, jax.device_get(x), by_neuron=neurons)
            for ours, theirs in zip(jax.tree.leaves(parts[:2]), jax.tree.leaves(alone[:2]), strict=True):
                close(jax.device_get(ours), jax.device_get(theirs))
def plain(x):
    return (x + duat.term(jnp.tanh, x @ w, "mlp", outer=lambda a: a @ w)).sum()
"""

SHARDED = """
sharded = jax.device_put(x, NamedSharding(mesh, P("i", None)))
check(plain, sharded, plain)
"""

SHARD_MAP = """
part = jax.shard_map(lambda x, w: jax.lax.psum(x, "i") @ w, mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
def fn(x):
    return part(x, w).sum() + plain(x)
check(fn, x, lambda x: ((x[:2] + x[2:]) @ w).sum() + plain(x))
"""

HELD_SHARDS = """
part = jax.shard_map(lambda x: jnp.exp(x), mesh=mesh, in_specs=P("i"), out_specs=P("i"))
check(lambda x: (x * duat.hold(part(x), "gate")).sum(), x, lambda x: (x * duat.hold(jnp.exp(x), "gate")).sum())
try:
    duat.decompose(lambda x: part(x).sum(), x)
except duat.NotAffine as error:
    assert "exp isn't linear" in str(error), error
else:
    raise SystemExit("exp in a shard was accepted")
"""

MARK_IN_A_SHARD = """
part = jax.shard_map(lambda x: duat.hold(jnp.exp(x), "gate") * x, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
try:
    duat.decompose(lambda x: part(x).sum(), x)
except duat.UnsupportedProgram as error:
    assert "put the mark outside of it" in str(error), error
else:
    raise SystemExit("a mark in a shard was accepted")
"""

RESHARD = """
with jax.set_mesh(mesh):
    x = jax.device_put(x, NamedSharding(mesh, P("i", None)))
    w = jax.device_put(w, NamedSharding(mesh, P(None, None)))
    def fn(x):
        return plain(jax.sharding.reshard(x, P(None, None)))
    parts = jax.jit(lambda x: duat.decompose(fn, x))(x)
    assert parts.completeness.verdict == "holds"
    assert "reshard" in str(jax.make_jaxpr(fn)(x))
    whole = duat.decompose(plain, x)
    close(jax.device_get(parts.input), jax.device_get(whole.input))
"""

TWO_INPUTS = """
def fn(x):
    return (jax.nn.softmax(x @ w) * duat.term(jnp.tanh, x @ w, "mlp")).sum() + (x * x).sum()
ys = jax.random.normal(jax.random.key(2), (4, 4, 6))
alone = jax.vmap(duat.secant(fn, at=("activation",)), (None, 0))(x, ys)
rows, baselines = NamedSharding(mesh, P("i", None)), NamedSharding(mesh, P("i", None, None))
spread = jax.vmap(jax.jit(duat.secant(fn, at=("activation",))), (None, 0))(x, jax.device_put(ys, baselines))
one = jax.jit(duat.secant(fn, at=("activation",)))(jax.device_put(x, rows), jax.device_put(ys[0], rows))
assert spread.parts.sharding.spec[0] == "i", spread.parts.sharding
for found, expected in ((spread, alone), (one, jax.tree.map(lambda leaf: leaf[0], alone))):
    assert found.completeness.verdict == "holds", found.completeness
    for ours, theirs in zip(jax.tree.leaves(found[:5]), jax.tree.leaves(expected[:5]), strict=True):
        close(jax.device_get(ours), jax.device_get(theirs))
"""

PROGRAMS = {
    "a sharded input": ("Auto", SHARDED),
    "an explicitly sharded input": ("Explicit", SHARDED),
    "shards": ("Auto", SHARD_MAP),
    "held shards": ("Auto", HELD_SHARDS),
    "a mark in a shard": ("Auto", MARK_IN_A_SHARD),
    "resharding": ("Explicit", RESHARD),
    "two inputs": ("Auto", TWO_INPUTS),
    "two explicitly sharded inputs": ("Explicit", TWO_INPUTS),
}


def run_on_two_devices(script):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.getenv("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


SLOW = "an explicitly sharded input", "held shards", "two explicitly sharded inputs"


@pytest.mark.parametrize("what", [pytest.param(what, marks=[pytest.mark.slow] * (what in SLOW)) for what in PROGRAMS])
def test_on_two_devices(what):
    axis, program = PROGRAMS[what]
    run_on_two_devices(PREAMBLE.replace("{axis}", axis) + program)


TEXTS = """
import jax, jax.numpy as jnp, numpy as np
import duat_jax as duat
from helpers import close
from duat_jax.interpret.explain import compute as run
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
mesh = Mesh(jax.devices(), ("batch",))
model, texts = duat.load("{path}", dtype=jnp.float64), [[5, 17, 3], [9], [8, 7, 6, 5]]
targets = [7, duat.targets.LogProbability(3)]
for sharding, message in (
    (NamedSharding(mesh, P("batch")), "put it there, for example by duat.load(path, device="),
    (NamedSharding(jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,)), P()), "has explicit"),
    (NamedSharding(mesh, P(None, "batch")), "spreads more than the axis of texts"),
):
    try:
        duat.explain(model, texts, 7, sharding=sharding)
    except duat.DuatError as error:
        assert message in str(error), error
    else:
        raise SystemExit(f"{sharding} was accepted")
split, tables = run._split, []
run._split = lambda *asked: tables.append(split(*asked)) or tables[-1]
spread = jax.device_put(model, NamedSharding(mesh, P()))
found = duat.explain(spread, texts, targets, sharding=NamedSharding(mesh, P("batch")))
each, activations = tables[0]
for parts, _ in each:
    for table in (parts.embedding, *parts.coefficients.values(), *activations.values()):
        assert [len(part.data) for part in table.addressable_shards] == [2, 2], table.sharding
for row, alone in zip(found, duat.explain(model, texts, targets), strict=True):
    for ours, theirs in zip(row, alone, strict=True):
        assert ours.completeness.verdict == "holds"
        close(ours.embedding, theirs.embedding)
        close(ours.term_tokens, theirs.term_tokens)
        close(ours.collapse, theirs.collapse)
"""


@pytest.mark.slow
def test_texts_are_spread_over_two_devices():
    run_on_two_devices(TEXTS.replace("{path}", str(GOLDEN / "gpt2")))
