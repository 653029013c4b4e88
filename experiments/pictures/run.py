"""The picture at the top of every page of results, drawn from the fields of its study.

`make pages` draws those whose numbers changed.  A picture keeps a digest of its numbers, which
`tests/experiments/test_pictures.py` compares.  After a change of how one is drawn, delete its file and run
`python -m experiments.pictures.run`.
"""

import hashlib
import json
from pathlib import Path

from PIL import Image

from experiments.families import measured
from experiments.kept_results import ROOT
from experiments.pictures import draw
from experiments.studies import converted, study_of
from experiments.study import Picture

FOLDER = ROOT / "docs" / "findings"


PICTURES: dict[str, Picture] = {}
"""The picture of every page of results, by the name of the page."""

FURTHER = {"families-answer": Picture(measured, draw.draw_families)}
"""Pictures further down on a page, by their own names."""


def of_studies() -> dict[str, Picture]:
    """Return the pictures of all studies that are stated as one `STUDY`."""
    return {name: picture for study in converted() for name, picture in study_of(study).pictures.items()}


def every_picture() -> dict[str, Picture]:
    """Return every picture by its name."""
    return PICTURES | FURTHER | of_studies()


def path(page: str) -> Path:
    """Return the file of a picture."""
    return FOLDER / (f"{page}-answer.png" if page in PICTURES and page not in of_studies() else f"{page}.png")


def digest(page: str) -> str:
    """Return a digest of the numbers that a page's picture shows."""
    return hashlib.sha256(json.dumps(every_picture()[page].numbers()).encode()).hexdigest()[:16]


def kept_digest(page: str) -> str | None:
    """Return the digest of the numbers from which a page's picture was drawn, or `None` without one."""
    if not path(page).exists():
        return None
    with Image.open(path(page)) as picture:
        return picture.info.get("Source")


def write_pictures() -> None:
    """Draw every picture whose numbers changed."""
    for page, picture in every_picture().items():
        if kept_digest(page) != digest(page):
            metadata = {"Source": digest(page), "Software": None}
            picture.draw(picture.numbers()).savefig(path(page), dpi=110, metadata=metadata)


if __name__ == "__main__":
    write_pictures()
