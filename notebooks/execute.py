"""Execute every notebook, two at a time, failing on any error, and keep its outputs.

Run `python -m notebooks.execute`.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(path: Path) -> str:
    """Execute a notebook in place, and return its name and how long it took.

    Args:
        path: the notebook.
    """
    began = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True).execute()
    # The kernel's own version would make every machine's file another one.
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    )
    nbformat.write(notebook, path)
    return f"{path.name}: {time.perf_counter() - began:.0f} s"


def main() -> None:
    """Execute the notebooks of this folder."""
    with ProcessPoolExecutor(2) as pool:
        for line in pool.map(execute, sorted(Path(__file__).parent.glob("*.ipynb"))):
            print(line, flush=True)


if __name__ == "__main__":
    main()
