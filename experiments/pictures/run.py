"""The pictures of studies, and of the agreement of families with Hugging Face transformers.

`make pages` draws those whose numbers changed.  A picture keeps a digest of its numbers, which
`tests/experiments/test_pictures.py` compares.  After a change of how one is drawn, delete its file and run
`python -m experiments.pictures.run`.
"""

import hashlib
import json
from pathlib import Path

from PIL import Image

from experiments.families import draw_families, measured
from experiments.kept_results import ROOT
from experiments.studies import studies, study_of
from experiments.study import Picture

FOLDER = ROOT / "docs" / "findings"
FAMILIES = {"families-answer": Picture(measured, draw_families)}
"""The picture of docs/reference/families.md."""


def every_picture() -> dict[str, Picture]:
    """Return every picture by the name of its file, without the ending."""
    return FAMILIES | {name: picture for study in studies() for name, picture in study_of(study).pictures.items()}


def path(name: str) -> Path:
    """Return the file of a picture."""
    return FOLDER / f"{name}.png"


def digest(name: str) -> str:
    """Return a digest of the numbers that a picture shows."""
    return hashlib.sha256(json.dumps(every_picture()[name].numbers()).encode()).hexdigest()[:16]


def kept_digest(name: str) -> str | None:
    """Return the digest of the numbers from which a picture was drawn, or `None` without one."""
    if not path(name).exists():
        return None
    with Image.open(path(name)) as picture:
        return picture.info.get("Source")


def write_pictures() -> None:
    """Draw every picture whose numbers changed."""
    for name, picture in every_picture().items():
        if kept_digest(name) != digest(name):
            metadata = {"Source": digest(name), "Software": None}
            picture.draw(picture.numbers()).savefig(path(name), dpi=110, metadata=metadata)


if __name__ == "__main__":
    write_pictures()
