"""What a part of a text adds to what comes after it, as an account that shows itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from duat_jax.analysis.context_form import Moved
from duat_jax.explanation.result import completeness_as_dict
from duat_jax.explanation.shown import Shown
from duat_jax.forms.completeness import Completeness
from duat_jax.transform.keys import Key, Marked

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

PATTERN = "attention.pattern"

COLUMNS = ("attention to the hidden part", "attention to other tokens", "norm scales", "gates and others")
"""The dynamic parameters that move, in groups."""


@dataclass(frozen=True, eq=False)
class Ledger(Shown):
    """What the hidden part of a text adds to a mean log-probability, `f(seen) − f(hidden)`, as sums over parameters.

    Args:
        values: the number with the part in view and without, each from a plain forward pass.
        hidden: true for the tokens of the part, `[tokens]`.
        patterns: parts of each head's moved attention to each token, over all queries, `[layers, heads, tokens]`.
        held: parts of every other dynamic parameter that moved, such as norm scales and gates, by key.
        jumps: parts of what has no slope between both runs, such as a router's choice, by name and place.
        heads: parts of what each head mixes, `[layers, heads]`; no cut: what one brings another may take back.
        mask: parts of the mask in each layer where nothing is held and everything flows, `[layers]`.
        form: the same difference in the parameters of the closed form.
        hidden_at: by how much less is added where one layer doesn't see the part, the model run again, `[layers]`;
            absent if it wasn't.
        hidden_from: the same where that layer and all later ones don't, `[layers]`.
        completeness: the difference of the plain forward passes, the sum of `patterns`, `held` and `jumps`, error and
            tolerance.
        mask_completeness: the same of `mask`.
    """

    values: tuple[float, float]
    hidden: Bool[np.ndarray, "tokens"]
    patterns: Float[np.ndarray, "layers heads tokens"]
    held: Marked[float]
    jumps: dict[str, float]
    heads: Float[np.ndarray, "layers heads"]
    mask: Float[np.ndarray, "layers"]
    form: Moved
    hidden_at: Float[np.ndarray, "layers"] | None
    hidden_from: Float[np.ndarray, "layers"] | None
    completeness: Completeness
    mask_completeness: Completeness

    @property
    def difference(self) -> float:
        """The number with the part in view minus the number without."""
        return float(self.completeness.value)

    @property
    def layers(self) -> Float[np.ndarray, "rows 4"]:
        """The parts of every layer in the columns of `COLUMNS`; the last row is what comes after all layers."""
        found = np.zeros((len(self.patterns) + 1, len(COLUMNS)))
        by_token = self.patterns.astype(np.float64).sum(1)
        found[:-1, 0], found[:-1, 1] = by_token[:, self.hidden].sum(-1), by_token[:, ~self.hidden].sum(-1)
        for key, part in self.held.items():
            found[_layer_of(key, len(found) - 1), 2 if key.name.endswith(".scale") else 3] += part
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, for JSON.

        | field | what it is |
        |---|---|
        | `with`, `without`, `difference` | the mean log-probability, from plain forward passes |
        | `completeness` | `sum` of all parts, `error`, `tolerance`, `largest` part, and the `verdict` |
        | `columns`, `layers` | the parts of moved parameters by layer; the last row is what comes after all layers |
        | `tokens` | the parts of attention to every token, by layer |
        | `held`, `jumps` | the parts of all other dynamic parameters, and of what jumped, by name |
        | `heads` | the parts of what each head mixes, by layer |
        | `mask` | the parts of the mask in each layer, where nothing is held |
        | `form` | the difference in the closed form's parameters; pairs are other tokens and the hidden part's |
        | `hidden_at`, `hidden_from` | how much less is added where a layer, or it and all later ones, don't see it |
        """
        form = self.form._asdict() | {"completeness": completeness_as_dict(self.form.completeness)}
        return {
            "with": self.values[0],
            "without": self.values[1],
            "difference": self.difference,
            "completeness": completeness_as_dict(self.completeness),
            "columns": list(COLUMNS),
            "layers": self.layers.tolist(),
            "tokens": self.patterns.sum(1).tolist(),
            "held": {str(key): part for key, part in self.held.items()},
            "jumps": self.jumps,
            "heads": self.heads.tolist(),
            "mask": self.mask.tolist(),
            "form": {
                name: part if isinstance(part, dict) else np.asarray(part).tolist() for name, part in form.items()
            },
            "hidden_at": None if self.hidden_at is None else self.hidden_at.tolist(),
            "hidden_from": None if self.hidden_from is None else self.hidden_from.tolist(),
        }

    def __repr__(self) -> str:
        return f"Ledger({self.difference:+.6g}, error {float(self.completeness.error):+.1e})"

    def _table(self) -> "RenderableType":
        from duat_jax.analysis.context_table import render

        return render(self)

    def plot(self) -> "Figure":
        """Return the picture: the parts of every layer beside what the model says when that layer is blind."""
        from duat_jax.analysis.context_picture import draw_ledger

        return draw_ledger(self)


def _layer_of(key: Key, after: int) -> int:
    """Return the layer in which a mark stands, or what comes after all layers."""
    layers = [int(scope.removeprefix("layers.")) for scope in key.scope if scope.startswith("layers.")]
    return layers[0] if layers else after
