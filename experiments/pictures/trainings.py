"""Pictures of trainings: numbers along two of them, and what planted pieces did beside what is missing without them."""

from experiments.pictures.numbers import Numbers, estimate
from experiments.studies import fields_of


def planted() -> Numbers:
    """Return by how much planted pieces lower a loss by their parts, and how much of it is lost without them."""
    table = "Parts of planted pieces, and trainings without them"
    columns = "lowered by its part, nats", "lost without it, nats"
    fields = fields_of("retraining_planted")
    rows = {name.split(" / ")[1] for name in fields if name.startswith(f"{table} / ") and name.endswith(columns[0])}
    both = [row for row in sorted(rows) if all(fields[f"{table} / {row} / {column}"] for column in columns)]
    return {
        column: ["nats", {row: estimate(fields[f"{table} / {row} / {column}"]) for row in both}] for column in columns
    }
