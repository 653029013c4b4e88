"""The result of an intervention: the measured and the predicted effect of each edit on a target."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import Axes, NamedArray, by_name, of_tokens
from duat_jax.display.result import Displayed
from duat_jax.display.view import (
    DISCONTINUITIES,
    Colouring,
    Largest,
    ModelRun,
    Table,
    TokenRow,
    UnitParts,
    UnitTable,
    View,
    line_ends,
    named_parts,
)
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.headline import of_intervention
from duat_jax.interpret.intervene.record import InterventionRecord
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import token_label

EXACT = (
    "Exact for this pair of runs, with the edits and without: the parts of all edits sum to the difference. Other"
    " edits have other parts."
)
NOTHING = "The number doesn't move: nothing that was edited reaches it."
COLUMNS = (
    "predicted: from the run as it is; attention, norms, gates and all other neurons stay as they are, so that it says"
    " little of a token or a stream, to which they react most. part: each edit's part of the measured difference."
    " alone: the model run again with this edit only."
)
PATCHED = (
    " contrast: minus the edit's part of the difference from the reference (duat contrast), which predicts"
    " what setting to the values on it does."
)


@kept_as("effect of a change")
@renamed_fields(change="edit")
class Effect(NamedTuple):
    """The effect of one edit on the target.

    Args:
        edit: the edit, in words.
        tokens: at which tokens.
        units: which neurons or heads; absent of a stream.
        frozen: predicted by the table of contributions, of each value, `[tokens, units]`, or of a stream `[tokens]`.
        secant: its part of the measured difference, of the same shape.
        alone: measured, the model run again with this edit alone.
        contrast: predicted by the contrast with the text from which the values are: minus the edit's part of it; only
            of edits that `duat intervene` sets to the values on another text.
    """

    edit: str
    tokens: tuple[int, ...]
    units: tuple[int, ...] | None
    frozen: Float[np.ndarray, "tokens *units"]
    secant: Float[np.ndarray, "tokens *units"]
    alone: float
    contrast: float | None = None

    def at_tokens(self, parts: Float[np.ndarray, "edited *units"], tokens: int) -> Float[np.ndarray, "tokens *units"]:
        """Return parts at every token of the text, zero where nothing is edited.

        Args:
            parts: at the edited tokens.
            tokens: the number of tokens of the text.
        """
        everywhere = np.zeros((tokens, *parts.shape[1:]), parts.dtype)
        everywhere[list(self.tokens)] = parts
        return everywhere


@kept_as("intervention")
@renamed_fields(jumps="discontinuities")
@dataclass(frozen=True, eq=False)
class Intervention(Displayed):
    """One number of a model before and after edits inside of it: `after − before = Σ secant + Σ discontinuities`.

    The frozen column is a prediction: attention patterns, norms, gates and all other neurons stay as they were.  The
    secant column is an account of what happened: a product, also that of a scaled value, is shared evenly.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable; or `"whole"` and an image's patches, `"row,column"`.
        target: the target, which prints as a sentence, with the outputs that it reads.
        before: the number as it is.
        after: the number with all edits, the model run again.
        predictions: the most probable outputs as it is; empty of an encoder, and where a stream is read.
        changed_predictions: those with all edits.
        effects: what each edit did.
        discontinuities: parts of what has no slope between the two runs, such as a router's choice, by line of the
            program.
        completeness: the difference, the sum of the secant column and the discontinuities, error and tolerance.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised; as in `duat.secant`.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    before: float
    after: float
    predictions: tuple[Prediction, ...]
    changed_predictions: tuple[Prediction, ...]
    effects: tuple[Effect, ...]
    discontinuities: dict[str, float]
    completeness: Completeness
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The target with the edits minus that without."""
        return float(self.completeness.value)

    @property
    def reaches(self) -> bool:
        """Whether anything that was edited reaches the target, beyond rounding."""
        return bool(self.difference and (self.completeness.largest or not self.completeness.within))

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        secants = [effect.secant.sum(dtype=np.float64) for effect in self.effects]
        return {"completeness": sum(secants) + sum(map(float, self.discontinuities.values()))}

    def view(self) -> View:
        """Return the intervention as it is shown: the effects of the edits, and their parts at every token."""
        tokens = len(self.tokens)
        rows, units = [], []
        for number, effect in enumerate(self.effects):
            secant, frozen = (effect.at_tokens(parts, tokens) for parts in (effect.secant, effect.frozen))
            rows.append(TokenRow(effect.edit, secant if effect.units is None else secant.sum(-1)))
            if effect.units is not None:
                units.append(UnitParts(effect.edit, number, (secant, frozen), effect.units))
        by_token = np.sum([row.parts for row in rows], axis=0)
        token = int(np.abs(by_token).argmax())
        return View(
            kind="intervention",
            target=f"the change of the {self.target}",
            headline=of_intervention(self.target, self.before, self.after, [effect.edit for effect in self.effects]),
            largest=Largest(token, float(by_token[token])),
            value=self.difference,
            value_name="difference",
            completeness=self.completeness,
            exact=EXACT if self.reaches else NOTHING,
            runs=(
                ModelRun("with the edits", self.after, self.changed_predictions),
                ModelRun("as it is", self.before, self.predictions),
            ),
            output=self.target.output_id,
            position=self.target.position,
            tokens=tuple(map(token_label, self.tokens)),
            line_ends=line_ends(self.tokens),
            heading="Every edit at every token",
            rows=tuple(rows),
            colourings=(
                Colouring(
                    "parts of the edits",
                    "How much of the difference comes from what was edited at each token.",
                    by_token,
                ),
            ),
            units=(
                UnitTable(
                    "unit",
                    ("part", "predicted"),
                    "The edited neurons or heads; together they are the cell.",
                    "",
                    tuple(units),
                ),
            ),
            added=named_parts(DISCONTINUITIES, self.discontinuities.items()),
            tables=(self._effects(),),
            notes=self.notes,
        )

    def _effects(self) -> Table:
        """Return the table of the effects of all edits."""
        contrasted = any(effect.contrast is not None for effect in self.effects)

        def row(name: str, frozen: float | None, part: float, contrast: float | None, alone: float | None) -> tuple:
            return (name, frozen, part, *([contrast] if contrasted else []), alone)

        rows = [
            row(each.edit, float(each.frozen.sum()), float(each.secant.sum()), each.contrast, each.alone)
            for each in self.effects
        ]
        rows += [row(f"discontinuity: {name}", None, part, None, None) for name, part in self.discontinuities.items()]
        predicted = sum(float(effect.frozen.sum()) for effect in self.effects)
        return Table(
            "What the edits did",
            ("edit", "predicted", "part", *(["contrast"] if contrasted else []), "alone"),
            tuple(rows),
            row("together", predicted, float(self.completeness.sum), None, self.difference),
            COLUMNS + (PATCHED if contrasted else ""),
            drawn=("predicted", "part", "alone"),
        )

    def arrays(self) -> Iterator[NamedArray]:
        """Yield what each edit did with named axes; the sum of `secant` and `discontinuities` is the difference."""
        for effect in self.effects:
            units: Axes = {} if effect.units is None else {"unit": {"unit": effect.units}}
            axes, place = {**of_tokens(self.tokens, effect.tokens), **units}, {"change": effect.edit}
            yield NamedArray("frozen", effect.frozen, axes, place)
            yield NamedArray("secant", effect.secant, axes, place)
            yield NamedArray("alone", np.asarray(effect.alone), {}, place)
            if effect.contrast is not None:
                yield NamedArray("contrast", np.asarray(effect.contrast), {}, place)
        yield from by_name("discontinuities", self.discontinuities)

    def as_dict(self, model: str = "") -> dict[str, Any]:
        """Return everything as plain data for JSON, with the fields of `InterventionRecord`.

        Args:
            model: name of the model.
        """
        named = [effect._asdict() for effect in self.effects]
        effects = [{"change": fields.pop("edit"), **fields} for fields in named]
        return as_record(InterventionRecord, self, model=model, dtype=self.completeness.dtype, effects=effects)

    def __repr__(self) -> str:
        return f"Intervention({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"
