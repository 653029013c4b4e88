"""Claim: every program that a public function runs compiles for TPUs (v5e, v6e, 7x) and H100 GPUs, without float64.

Run `make tpu`, `make tpu CHIP=v6e` or `make cuda`; none needs the device. `python -m benchmarks.accelerators v5e
--keep --missing` compiles only what isn't among the kept results.

Every public function, those of the namespaces too, is asked on a small model on the CPU. Each program that `jax.jit`
runs on the way is compiled for the device too, for the same shapes and the same division over a mesh; one that runs
twice is compiled once. Flops and memory are the compiler's, of one device; a loop's body counts once; a GPU's says no
flops. No program may have a float64 or call back to the host.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.collectives import sent
from benchmarks.public_questions import questions

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

TPUS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "tpu7x": "tpu7x:2x2"}
"""The topology of each TPU, by its name; a chip of the last is two devices."""

DEVICES = {"v5e": "v5e", "v6e": "v6e", "tpu7x": "7x", "cuda": "H100"}
"""The names of devices on the page, by those of platforms."""

EMBEDDED = ("circuits.draw", "circuits.study", "survey.survey")
"""The functions that are asked on the embedded model, in float32 in every setting."""

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
        lowered = program.trace(*shapes, **named_shapes).lower()
        jax.config.update("jax_disable_most_optimizations", False)
        compiled = lowered.compile()
        jax.config.update("jax_disable_most_optimizations", True)
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
    """The programs that `jax.jit` runs, each compiled once for another device too."""

    def __init__(self) -> None:
        self._found: dict[Any, dict[str, Any]] = {}
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
            asked = program, *map(str, jax.tree.leaves(jax.tree.map(partial(abstract, mesh=None), (given, named))))
            if compile_one is not None and not inside and asked not in self._found:
                said = compile_one(program, given, named)
                self._found[asked] = {"program": getattr(fn, "__name__", ""), **said}
            try:
                return program(*given, **named)
            finally:
                self._compile = compile_one

        for attribute in ("lower", "trace", "eval_shape", "clear_cache"):
            setattr(call, attribute, getattr(program, attribute))
        return call

    def asked(self, name: str, ask: Callable[[], Any], compile_one: Compile) -> list[dict[str, Any]]:
        """Return what the compiler says of every program that a question runs.

        Args:
            name: the function that is asked.
            ask: asks it.
            compile_one: compiles a program.
        """
        self._compile, self._found = compile_one, {}
        try:
            ask()
        finally:
            self._compile = None
        return list(self._found.values())


def devices_of(platform: str) -> np.ndarray:
    """Return four devices that aren't there.

    Args:
        platform: a name in `TPUS`, or `"cuda"`.
    """
    from jax.experimental.topologies import get_topology_desc

    if platform in TPUS:
        return np.array(get_topology_desc(platform="tpu", topology_name=TPUS[platform]).devices)
    found = get_topology_desc(platform="cuda", topology_name="", topology="1x1x4", target_config=H100)
    return np.array(found.devices)


def compile_all(platform: str, setting: str, left_out: Collection[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Ask every public function, compile its programs, and yield its name and what the compiler says.

    Args:
        platform: a name in `TPUS`, or `"cuda"`.
        setting: a name in `SETTINGS`.
        left_out: the names of functions that aren't asked.

    Raises:
        SystemExit: if a function has run no program.
    """
    shape, dtype = SETTINGS[setting]
    compile_one = compile_for(Mesh(devices_of(platform)[: np.prod(shape)].reshape(shape), AXES))
    here = Mesh(np.array(jax.devices()[: np.prod(shape)]).reshape(shape), AXES)
    for name, ask in questions(here, dtype).items():
        if name not in left_out:
            found = PROGRAMS.asked(name, ask, compile_one)
            print(f"{platform}, {setting}, {name}: {len(found)} programs", file=sys.stderr)
            if not found:
                raise SystemExit(f"{name} ran no program")
            yield name, found


def fields(results: dict[str, Any]) -> dict[str, str]:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    from experiments.markdown import table  # it imports the package, whose programs are compiled twice from then on

    one, four = (
        {platform: results[platform]["programs"][f"{mesh}, float32"] for platform in DEVICES}
        for mesh in ("one device", "2 × 2 devices")
    )
    rows = []
    for name in sorted(one["v5e"]):
        flops = [f"{_total(asked['v5e'][name], 'flops') / 1e6:,.1f}" for asked in (one, four)]
        temporaries = [f"{_largest(asked[name], 'temporaries') / 1e6:.2f}" for asked in one.values()]
        exchanged = [_sent(four[platform][name]) for platform in ("v5e", "tpu7x", "cuda")]
        rows.append((f"`{name}`", str(len(one["v5e"][name])), *flops, *temporaries, *exchanged))
    columns = ["function", "programs", "Mflops, one v5e", "each of four", *(f"MB, {name}" for name in DEVICES.values())]
    alike = sum(_sent(four["v6e"][name]) == _sent(asked) for name, asked in four["v5e"].items())
    return {
        "programs": str(sum(map(len, one["v5e"].values()))),
        "jax": results["v5e"]["jax"],
        "alike": f"{alike} of {len(four['v5e'])}",
        "table": "\n".join(table([*columns, "sent between v5e", "between 7x", "between H100"], rows)),
        "permutes": " instead of ".join(
            str(sum(program["sent"].get("collective-permute", 0) for asked in four[name].values() for program in asked))
            for name in ("tpu7x", "v5e")
        ),
        "survey": " MB instead of ".join(
            f"{_largest(one[name]['survey.survey'], 'temporaries') / 1e6:.0f}" for name in ("tpu7x", "v5e")
        ),
        "devices": "\n".join(table(DEVICE_COLUMNS, _device_rows(results))),
        **{f"bfloat16 {kind}": _of_bfloat16(results["v5e"]["programs"], kind) for kind in ("arguments", "temporaries")},
    }


KINDS = ("all-gather", "all-reduce", "collective-permute", "reduce-scatter")
DEVICE_COLUMNS = ["", "weights", "programs", "Mflops", "arguments, MB", "temporaries, MB", *KINDS]
"""The columns of the table of devices: sums over all programs."""


def _device_rows(results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield for every complete setting of every device what its programs need and send together."""
    every = set(results["v5e"]["programs"]["one device, float32"])
    for setting, (shape, dtype) in SETTINGS.items():
        for platform, name in DEVICES.items():
            kept = results[platform]["programs"].get(setting, {})
            if set(kept) == every:
                programs = [program for asked in kept.values() for program in asked]
                counts = sum((Counter(program["sent"]) for program in programs), Counter[str]())
                yield [
                    f"{'one' if shape == (1, 1) else 'each of four'} {name}",
                    dtype,
                    str(len(programs)),
                    "–" if platform == "cuda" else f"{_total(programs, 'flops') / 1e6:,.0f}",
                    *(f"{_total(programs, kind) / 1e6:.0f}" for kind in ("arguments", "temporaries")),
                    *(f"{counts[kind]:,}" for kind in KINDS),
                ]


def _of_bfloat16(programs: dict[str, Any], kind: str) -> str:
    """Return in percent of float32's what a device needs with weights in bfloat16, for those that are asked so."""
    single, half = (
        sum(_total(asked, kind) for name, asked in programs[f"one device, {dtype}"].items() if name not in EMBEDDED)
        for dtype in ("float32", "bfloat16")
    )
    return f"{100 * half / single:.0f}%"


def _total(programs: list[dict[str, Any]], kind: str) -> float:
    return sum(program[kind] for program in programs)


def _largest(programs: list[dict[str, Any]], kind: str) -> float:
    return max(program[kind] for program in programs)


def _sent(programs: list[dict[str, Any]]) -> str:
    counts: Counter[str] = sum((Counter(program["sent"]) for program in programs), Counter())
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def main() -> None:
    """Compile every program for a device, and keep what the compiler says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("platform", choices=(*TPUS, "cuda"))
    parser.add_argument("--setting", type=int, help="compile for this one alone")
    parser.add_argument("--keep", action="store_true", help="keep the results")
    parser.add_argument("--missing", action="store_true", help="leave out what is among the kept results")
    given = parser.parse_args()
    names = list(SETTINGS)
    for setting in names if given.setting is None else [names[given.setting % len(names)]]:
        left_out = _kept(given.platform)["programs"].get(setting, {}) if given.missing else ()
        for name, found in compile_all(given.platform, setting, left_out):
            if given.keep:
                kept = _kept(given.platform)
                kept["programs"].setdefault(setting, {})[name] = found
                results = json.loads(RESULTS.read_text(encoding="utf-8")) | {given.platform: kept}
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _kept(platform: str) -> dict[str, Any]:
    """Return the kept results of a platform, if they are of this version of JAX."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")).get(platform, {})
    return kept if kept.get("jax") == jax.__version__ else {"jax": jax.__version__, "programs": {}}


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_disable_most_optimizations", True)  # on the CPU, where every program runs once
    PROGRAMS = Programs()
    main()
