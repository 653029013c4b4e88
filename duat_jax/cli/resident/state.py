"""The state that the resident process has in common with each command that it runs."""

import os
import sys

READ_ONCE = (
    *("JAX", "XLA", "TF_", "CUDA", "NVIDIA", "HIP", "ROC", "TPU", "LIBTPU", "FLAX", "NPY", "NUMPY", "OMP", "MKL"),
    *("KMP", "OPENBLAS", "MPL", "HF_", "HUGGING", "TRANSFORMERS", "TORCH", "TOKENIZERS", "RAYON", "TYPER", "_TYPER"),
    *("PYTHON", "LD_", "MALLOC", "GLIBC", "LANG", "LC_", "TZ", "XDG_", "HOME", "TMPDIR", "DUAT", "TERM=", "COLORTERM"),
)
"""Beginnings of variables that Python and packages read once; rich keeps the escape codes of a style."""


def common_state() -> str:
    """Return everything that is as it was when a process was started, if the process can run a command."""
    import resource  # not on every platform

    package = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    configured = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    # An installation changes the folder of packages.
    places = [path for path in sys.path if path.endswith("-packages")]
    places.append(os.path.join(configured, "matplotlib", "matplotlibrc"))
    folders = [package, os.path.join(os.path.dirname(package), "symbolic")]
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir():
                folders.append(entry.path)
            elif not entry.name.endswith(".pyc"):
                places.append(entry.path)
    files = [(place, os.stat(place).st_mtime_ns) for place in sorted(places) if os.path.exists(place)]
    variables = sorted(each for each in map("=".join, os.environ.items()) if each.startswith(READ_ONCE))
    python = sys.executable, sys.version, tuple(sys.flags), sys.warnoptions, sorted(sys._xoptions), sys.path
    kinds = sorted({number for name, number in vars(resource).items() if name.startswith("RLIMIT_")})
    limits = [resource.getrlimit(kind) for kind in kinds], os.nice(0), sorted(os.sched_getaffinity(0))
    return repr((files, variables, python, limits, os.getgroups(), os.readlink("/proc/self/ns/mnt")))
