"""The result of a contrast: the difference of a target between two inputs, as parts that sum to it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.deprecation import renamed_fields
from duat_jax.display.named_arrays import NamedArray, by_mark, by_name, of_tokens, whole
from duat_jax.display.neurons import Neuron, largest_entries
from duat_jax.display.result import Paged, Plotted
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs.images import SeenImage
from duat_jax.inputs.labels import Prediction
from duat_jax.interpret.comparison import Compared
from duat_jax.interpret.contrast.record import ContrastRecord
from duat_jax.json_record import as_record
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Key, Marked


@renamed_fields(part="contribution")
class Head(NamedTuple):
    """The part of an attention head at one token.

    Args:
        mixed: the mark of what the layer's heads mix: these values are in `recording.dynamics.points`, and the layer is
            `mixed.layer`.
        token_index: index of the token that it is carried to.
        head: index of the head.
        contribution: its part of the difference.
    """

    mixed: Key
    token_index: int
    head: int
    contribution: float


@renamed_fields(jumps="discontinuities", others="references")
@dataclass(frozen=True, eq=False)
class Contrast(Paged, Plotted):
    """The difference of a number between two inputs, and its parts at every layer: exact for this pair of inputs.

    Every row of `flow` sums to the difference, together with what moved or jumped after it: everything flows through
    the stream. Heads' and neurons' parts don't sum to it: what flows through one may flow on through another. With
    several references, everything is the mean over them.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable; or `"whole"` and an image's patches, `"row,column"`.
        target: the target, which prints as a sentence, with the outputs that it reads.
        value: the number on the input, from the plain forward pass.
        predictions: what the model says on it; empty for an encoder.
        references: what it is contrasted with.
        flow: parts of every token in the stream after the embedding and after each layer, `[layers + 1, tokens]`.
        heads: parts of what each head mixes at every token, `[tokens, heads]`, in the order of computation.
        neurons: parts of every neuron of every MLP, `[tokens, neurons]`.
        moved: parts of what was held at its midpoint, by name.
        discontinuities: parts of what has no slope between the inputs, such as a router's choice, by name and place.
        completeness: the difference (from the plain forward passes), the sum of the tokens' parts and of what moved and
            jumped, error and tolerance.
        notes: what to know of the parts though they sum, such as a softmax that isn't recognised, as in `duat.secant`,
            or tokens that an alignment pairs with none.
        image: what was read, if it is an image.
    """

    family: str
    tokens: tuple[str, ...]
    target: TargetDescription
    value: float
    predictions: tuple[Prediction, ...]
    references: tuple[Compared, ...]
    flow: Float[np.ndarray, "rows tokens"]
    heads: Marked[Float[np.ndarray, "tokens heads"]]
    neurons: Marked[Float[np.ndarray, "tokens neurons"]]
    moved: Marked[float]
    discontinuities: dict[str, float]
    completeness: Completeness
    notes: tuple[str, ...] = ()
    image: SeenImage | None = None

    @property
    def difference(self) -> float:
        """The number on the input minus that on the reference, or minus the mean of those on the references."""
        return float(self.completeness.value)

    @property
    def leaves_out(self) -> bool:
        """Whether something held moved, or something jumped: rows before it don't have its part."""
        return any([*self.moved.values(), *self.discontinuities.values()])

    @property
    def rows(self) -> tuple[str, ...]:
        """The labels of the rows of the flow."""
        return ("embedding", *(f"layer {i}" for i in range(len(self.flow) - 1)))

    def top_neurons(self, count: int) -> list[Neuron]:
        """Return the neurons with the largest parts by size.

        Args:
            count: how many.
        """
        return [Neuron(*entry) for entry in largest_entries(self.neurons, count)]

    def top_heads(self, count: int) -> list[Head]:
        """Return the heads with the largest parts by size, each with the token that it carries them to.

        Args:
            count: how many.
        """
        return [Head(*entry) for entry in largest_entries(self.heads, count)]

    def part_sums(self) -> Mapping[str, Any]:
        """Return the sums of the parts that each completeness is about."""
        others = map(float, (*self.moved.values(), *self.discontinuities.values()))
        return {"completeness": self.flow[0].sum(dtype=np.float64) + sum(others)}

    def arrays(self) -> Iterator[NamedArray]:
        """Yield the parts with named axes.

        The sum of the first row of `flow` (`row` is `embedding`), `moved` and `discontinuities` is the difference.
        """
        token = of_tokens(self.tokens)
        yield whole("flow", self.flow, {"row": {"row": self.rows}, **token})
        yield from by_mark("heads", self.heads, token, "head")
        yield from by_mark("neurons", self.neurons, token, "neuron")
        yield from by_mark("moved", self.moved, {})
        yield from by_name("discontinuities", self.discontinuities)

    def as_dict(self, model: str = "", count: int = 10) -> dict[str, Any]:
        """Return everything but single neurons as plain data for JSON, with the fields of `ContrastRecord`.

        Args:
            model: name of the model.
            count: how many of the largest heads and neurons to list.
        """
        return as_record(
            ContrastRecord,
            self,
            model=model,
            dtype=self.completeness.dtype,
            flow=dict(zip(("embedding", *(f"layers.{i}" for i in range(len(self.flow) - 1))), self.flow, strict=True)),
            top_heads=self.top_heads(count),
            top_neurons=self.top_neurons(count),
        )

    def __repr__(self) -> str:
        return f"Contrast({self.target}: {self.difference:+.6g}, error {float(self.completeness.error):+.1e})"
