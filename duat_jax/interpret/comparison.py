"""Run a model on an input and on its references, and read one target on all of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from duat_jax.inputs.baselines import ContrastQuestion, Reference, as_it_is
from duat_jax.inputs.batching import bucket, row, stack
from duat_jax.inputs.labels import Prediction, labels_of
from duat_jax.interpret.pipeline import (
    Predicted,
    embedded,
    forward_from,
    forward_passes,
    read,
    readers_of,
    require_finite,
)
from duat_jax.kinds import kept_as
from duat_jax.models.converted import require_source_agrees
from duat_jax.models.targets.base import ForwardPass, Reader, Reading
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.transformer import Transformer
from duat_jax.processes import on_host
from duat_jax.transform.stored_program import stored_program


@kept_as("reference")
class Compared(NamedTuple):
    """One reference that an input is contrasted with.

    Args:
        name: what it is, in words.
        tokens: a text's tokens, readable; empty of a baseline and of an image.
        value: the number there, from the plain forward pass.
        predictions: what the model says there.
        unpaired: the places of a text that an alignment pairs with none of its tokens: there the input's own stand.
    """

    name: str
    tokens: tuple[str, ...]
    value: float
    predictions: tuple[Prediction, ...]
    unpaired: tuple[int, ...] = ()


class Comparison(NamedTuple):
    """A target on an input and on its references, from plain forward passes.

    Args:
        tokens: the input's tokens, readable.
        target: the target: in words, and by what it reads.
        value: its value on the input.
        predictions: what the model says on the input.
        references: what the input is contrasted with.
        difference: the value minus the mean of those on the references, `[]`.
        reader: reads the target, about the output that it found on the input.
        stream: the number of layers before the stream that it reads; `None` for the states of the read-out.
        real: true for real tokens, `[padded]`.
        embeddings: of the input and of each reference, `[1 + references, padded, features]`.
        recompute: computes the difference by a model.
    """

    tokens: tuple[str, ...]
    target: TargetDescription
    value: float
    predictions: tuple[Prediction, ...]
    references: tuple[Compared, ...]
    difference: Float[Any, ""]
    reader: Reader
    stream: int | None
    real: Shaped[Any, "padded"]
    embeddings: Float[Array, "rows padded features"]
    recompute: Callable[[Transformer], Array]


def compare_runs(model: Transformer, question: ContrastQuestion) -> Comparison:
    """Run a model on an input and on its references, padded to one length."""
    inputs, stream = (as_it_is(question.inputs), *question.others), question.target.stream
    labels = [labels_of(model.config, each.inputs, question.tokenizer) for each in inputs]
    length = bucket(len(question.inputs.real), model.config.positions)
    rows = stack(each.padded(length) for each in inputs)
    require_source_agrees(model, rows.inputs, lambda: forward_passes(model, rows.inputs).states)

    def run(model: Transformer, pinned: Reading | None) -> tuple[Array, Reader, tuple[Reading, Predicted]]:
        (reader,) = readers_of(model, [question.target])
        return _run(model, reader if pinned is None else reader.pinned(pinned), rows, stream)

    def difference(values: Any) -> Any:
        return values[0] - values[1:].mean() if len(values) > 1 else values[0]

    embeddings, reader, readings = run(model, None)
    read_out, predicted = on_host(readings)
    values = read_out.value
    target = question.target.describe(row(read_out, 0), labels[0])
    places = ("on what was given", *(f"on {name}" for name in question.names))
    remedy = "check the model's weights, or compute in a dtype of a wider range"
    require_finite(target.headline, dict(zip(places, values.tolist(), strict=True)), remedy)
    says = [() if predicted is None else each.predictions(*row(predicted, i)) for i, each in enumerate(labels)]
    references = tuple(
        Compared(name, labels[i].names if text else (), float(values[i]), says[i], unpaired)
        for i, (name, text, unpaired) in enumerate(
            zip(question.names, question.texts, question.unpaired, strict=True), 1
        )
    )
    return Comparison(
        tokens=labels[0].names,
        target=target,
        value=float(values[0]),
        predictions=says[0],
        references=references,
        difference=difference(values),
        reader=reader,
        stream=stream,
        real=rows.inputs.real[0],
        embeddings=embeddings,
        recompute=lambda model: difference(run(model, row(read_out, 0))[2][0].value),
    )


@partial(stored_program, static_argnames=("stream",))
def _run(
    model: Transformer, reader: Reader, rows: Reference, stream: int | None
) -> tuple[Array, Any, tuple[Reading, Predicted]]:
    """Return the embeddings of each row, the pinned reader, and its reading and predictions in each row."""

    def plainly(reference: Reference) -> tuple[Array, ForwardPass]:
        x, real = embedded(model, reference), jnp.asarray(reference.inputs.real)
        passed = forward_from(model, x, real, stream)
        # Predictions are read from the states of the read-out, whichever stream the target reads.
        return x, passed if stream is None else passed._replace(states=model.states(x, real))

    xs, passed = jax.vmap(plainly)(rows)
    first, _ = read(model, reader, row(passed, 0))
    reader = reader.pinned(first)
    return xs, reader, jax.vmap(partial(read, model, reader))(passed)
