"""The result of an intervention: the measured and the predicted effect of each change on a target."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.result import Displayed
from duat_jax.forms.completeness import Completeness

if TYPE_CHECKING:
    pass


class Effect(NamedTuple):
    """The effect of one change on the target.

    Args:
        change: the change, in words.
        tokens: at which tokens.
        units: which neurons or heads; absent of a stream.
        frozen: predicted by the table of contributions, of each value, `[tokens, units]`, or of a stream `[tokens]`.
        secant: its part of the measured difference, of the same shape.
        alone: measured, the model run again with this change alone.
    """

    change: str
    tokens: tuple[int, ...]
    units: tuple[int, ...] | None
    frozen: Float[np.ndarray, "tokens *units"]
    secant: Float[np.ndarray, "tokens *units"]
    alone: float


@renamed_fields(jumps="discontinuities")
@dataclass(frozen=True, eq=False)
class Intervention(Displayed):
    """One number of a model before and after changes inside of it: `after − before = Σ secant + Σ discontinuities`.

    The frozen column is a prediction: attention patterns, norms, gates and all other neurons stay as they were.  The
    secant column is an account of what happened: a product, also that of a scaled value, is shared evenly.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable; or `"whole"` and an image's patches, `"row,column"`.
        target: what is asked for, in words.
        before: the number as it is.
        after: the number with all changes, the model run again.
        effects: what each change did.
        discontinuities: parts of what has no slope between the two runs, such as a router's choice, by line of the
            program.
        completeness: the difference, the sum of the secant column and the discontinuities, error and tolerance.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    family: str
    tokens: tuple[str, ...]
    target: str
    before: float
    after: float
    effects: tuple[Effect, ...]
    discontinuities: dict[str, float]
    completeness: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The target with the changes minus that without."""
        return float(self.completeness.value)

    def as_dict(self, model: str) -> dict[str, Any]:
        """Return everything as plain numbers, for JSON.

        | field | what it is |
        |---|---|
        | `model`, `family` | what was asked |
        | `tokens` | the text, token by token; the patches of an image |
        | `target` | what is asked for, in words |
        | `dtype` | of everything computed |
        | `before`, `after`, `difference` | the number, without and with all changes |
        | `effects` | of each change: the `change` in words, its `tokens` and `units`; `frozen` and `secant`, of each \
        value that is changed; `alone`, measured |
        | `discontinuities` | parts without a slope, by name |
        | `completeness` | `sum` of all parts, `error`, `tolerance`, `largest` part, and the `verdict` |
        | `notes` | what to know of the parts though they sum; none as a rule |

        Args:
            model: name of the model.
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
            "effects": [
                effect._asdict()
                | {
                    "tokens": list(effect.tokens),
                    "units": None if effect.units is None else list(effect.units),
                    "frozen": effect.frozen.tolist(),
                    "secant": effect.secant.tolist(),
                }
                for effect in self.effects
            ],
            "discontinuities": self.discontinuities,
            "completeness": self.completeness.as_dict(),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return f"Intervention({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"
