"""The table of a survey's neurons with the largest mean parts, for terminal and notebook."""

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from duat_jax.display.tables import NumberTable
from duat_jax.inputs.baselines import BASELINES
from duat_jax.inputs.labels import readable
from duat_jax.models.vocabulary.token import quoted_label
from duat_jax.survey.tables import Survey, column

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN = 10
"""The number of neurons that are listed."""


def _title(manifest: dict[str, Any], tokenizer: "Tokenizer") -> str:
    """Return a sentence on the number that is explained."""
    target, contrast = (
        None if manifest[name] is None else quoted_label(readable(tokenizer, [manifest[name]])[0])
        for name in ("target", "contrast")
    )
    number = "margin of the token that stands there" if target is None else f"logit of {target}"
    if contrast is not None:
        number += f" minus that of {contrast}"
    if manifest["baseline"] is None:
        return f"neurons by what they add to the {number}"
    return f"neurons by their part in the difference from {BASELINES[manifest['baseline']]}: {number}"


def render(survey: Survey, tokenizer: "Tokenizer") -> RenderableType:
    """Return the neurons with the largest mean parts, and where each is strongest."""
    part = column(survey.manifest)
    largest = survey.neurons.sort_values(part, key=abs, ascending=False).head(SHOWN)
    contexts = survey.contexts.query("kind == 'neuron' and what == 'strongest activation' and rank < 3")
    table = NumberTable(labels=2, title=escape(_title(survey.manifest, tokenizer)))
    for name in ("layer", "neuron", "a token", "active"):
        table.add_column(name, justify="right")
    table.add_column("strongest at")
    for row in largest.itertuples():
        of_neuron = contexts[(contexts.layer == row.layer) & (contexts.unit == row.neuron)]
        # A token may look like markup.
        at = Text(", ".join(map(quoted_label, readable(tokenizer, of_neuron.token_id.tolist()))))
        table.add_row(str(row.layer), str(row.neuron), f"{getattr(row, part):+z.4f}", f"{row.activation:z.3f}", at)
    return table
