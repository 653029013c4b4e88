"""Execute every notebook, two at a time, and keep its outputs; fail on an error, and where other words are printed.

Run `python -m notebooks.execute`.
"""

import re
import sys
import time
from base64 import b64decode, b64encode
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

CELL = re.compile(r"/\S*/ipykernel_\d+/\d+\.py")
"""The file of a cell, which has another name in every process."""


def code_hash(notebook: nbformat.NotebookNode) -> str:
    """Return a hash of the code that the kept outputs are of: all but the first cell, which `notebooks.opening` writes.

    Args:
        notebook: the notebook.
    """
    _, *code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return sha256("\0".join(code).encode()).hexdigest()


def keep(output: nbformat.NotebookNode) -> None:
    """Leave out of an output what differs between machines, and of a picture all but 256 colours, a third of its bytes.

    Args:
        output: a cell's output, which is changed.
    """
    if "text" in output:
        output.text = CELL.sub("notebook", output.text)
    if "image/png" in output.get("data", {}):
        smaller = BytesIO()
        picture = Image.open(BytesIO(b64decode(output.data["image/png"]))).convert("RGB")
        picture.quantize(256, dither=Image.Dither.NONE).save(smaller, "PNG", optimize=True)
        output.data["image/png"] = b64encode(smaller.getvalue()).decode()


def words(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the words that a notebook prints; numbers are rounded otherwise on other machines.

    Args:
        notebook: the notebook with its outputs.
    """
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return re.findall(r"[^\W\d_]{2,}", " ".join(output.get("text", "") for output in outputs))


def execute(path: Path) -> tuple[str, bool]:
    """Execute a notebook in place; return its name and how long it took, and whether it prints other words than before.

    Args:
        path: the notebook.
    """
    began = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    before = words(notebook)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            keep(output)
    # The kernel's own version would make every machine's file another one.
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "executed": code_hash(notebook),
        }
    )
    nbformat.write(notebook, path)
    return f"{path.name}: {time.perf_counter() - began:.0f} s", words(notebook) != before


def main() -> None:
    """Execute the notebooks of this folder, and fail if outputs that were kept are no longer what is printed."""
    paths, changed = sorted(Path(__file__).parent.glob("*.ipynb")), []
    with ProcessPoolExecutor(2) as pool:
        for path, (line, other_words) in zip(paths, pool.map(execute, paths), strict=True):
            print(line, flush=True)
            changed += [path.name] * other_words
    if changed:
        sys.exit(f"{', '.join(changed)}: other words are printed than were kept; commit the new outputs")


if __name__ == "__main__":
    main()
