"""Memory that weights need, compared with what is free before any of them is read."""

from pathlib import Path

from duat_jax.errors import BadCheckpoint

ROOT = Path("/")
"""Where the system tells about itself."""


def check_memory(path: Path, sizes: dict[str, int], dtype: str) -> None:
    """Raise if weights don't fit into the memory that is free, where the system tells how much that is.

    Args:
        path: what holds the weights, for the message.
        sizes: their bytes in each dtype that they may be kept in.
        dtype: the wanted one.

    Raises:
        BadCheckpoint: with both sizes, and the dtypes in which they would fit.
    """
    free = free_memory()
    if free is None or sizes[dtype] <= free:
        return
    fitting = [f"{name} ({_shown(size)})" for name, size in sizes.items() if size <= free]
    other = f"load them in {' or '.join(fitting)}, or " if fitting else ""
    raise BadCheckpoint(
        f"{path}: its weights take {_shown(sizes[dtype])} in {dtype}, but {_shown(free)} of memory are free: {other}use"
        " a machine with more"
    )


def free_memory() -> int | None:
    """Return the bytes that this process can still take, free swap among them; `None` where the system doesn't tell.

    It is the least of what the machine has available and of what is left of every limit of a control group that the
    process is in; pages of files that are only kept until memory is needed count as free.
    """
    machine = _fields(ROOT / "proc/meminfo")
    if "MemAvailable" not in machine:
        return None
    groups = [left for group in _groups() if (left := _left(group)) is not None]
    return min([1024 * machine["MemAvailable"], *groups]) + 1024 * machine.get("SwapFree", 0)


def _groups() -> list[Path]:
    """Return the directories of the control groups that limit this process's memory, those above them among them."""
    found = []
    for line in _text(ROOT / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if number == "0" or "memory" in controllers.split(","):
            top = ROOT / "sys/fs/cgroup" / ("" if number == "0" else "memory")
            # Inside a container the place may be the host's, and only the top is there.
            own = top / place.strip("/")
            found += [top, *(each for each in (own, *own.parents) if top in each.parents)]
    return found


def _left(group: Path) -> int | None:
    """Return what is left of a control group's limit; `None` where it has none."""
    for most, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        limit, usage = _text(group / most).strip(), _text(group / used).strip()
        if limit.isdigit() and usage.isdigit():
            told = _fields(group / "memory.stat")
            cached = sum(told.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
            return max(int(limit) - max(int(usage) - cached, 0), 0)
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(file: Path) -> dict[str, int]:
    """Return the numbers of a file that has one in each line, behind its name."""
    words = [line.replace(":", " ").split() for line in _text(file).splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _shown(size: int) -> str:
    return f"{size / 1e9:,.3g} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"
