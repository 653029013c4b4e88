"""Agreement of every family's checkpoints with the reference implementation, as in docs/reference/families.md."""

from typing import Any

from experiments.kept_results import ROOT
from experiments.markdown import Fields, tables_of

PAGE = ROOT / "docs" / "reference" / "families.md"
COLUMNS = "float32", "float64", "exactness"


def measured() -> dict[str, dict[str, list[float]]]:
    """Return what was measured of every checkpoint, by family and column of its table."""
    families: dict[str, dict[str, list[float]]] = {}
    for family, (head, *rows) in tables_of(PAGE.read_text(encoding="utf-8")):
        columns = {column: head.index(column) for column in COLUMNS}
        read = [row for row in rows if row[columns["exactness"]]]
        families[family] = {column: [float(row[place]) for row in read] for column, place in columns.items()}
    return families


def fields(kept: dict[str, Any]) -> Fields:
    """Return the numbers of families and of checkpoints, and the largest difference of each kind."""
    families = measured()
    largest = {column: max(max(family[column]) for family in families.values()) for column in COLUMNS}
    return {
        "families": str(len(families)),
        "checkpoints": str(sum(len(family["exactness"]) for family in families.values())),
        "largest float32": f"{largest['float32']:.0e}",
        "largest float64": f"{largest['float64']:.0e}",
        "largest exactness": f"{largest['exactness']:.2f}",
    }
