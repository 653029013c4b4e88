"""The memory that weights and programs need, compared with free memory before it is taken."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.stages import Compiled

from duat_jax.errors import BadCheckpoint, NotEnoughMemory

ROOT = Path("/")
"""The root of the file system."""

HALF = (jnp.bfloat16, jnp.float16)
"""The dtypes of weights that the compiler for CPUs copies to float32."""
IN_TURN = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
"""The compiler's flag with which it makes these copies one after the other."""


def check_weights(path: Path, sizes: dict[str, int], dtype: str) -> None:
    """Raise if weights need more than the free memory, where that is known."""
    free = free_memory()
    if free is None or sizes[dtype] <= free:
        return
    fitting = [f"{name} ({formatted(size)})" for name, size in sizes.items() if size <= free]
    advice = f"load them in {' or '.join(fitting)}, or " if fitting else ""
    raise BadCheckpoint(
        f"{path}: its weights take {formatted(sizes[dtype])} in {dtype}, but {formatted(free)} of memory are free:"
        f" {advice}use a machine with more"
    )


def check_program(program: Compiled, arguments: list[Any]) -> None:
    """Raise if a program for a CPU needs more than the free memory, where both are known."""
    free, needed = free_memory(), program.memory_analysis()
    if free is None or needed is None:
        return
    size = needed.temp_size_in_bytes + needed.output_size_in_bytes
    if size > free:
        copied = any(isinstance(array, jax.Array) and array.dtype in HALF for array in arguments)
        together = copied and IN_TURN not in os.environ.get("XLA_FLAGS", "")
        remedy = f", or set XLA_FLAGS={IN_TURN}: weights in half precision are copied to float32 together without it"
        raise NotEnoughMemory(
            f"this question needs {formatted(size)} of memory beside the weights, but {formatted(free)} are free:"
            f" ask of a shorter text, of fewer texts at a time, or of a smaller model{remedy if together else ''}"
        )


def free_memory() -> int | None:
    """Return the bytes that this process can still allocate, free swap included; `None` if unknown."""
    # The smallest of the machine's available memory and the remainders of the limits of all control groups of the
    # process; cached pages of files count as free.
    machine = _fields(ROOT / "proc/meminfo")
    if "MemAvailable" not in machine:
        return None
    groups = [remaining for group in _groups() if (remaining := _remaining(group)) is not None]
    return min([1024 * machine["MemAvailable"], *groups]) + 1024 * machine.get("SwapFree", 0)


def _groups() -> list[Path]:
    """Return the directories of the control groups that limit this process's memory, including their parents."""
    groups = []
    for line in _text(ROOT / "proc/self/cgroup").splitlines():
        number, _, remainder = line.partition(":")
        controllers, _, place = remainder.partition(":")
        if number == "0" or "memory" in controllers.split(","):
            top = ROOT / "sys/fs/cgroup" / ("" if number == "0" else "memory")
            # Inside a container the path may be the host's, and only the top directory exists.
            own = top / place.strip("/")
            groups += [top, *(directory for directory in (own, *own.parents) if top in directory.parents)]
    return groups


def _remaining(group: Path) -> int | None:
    """Return the remaining bytes of a control group's limit, or `None` without a limit."""
    for most, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        limit, usage = _text(group / most).strip(), _text(group / used).strip()
        if limit.isdigit() and usage.isdigit():
            statistics = _fields(group / "memory.stat")
            cached = sum(statistics.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
            return max(int(limit) - max(int(usage) - cached, 0), 0)
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(file: Path) -> dict[str, int]:
    """Return the numbers of a file with one name and number per line."""
    words = [line.replace(":", " ").split() for line in _text(file).splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def formatted(size: int) -> str:
    """Return a number of bytes in GB or MB."""
    return f"{size / 1e9:,.3g} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"
