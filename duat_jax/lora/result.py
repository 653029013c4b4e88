"""What adapters change in a number that a model computes: three columns, every adapter's part, the first order."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.display.result import Plotted
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.labels import Prediction
from duat_jax.transform.keys import Marked

if TYPE_CHECKING:
    pass

COLUMNS = ("moved", "adapter", "interaction")


class Columns(NamedTuple):
    """A part of the number without adapters, and the three columns of its change: their sum is the change.

    Args:
        base: the part itself, without adapters.
        moved: the base's weights under the dynamic parameters that the adapters moved, minus the part itself.
        adapter: the adapted weights under the base's dynamic parameters, minus the part itself.
        interaction: what both together change beyond the two.
    """

    base: Any
    moved: Any
    adapter: Any
    interaction: Any


class Parts(NamedTuple):
    """The parts of a number: of the embeddings, of every neuron of every term, of every bias.

    Args:
        embedding: of every token, `[tokens]`.
        terms: of every neuron at every token, by term, `[tokens, neurons]`.
        biases: of every bias and norm offset, by name.
        reader: what is added where the number is read: the bias of a read-out, and of a log-probability minus the
            entropy.
    """

    embedding: Float[Any, "tokens"]
    terms: Marked[Any]
    biases: Marked[Any]
    reader: Any


class Effect(NamedTuple):
    """What one adapter does to the number.

    Args:
        name: the layer on which it stands, by its stored name.
        part: its part of the difference, by the secant in the adapters' scales: these sum to it.
        first_order: the same to first order, from the base on.
        alone: by how much the number moves with this adapter alone: the model run again.
    """

    name: str
    part: float
    first_order: float
    alone: float


@dataclass(frozen=True, eq=False)
class LoraChange(Plotted):
    """The change of a number by adapters, as exact sums over terms and over adapters.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable.
        target: what is asked for, in words.
        before: the number without adapters, from the plain forward pass.
        after: the number with them.
        predictions: what the model says without adapters and with them; empty for an encoder.
        columns: the parts of the number and of its change, each field one `Parts`.
        effects: what each adapter does.
        first_order: the whole change to first order in the adapters, from the base on.
        first_order_held: the same with the base's dynamic parameters held: of the adapters' column.
        jumps: parts of the difference in the adapters' scales that have no slope, such as a router's choice.
        completeness: the difference (from the plain forward passes), the sum of all parts in the three columns.
        corners: how exactly the parts of each of four runs sum to it: base and adapted weights, each under the dynamic
            parameters of the base's run and of the adapted one's.
        by_adapter: the difference, and the sum of the adapters' parts.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    family: str
    tokens: tuple[str, ...]
    target: str
    before: float
    after: float
    predictions: tuple[tuple[Prediction, ...], tuple[Prediction, ...]]
    columns: Columns
    effects: tuple[Effect, ...]
    first_order: float
    first_order_held: float
    jumps: dict[str, float]
    completeness: Completeness
    corners: tuple[Completeness, ...]
    by_adapter: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The number with the adapters minus that without them."""
        return float(self.completeness.value)

    @property
    def totals(self) -> dict[str, float]:
        """The sum of each column over all parts."""
        return {name: sum(row[name] for row in self.rows.values()) for name in COLUMNS}

    @property
    def rows(self) -> dict[str, dict[str, float]]:
        """For embeddings, each term and all biases together, the part without adapters and the three columns."""

        def row(of: Any) -> dict[str, float]:
            return {name: float(np.sum(of(parts))) for name, parts in self.columns._asdict().items()}

        found = {"embedding": row(lambda parts: parts.embedding)}
        found |= {str(key): row(lambda parts, key=key: parts.terms[key]) for key in self.columns.base.terms}
        found["biases"] = row(lambda parts: [*parts.biases.values(), parts.reader])
        return found

    def top_neurons(self, count: int) -> list[dict[str, Any]]:
        """Return the neurons whose parts changed most, all columns together.

        Args:
            count: how many.
        """
        from duat_jax.display.neurons import largest_entries

        base, *columns = self.columns
        changes = {key: sum(column.terms[key] for column in columns) for key in base.terms}
        found = []
        for key, token, neuron, change in largest_entries(Marked(changes), count):
            each = {name: float(parts.terms[key][token, neuron]) for name, parts in self.columns._asdict().items()}
            found.append({"term": str(key), "token_index": token, "neuron": neuron, "change": change, **each})
        return found

    def as_dict(self, model: str, count: int = 10) -> dict[str, Any]:
        """Return everything but single neurons as plain numbers, for JSON.

        | field | what it is |
        |---|---|
        | `model`, `family` | what was asked |
        | `tokens`, `target`, `dtype` | the text; what is asked for, in words; of everything computed |
        | `before`, `after`, `difference` | the number without adapters and with them |
        | `predictions` | what the model says without adapters and with them: `token`, `probability` |
        | `rows` | of embeddings, each term and the biases: `base`, `moved`, `adapter`, `interaction` |
        | `totals` | the sums of the three columns |
        | `adapters` | of each: `name`, `part`, `first_order`, `alone` |
        | `first_order`, `first_order_held` | of the whole; of the adapters' column |
        | `jumps` | what jumped between the two runs, by name |
        | `completeness`, `by_adapter`, `corners` | `sum`, `error`, `tolerance`, `largest` part and `verdict` |
        | `notes` | what to know of the parts though they sum; none as a rule |
        | `top_neurons` | those whose parts changed most |

        Args:
            model: name of the model.
            count: how many neurons to list.
        """
        return {
            "model": model,
            "family": self.family,
            "tokens": list(self.tokens),
            "target": self.target,
            "dtype": str(self.completeness.dtype),
            "before": self.before,
            "after": self.after,
            "difference": self.difference,
            "predictions": [[said._asdict() for said in each] for each in self.predictions],
            "rows": self.rows,
            "totals": self.totals,
            "adapters": [effect._asdict() for effect in self.effects],
            "first_order": self.first_order,
            "first_order_held": self.first_order_held,
            "jumps": self.jumps,
            "completeness": self.completeness.as_dict(),
            "by_adapter": self.by_adapter.as_dict(),
            "corners": [corner.as_dict() for corner in self.corners],
            "notes": list(self.notes),
            "top_neurons": self.top_neurons(count),
        }

    def __repr__(self) -> str:
        return f"LoraChange({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"
