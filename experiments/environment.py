"""The machine and the versions that a measurement ran on."""

import os
import platform
from pathlib import Path
from typing import Any

import jax
import jaxlib


def environment() -> dict[str, Any]:
    """Return device, processor and package versions."""
    info = Path("/proc/cpuinfo")
    models = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return {
        "device": str(jax.devices()[0].device_kind),
        "backend": jax.default_backend(),
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
    }
