"""The result of an explanation: one number that a model computed, as a complete table that sums to it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_mark, of_tokens, whole
from duat_jax.display.neurons import largest_entries
from duat_jax.display.result import Displayed
from duat_jax.display.view import (
    Colouring,
    Largest,
    ModelRun,
    TokenRow,
    UnitParts,
    UnitTable,
    View,
    line_ends,
    named_parts,
)
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage, labels_beside, name_of_input, reads_pixels
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.explain.record import ExplanationRecord
from duat_jax.interpret.headline import of_explanation
from duat_jax.json_record import as_record
from duat_jax.kinds import kept_as
from duat_jax.models.layout import layer_label
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Key, Marked

EXACT = (
    "Exact as a sum for this text: every layer, neuron and bias has its direct part, carried on through attention"
    " patterns and norms that are held at what they are here. Change the text, and they move. Why this, and not that:"
    " duat contrast (duat.contrast in Python). What matters: duat intervene (duat.intervene)."
)

COLLAPSE_FIELDS = "collapse", "collapse_bias", "collapse_completeness"
"""The fields of an explanation that are computed when one of them is first read."""


@kept_as("active neuron")
class ActiveNeuron(NamedTuple):
    """One entry of a table of contributions at its finest level.

    Args:
        term: the term that it belongs to.
        token_index: index of the token at which the neuron fired.
        neuron: index of the neuron.
        contribution: what it adds to the explained value: coefficient times activation.
        coefficient: what one unit more of its activation would add, everything held.
        activation: how strongly it fired.
    """

    term: Key
    token_index: int
    neuron: int
    contribution: float
    coefficient: float
    activation: float

    @property
    def layer(self) -> int | None:
        """The layer; `None` outside of all layers."""
        return self.term.layer


def _in_layer(key: Key) -> tuple[int | None, str]:
    """Return the layer of a term, and its name without the scopes around it."""
    return key.layer, str(key._replace(scope=()))


@kept_as("explanation")
@renamed_fields(input_tokens="collapse", input_bias="collapse_bias")
@dataclass(frozen=True, eq=False)
class Explanation(Displayed):
    """One number that a model computed, and every part of it: `value = Σ embedding + Σ terms + Σ biases`.

    Exact as a value; attention patterns and normalisation scales are held at what they are on this text.

    The collapse is computed when it is first read, by a table that is printed, a picture, a page and a file too: the
    model is run again, for about twice the time of the explanation. Until then the explanation holds the model's
    weights as they were; a copy, a pickle and a file hold numbers alone.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable; or `"whole"` and an image's patches, `"row,column"`.
        target: the target, which prints as a sentence, with the outputs that it reads.
        predictions: what a language model says at the explained position, or a classifier of the whole; empty for an
            encoder.
        embedding: contribution of every token's embedding, `[tokens]`.
        coefficients: what one unit more of every activation would add to the value, everything held,
            `[tokens, neurons]`, by term in the order of computation.
        activations: of every neuron of every term, `[tokens, neurons]`.
        biases: contribution of every bias and norm offset; zero for those inside a term or a pattern. Of a
            log-probability also minus the entropy of the model's distribution, `entropy`.
        collapse: contribution of every token by the collapse `x_L = W(x_0) x_0 + b(x_0)`, `[tokens]`.
        collapse_bias: what in the collapse doesn't depend on the tokens.
        completeness: value (from the plain forward pass), sum of all parts, error and tolerance.
        collapse_completeness: the same for the collapse.
        image: what was read, if it is an image.
        encoder_layers: of an encoder with a decoder the number of the encoder's layers, which come first; else 0.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    predictions: tuple[Prediction, ...]
    embedding: Float[np.ndarray, "tokens"]
    coefficients: Marked[Float[np.ndarray, "tokens neurons"]]
    activations: Marked[Float[np.ndarray, "tokens neurons"]]
    biases: Marked[float]
    collapse: Float[np.ndarray, "tokens"]
    collapse_bias: float
    completeness: Completeness
    collapse_completeness: Completeness
    image: SeenImage | None = None
    encoder_layers: int = 0

    @classmethod
    def before_collapse(cls, compute: Callable[[], Mapping[str, Any]], **fields: Any) -> "Explanation":
        """Return an explanation whose collapse is computed when it is first read.

        Args:
            compute: computes the fields of the collapse.
            fields: all other fields.
        """
        made = object.__new__(cls)
        vars(made).update(fields, _compute=compute)
        return made

    if not TYPE_CHECKING:  # to a type checker the fields of the collapse are like all others

        def __getattr__(self, name: str) -> Any:
            """Return a field of the collapse that isn't computed yet."""
            if name in COLLAPSE_FIELDS and (compute := vars(self).get("_compute")) is not None:
                vars(self).update(compute())
                vars(self).pop("_compute", None)
            if name not in vars(self):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return vars(self)[name]

    def __getstate__(self) -> dict[str, Any]:
        self.collapse  # noqa: B018
        return vars(self)

    @property
    def value(self) -> float:
        """The explained number, from the plain forward pass."""
        return float(self.completeness.value)

    @cached_property
    def terms(self) -> Marked[Float[np.ndarray, "tokens neurons"]]:
        """Contribution of every neuron of every term, `[tokens, neurons]`: its coefficient times its activation."""
        return Marked({key: u * self.activations[key] for key, u in self.coefficients.items()})

    @property
    def term_tokens(self) -> Float[np.ndarray, "terms tokens"]:
        """Contribution of every term at every token: its neurons' sum."""
        sums = [part.sum(-1) for part in self.terms.values()]
        return np.stack(sums) if sums else np.zeros((0, len(self.tokens)))

    @property
    def labels(self) -> dict[Key, str]:
        """The labels of terms in tables: the layer's number, with the name of one of several terms of a layer."""
        terms_in, called = Counter(key.layer for key in self.terms), Counter(map(_in_layer, self.terms))
        alike = {layer for (layer, _), count in called.items() if count > 1}

        def label(key: Key) -> str:
            if key.layer is None or key.layer in alike:
                return str(key)
            layer = layer_label(key.layer, self.encoder_layers, of_image=reads_pixels(self.image))
            return layer if terms_in[key.layer] == 1 else f"{layer} {_in_layer(key)[1]}"

        return {key: label(key) for key in self.terms}

    def top(self, count: int) -> list[ActiveNeuron]:
        """Return the neurons with the largest contributions by size.

        Args:
            count: how many.
        """
        return [
            ActiveNeuron(
                key, token, neuron, part, *(float(v[key][token, neuron]) for v in (self.coefficients, self.activations))
            )
            for key, token, neuron, part in largest_entries(self.terms, count)
        ]

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        terms = [part.sum(dtype=np.float64) for part in self.terms.values()]
        return {
            "completeness": self.embedding.sum(dtype=np.float64) + sum(terms) + sum(map(float, self.biases.values())),
            "collapse_completeness": self.collapse.sum(dtype=np.float64) + float(self.collapse_bias),
        }

    def view(self) -> View:
        """Return the explanation as it is shown."""
        labels, sums = self.labels, self.term_tokens
        rows = [TokenRow("embedding", self.embedding)]
        rows += [TokenRow(label, part, key.layer) for (key, label), part in zip(labels.items(), sums, strict=True)]
        neurons = tuple(
            UnitParts(labels[key], row, (part, self.coefficients[key], self.activations[key]), range(part.shape[-1]))
            for row, (key, part) in enumerate(self.terms.items(), 1)
        )
        parts = np.stack([row.parts for row in rows])
        row, token = divmod(int(np.abs(parts).argmax()), len(self.tokens))
        part = float(parts[row, token])
        return View(
            kind="explanation",
            target=self.target.headline,
            headline=of_explanation(self.target, self.value, token, part, rows[row].name, self.tokens, self.image),
            largest=Largest(token, part, rows[row].layer),
            value=self.value,
            value_name="value",
            completeness=self.completeness,
            exact=EXACT,
            runs=(ModelRun(name_of_input(self.image, len(self.tokens)), self.value, self.predictions),),
            output=self.target.output_id,
            position=self.target.position,
            tokens=labels_beside(self.tokens, self.image),
            line_ends=line_ends(self.tokens),
            rows=tuple(rows),
            colourings=(
                Colouring(
                    "direct parts",
                    "What is written at each token, by its embedding and by every layer: a column of the table.",
                    self.embedding + sums.sum(0),
                ),
            ),
            later_colourings=self._colourings_of_collapse,
            units=(
                UnitTable(
                    "neuron",
                    ("contribution", "coefficient", "activation"),
                    "A neuron's contribution is its coefficient times its activation; together they are the cell.",
                    "",
                    neurons,
                ),
            ),
            added=named_parts("Biases and norm offsets", self.biases.items()),
            image=self.image,
        )

    def _colourings_of_collapse(self) -> tuple[Colouring, ...]:
        note = (
            "On this text all layers together are one matrix and one constant: this is what the matrix makes of each"
            " token's embedding, its part of W(x0) x0; with the constant b(x0), which is"
            f" {self.collapse_bias:+z.4f}, they sum to the value."
        )
        return (Colouring("collapse", note, self.collapse),)

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes.

        The sum of `embedding`, `terms` and `biases` is the value; so is that of `collapse` and `collapse_bias`.
        """
        token = of_tokens(self.tokens)
        yield whole("embedding", self.embedding, token)
        yield from by_mark("terms", self.terms, token, "neuron")
        yield from by_mark("biases", self.biases, {})
        yield whole("collapse", self.collapse, token)
        yield whole("collapse_bias", self.collapse_bias)

    def as_dict(self, model: str = "", count: int = 10) -> dict[str, Any]:
        """Return everything but single neurons as plain data for JSON, with the fields of `ExplanationRecord`.

        Args:
            model: name of the model.
            count: how many of the largest neurons to list.
        """
        return as_record(
            ExplanationRecord,
            self,
            model=model,
            dtype=self.completeness.dtype,
            contributions={
                "embedding": self.embedding,
                "terms": dict(zip(self.terms, self.term_tokens, strict=True)),
                "biases": self.biases,
            },
            collapse={
                "tokens": self.collapse,
                "bias": self.collapse_bias,
                "completeness": self.collapse_completeness,
            },
            top=self.top(count),
        )

    def __repr__(self) -> str:
        return f"Explanation({self.target} = {self.value:.6g}, error {float(self.completeness.error):+.1e})"
