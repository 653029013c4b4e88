"""Tables of docs/findings/in-context.md, from the stored results of `experiments.in_context.run`."""

from typing import Any

from experiments.in_context.cells import MODELS, Pieces, coverage, intervals
from experiments.in_context.gains import numbers_of_gains, replies
from experiments.in_context.ledgers import copying, layers_again, ledgers, numbers_of_ledgers
from experiments.in_context.rank_one_tables import numbers_of_updates
from experiments.in_context.reading import density, numbers_of_reading, weights, windows


def numbers(pieces: Pieces) -> dict[str, str]:
    """Return single numbers of the tables, by name, for sentences of other pages."""
    ours = (numbers_of_reading, numbers_of_gains, numbers_of_ledgers, numbers_of_updates)
    return {name: number for numbers_of in ours for name, number in numbers_of(pieces).items()}


def page(results: dict[str, Any]) -> str:
    """Return the page's tables."""
    sizes, pieces = results["sizes"], results["pieces"]
    texts = f"{sizes['texts']} texts of {sizes['tokens']} tokens"
    tables = [
        "### How dense, how far",
        "",
        f"{texts}; shares of squared norms, the mean over layers (in brackets the smallest and the largest layer) and"
        " over the later half of each text. The unit is the text.",
        "",
        *density(pieces, sizes["tokens"]),
        "The first token's share, by what it is weighed:",
        "",
        *weights(pieces),
        "### Windows",
        "",
        f"The loss in nats, the model run again; in brackets how much more it is than with the whole text. {texts}; the"
        " unit is the text.",
        "",
        *windows(pieces),
        "### What demonstrations add",
        "",
        f"{MODELS[1]}; the gain in log-probability of the answer's first token by demonstrations in view, in"
        " nats, against the same demonstrations hidden. The unit is the draw, each with another question.",
        "",
        *replies(pieces),
        "### The ledgers",
        "",
        f"{MODELS[1]}, in nats; the unit is the draw.",
        "",
        *ledgers(pieces),
        *layers_again(pieces),
        *copying(pieces),
    ]
    units = sizes["texts"]
    note = (
        "In square brackets stands the 95 % percentile interval, by bootstrap over the unit that is named; of how often"
        " something holds in a section's draws it is Clopper and Pearson's. With"
        f" {units} units it holds the true mean in about {100 * coverage(units):.0f} % of cases only, and none of the"
        f" {intervals(chr(10).join(tables))} intervals in the tables is corrected for there being so many."
    )
    return "\n".join([note, "", *tables])
