"""Execute every notebook, failing on any error, and keep its outputs.

Run `python -m notebooks.execute`.
"""

import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main() -> None:
    """Execute the notebooks of this folder in place."""
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        began = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True
        ).execute()
        # The kernel's own version would make every machine's file another one.
        notebook.metadata = nbformat.from_dict(
            {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        )
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
