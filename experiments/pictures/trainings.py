"""Pictures of trainings: numbers along two of them, and what planted pieces did beside what is missing without them."""

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.emergence.longer import EMBEDDED, SEED, Longer
from experiments.emergence.seeds import Seed
from experiments.emergence.training import HELD_OUT, REPETITION
from experiments.kept_results import kept
from experiments.pictures.numbers import Numbers, estimate
from experiments.pictures.panels import OTHER, OURS, PALE
from experiments.studies import fields_of


def longer() -> Numbers:
    """Return two numbers along the training that goes on and along the shorter one, and of the embedded model."""
    of, shorter = Longer(kept("emergence_longer")), Seed(kept("emergence"), SEED)
    return {
        name: {
            "a rate that stays": [of.numbers.tolist(), of.values(name).round(4).tolist()],
            "a rate that falls": [shorter.numbers.tolist(), shorter.values(name).round(4).tolist()],
            EMBEDDED: of.embedded[name],
        }
        for name in (HELD_OUT, REPETITION)
    }


@styled
def draw_longer(numbers: Numbers) -> Figure:
    """Draw a panel for each number, with a curve for each training and a line for the embedded model."""
    figure = Figure(figsize=(10.4, 3.2))
    for axes, (name, of) in zip(figure.subplots(1, len(numbers)), numbers.items(), strict=True):
        for colour, (training, course) in zip((OURS, OTHER), of.items(), strict=False):
            axes.plot(*course, color=colour, label=training)
        axes.axhline(of[EMBEDDED], color=PALE, linestyle="--", label=EMBEDDED)
        axes.set(title=name, xlabel="step", ylabel="nats")
    axes.legend(fontsize="small")
    return figure


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
