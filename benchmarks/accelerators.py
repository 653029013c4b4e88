"""Claim: every program that a public function runs compiles for TPU v5e chips and for H100 GPUs, without float64.

Run `make tpu` or `make cuda`; neither needs the device.

Every public function is asked on a small model on the CPU. Each program that `jax.jit` runs on the way is compiled for
the device too, for the same shapes and the same division over a mesh. Flops and memory are the compiler's, of one
device; a loop's body counts once; a GPU's says no flops. No program may have a float64 or call back to the host.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.collectives import sent

RESULTS = Path(__file__).parent / "results" / "accelerators.json"
AXES = ("texts", "model")
SETTINGS = {
    f"{'one device' if shape == (1, 1) else '2 × 2 devices'}, {dtype}": (shape, dtype)
    for shape in ((1, 1), (2, 2))
    for dtype in ("float32", "bfloat16")
}
"""The meshes, and the dtypes of weights."""

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84978434048 shared_memory_per_block_optin: 232448 registers_per_core_limit: 65536
  registers_per_block_limit: 65536 cuda_compute_capability { major: 9 minor: 0 }
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 1 patch: 1 } runtime_version { major: 12 minor: 4 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""The description of an H100 by which XLA compiles for it."""

Compile = Callable[[Any, tuple[Any, ...], dict[str, Any]], dict[str, Any]]
"""Compiles a jitted function for shapes of arguments, and returns what the compiler says."""


def abstract(leaf: Any, mesh: Mesh | None) -> Any:
    """Return the shape of an argument, divided over another mesh as it is divided over its own.

    Args:
        leaf: an array, or a static argument, which is returned as it is.
        mesh: the other mesh; no sharding if absent.
    """
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    if mesh is None:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    own = getattr(leaf, "sharding", None)
    spec = own.spec if isinstance(own, NamedSharding) else P()
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))


def checked(text: str) -> None:
    """Refuse a program that an accelerator runs badly.

    Args:
        text: the program.

    Raises:
        SystemExit: if it has a float64, or calls back to the host.
    """
    if found := re.search(r"f64[\[>]|callback", text):
        raise SystemExit(f"a program has {found[0]!r}")


def compile_for(mesh: Mesh) -> Compile:
    """Return what compiles for a mesh of devices that aren't there.

    Args:
        mesh: the devices.
    """

    def compile_one(program: Any, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        shapes, named_shapes = jax.tree.map(partial(abstract, mesh=mesh), (given, named))
        compiled = program.trace(*shapes, **named_shapes).lower().compile()
        checked(text := compiled.as_text())
        memory = compiled.memory_analysis()
        return {
            "flops": (compiled.cost_analysis() or {}).get("flops", 0.0),
            "temporaries": memory.temp_size_in_bytes,
            "arguments": memory.argument_size_in_bytes,
            "sent": Counter(kind for kind, _ in sent(text)),
        }

    return compile_one


class Programs:
    """The programs that `jax.jit` runs, each compiled for another device too.

    Attributes:
        found: what the compiler says of each program, by the function that was asked.
    """

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {}
        self._compile: Compile | None = None
        self._jit = jax.jit
        jax.jit = self._compiled_twice  # type: ignore[assignment]

    def _compiled_twice(self, fn: Any = None, **options: Any) -> Any:
        if fn is None:
            return partial(self._compiled_twice, **options)
        program = self._jit(fn, **options)

        @wraps(fn)
        def call(*given: Any, **named: Any) -> Any:
            compile_one, self._compile = self._compile, None  # not while tracing
            inside = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((given, named)))
            if compile_one is not None and not inside:
                said = compile_one(program, given, named)
                self.found[self._asked].append({"program": getattr(fn, "__name__", ""), **said})
            try:
                return program(*given, **named)
            finally:
                self._compile = compile_one

        for attribute in ("lower", "trace", "eval_shape", "clear_cache"):
            setattr(call, attribute, getattr(program, attribute))
        return call

    @contextmanager
    def asked(self, name: str, compile_one: Compile) -> Iterator[None]:
        """Compile what runs from now on.

        Args:
            name: the function that is asked.
            compile_one: compiles a program.
        """
        self._asked, self._compile = name, compile_one
        self.found[name] = []
        try:
            yield
        finally:
            self._compile = None


NOT_ASKED = {
    *("load", "load_config", "load_tokenizer", "load_image", "open", "widget", "from_hugging_face", "from_torch"),
    *("hold", "offset", "point", "stream", "term"),
}
"""Public functions that run no program: those that read files or PyTorch modules, and the marks."""


def questions(mesh: Mesh, dtype: str) -> dict[str, Callable[[], Any]]:
    """Return what asks every public function, by name.

    Args:
        mesh: the devices here.
        dtype: that of the weights.
    """
    import jax.numpy as jnp
    from flax import nnx

    import duat_jax as duat
    from duat_jax.edits import Edit
    from duat_jax.models.config import Config, Head
    from duat_jax.models.mesh import divide
    from duat_jax.models.residual_network import ResidualNetwork
    from duat_jax.models.sites import stream
    from duat_jax.nn import BlockConfig
    from duat_jax.results import ScoreSide

    block = BlockConfig(arrangement="pre-norm", features=128, heads=4, neurons=256, mlp="gated")
    parts: dict[str, Any] = {"family": "llama", "blocks": (block,) * 2, "positions": 64}
    tokenizer = duat.load_tokenizer()
    vocab = tokenizer.get_vocab_size()
    language = Config(**parts, vocab=vocab, head=Head(kind="next token", outputs=vocab, tied=True))
    model = divide(duat.models.Transformer(language, dtype=dtype, rngs=nnx.Rngs(0)), mesh)
    network = ResidualNetwork(1, (4, 4, 8), 10, rngs=nnx.Rngs(0))
    ids, other = [5, 6, 7, 8], [5, 9, 7, 8]
    x, y = model.embed(jnp.array(ids)), model.embed(jnp.array(other))
    rows = jnp.ones((4, vocab))

    def logit(model: Any, x: Any) -> Any:
        return model.output(x)[-1, 7]

    def recorded(model: Any, x: Any) -> Any:
        return duat.record(model.output)(x)

    def edited(model: Any, x: Any, y: Any) -> Any:
        return duat.edit(partial(logit, model), {stream(1): Edit(kept=0.5, added=1.0)})(x)

    def score(model: Any, x: Any, y: Any) -> Any:
        recording = recorded(model, x)
        queries, keys = (
            next(step for step in recording.program.steps("point") if step.site.key.name == name)
            for name in ("attention.queries", "attention.keys")
        )
        return duat.split_score(recording, queries, keys, *(ScoreSide(0, jnp.ones(4)) for _ in range(2)))

    def triplets() -> Any:
        collapsed = duat.collapse(lambda x: model.states(x)[-1], x).linear
        found = duat.operators.singular_triplets(collapsed, 1, key=jax.random.key(0))
        return duat.decode_triplets(model, jnp.array(ids), found, tokenizer, top=3)

    programs: dict[str, Callable[[Any, Any, Any], Any]] = {
        "auto": lambda model, x, y: duat.decompose(duat.auto(partial(logit, model)), x),
        "collapse": lambda model, x, y: duat.collapse(model.output, x).linear.T(rows),
        "contributions": lambda model, x, y: duat.contributions(recorded(model, x), rows),
        "decompose": lambda model, x, y: duat.decompose(partial(logit, model), x),
        "edit": edited,
        "linear_map": lambda model, x, y: duat.linear_map(recorded(model, x))(y),
        "record": lambda model, x, y: recorded(model, x).value,
        "replay": lambda model, x, y: duat.replay(model.output, recorded(model, x).dynamics)(y),
        "secant": lambda model, x, y: duat.secant(partial(logit, model))(x, y),
        "split_score": score,
        "unroll": lambda model, x, y: duat.unroll(model.output, x).evaluate(),
    }
    known: dict[str, Any] = {"tokenizer": tokenizer}
    return {name: partial(lambda fn: jax.jit(fn)(model, x, y), fn) for name, fn in programs.items()} | {
        "attribute": lambda: duat.attribute(model, ids, duat.baselines.Mean(), **known),
        "contrast": lambda: duat.contrast(model, ids, other, 7, **known),
        "decode_triplets": triplets,
        "diff": lambda: duat.diff(jax.tree.map(lambda leaf: 1.5 * leaf, model), ids, reference=model, top=1, **known),
        "explain": lambda: duat.explain(model, [ids, other], 7, **known),
        "explain_attention": lambda: duat.explain_attention(model, ids, layer=1, head=0, key=1, contrast=0, **known),
        "graph": lambda: duat.graph(model, ids, 7, **known),
        "image_maps": lambda: duat.image_maps(lambda pixels: network(pixels)[3], jnp.ones((1, 8, 8))),
        "intervene": lambda: duat.intervene(model, ids, duat.edits.Heads(1, 2).set(0), 7, **known),
    }


def devices_of(platform: str) -> np.ndarray:
    """Return four devices that aren't there.

    Args:
        platform: `"tpu"` or `"cuda"`.
    """
    from jax.experimental.topologies import get_topology_desc

    if platform == "tpu":
        return np.array(get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices)
    found = get_topology_desc(platform="cuda", topology_name="", topology="1x1x4", target_config=H100)
    return np.array(found.devices)


def compile_for_settings(platform: str, settings: list[str]) -> dict[str, Any]:
    """Compile every program, and return what the compiler says, by setting.

    Args:
        platform: `"tpu"` or `"cuda"`.
        settings: names in `SETTINGS`.
    """
    devices = devices_of(platform)
    return {
        setting: compile_all(shape, dtype, compile_for(Mesh(devices[: np.prod(shape)].reshape(shape), AXES)))
        for setting in settings
        for shape, dtype in [SETTINGS[setting]]
    }


def compile_all(shape: tuple[int, int], dtype: str, compile_one: Compile) -> dict[str, Any]:
    """Ask every public function, and compile its programs.

    Args:
        shape: of the mesh, of the devices here.
        dtype: that of the weights.
        compile_one: compiles a program.
    """
    here = Mesh(np.array(jax.devices()[: np.prod(shape)]).reshape(shape), AXES)
    for name, ask in questions(here, dtype).items():
        with PROGRAMS.asked(name, compile_one):
            ask()
        print(f"{name}: {len(PROGRAMS.found[name])} programs", file=sys.stderr)
    return dict(PROGRAMS.found)


def fields(results: dict[str, Any]) -> dict[str, str]:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    from experiments.markdown import table  # it imports the package, whose programs are compiled twice from then on

    one, four = (results["tpu"]["programs"][f"{mesh}, float32"] for mesh in ("one device", "2 × 2 devices"))
    gpu, gpus = (results["cuda"]["programs"][f"{mesh}, float32"] for mesh in ("one device", "2 × 2 devices"))
    rows = []
    for name in sorted(one):
        flops = [f"{sum(program['flops'] for program in asked[name]) / 1e6:,.1f}" for asked in (one, four)]
        temporaries = [f"{max(program['temporaries'] for program in of[name]) / 1e6:.2f}" for of in (one, gpu)]
        rows.append((f"`{name}`", str(len(one[name])), *flops, *temporaries, _sent(four[name]), _sent(gpus[name])))
    columns = ["function", "programs", "Mflops, one TPU", "each of four", "temporaries of a TPU, MB", "of a GPU, MB"]
    return {
        "programs": str(sum(map(len, one.values()))),
        "settings": str(len(results["tpu"]["programs"])),
        "jax": results["tpu"]["jax"],
        "table": "\n".join(table([*columns, "sent between four TPUs", "between GPUs"], rows)),
    }


def _sent(programs: list[dict[str, Any]]) -> str:
    counts: Counter[str] = sum((Counter(program["sent"]) for program in programs), Counter())
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def public_functions() -> set[str]:
    """Return the names of the public functions that run programs."""
    from duat_jax import public

    named = {name: member for name, member in vars(public).items() if not name.startswith("_")}
    return {name for name, member in named.items() if callable(member) and name.islower()} - NOT_ASKED


def main() -> None:
    """Compile every program for a device, and keep what the compiler says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platform", choices=("tpu", "cuda"))
    parser.add_argument("--setting", type=int, help="compile for this one alone, and keep nothing")
    given = parser.parse_args()
    settings = list(SETTINGS) if given.setting is None else [list(SETTINGS)[given.setting % len(SETTINGS)]]
    found = compile_for_settings(given.platform, settings)
    for asked in found.values():
        if missing := public_functions() - {name for name, programs in asked.items() if programs}:
            raise SystemExit(f"no program of {', '.join(sorted(missing))} was compiled")
    if given.setting is None:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        results[given.platform] = {"jax": jax.__version__, "programs": found}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)
    PROGRAMS = Programs()
    main()
