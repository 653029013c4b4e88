"""Contrast two inputs: split the difference of a target exactly over tokens, heads and neurons."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import names_of, notes_of, secant
from duat_jax.inputs.baselines import Reference, as_it_is, check_contrast
from duat_jax.inputs.batching import bucket, row, stack
from duat_jax.inputs.images import seen_image
from duat_jax.inputs.labels import labels_of
from duat_jax.inputs.model_inputs import OneInput
from duat_jax.interpret.contrast.result import Compared, Contrast
from duat_jax.interpret.pipeline import Predicted, certified, embedded, read, readers_of, require_finite
from duat_jax.models.targets.base import ForwardPass, OneTarget, Reader, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.nn.stack import Stack
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HEADS, NEURONS = "attention.mixed", "mlp.neurons"
"""The points at which heads and neurons are told from each other."""


class _Parts(NamedTuple):
    flow: Float[Array, "rows tokens"]
    heads: Marked[Float[Array, "tokens heads"]]
    neurons: Marked[Float[Array, "tokens neurons"]]
    moved: Marked[Float[Array, ""]]
    discontinuities: dict[str, Float[Array, ""]]
    completeness: Completeness
    unrecognised: dict[str, Float[Array, "..."]]


@renamed_arguments(given="inputs")
def contrast(
    model: Transformer,
    inputs: OneInput,
    other: OneInput | str | Sequence[OneInput | str],
    target: OneTarget = None,
    *,
    contrast: int | str | None = None,
    against: OneInput | None = None,
    position: int | None = None,
    alignment: Sequence[tuple[int, int]] | np.ndarray | None = None,
    held: bool | str | Iterable[str] = (),
    tokenizer: "Tokenizer | None" = None,
) -> Contrast:
    """Split the difference of a number between two inputs, `f(x) − f(y)`, exactly, at every layer of a model.

    Between two inputs every product is carried by its midpoint and every elementwise function by its secant. Carried
    back from the number, each value `m` on the way has the part `⟨D_m, m(x) − m(y)⟩`, and over every cut of the network
    the parts sum to the whole difference.

    Args:
        model: a loaded model.
        inputs: token ids, `[tokens]`, or a `duat.TokenizedText`; for a vision model an image's pixels.
        other: the same of another one, of as many tokens. Or a baseline: `"mask"`, `"pad"` or `"mean"` (the
            vocabulary's mean embedding) in every token's place but those that the tokenizer calls special; of an image
            `"blur"` or its `"mean"`. Or a list of several, over which everything is averaged.
        target: what is asked for, as in `duat.explain`; the most probable one of the given input if absent, on both.
        contrast: the token id or class whose logit is subtracted.
        against: for an encoder, what both inputs are compared with.
        position: at which token the logit is read; negative counts from the end.
        alignment: where texts differ in length, pairs of indices `(place, token)`: the other's token stands in that
            place of the text; a place without a pair keeps its own token, and has no part.
        held: names of holds, such as `"attention.pattern"`, or `True` for all: they are held at their midpoints, and
            how they moved is a part by name.
        tokenizer: makes tokens readable and knows masks, padding and special tokens.

    Returns:
        The `Contrast`; it shows itself in a notebook, and `print` shows it in a terminal.

    Raises:
        BadText: for inputs that the model can't take, of different lengths or the same, or a combination of arguments.
        NotFinite: if the number is NaN or infinite on one side.

    Example:
        >>> import duat_jax as duat
        >>> from flax import nnx
        >>> from duat_jax.models.config import Head
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> head = Head(kind="next token", outputs=11, tied=True)
        >>> config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
        >>> model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
        >>> found = duat.contrast(model, [5, 6, 7], [5, 9, 7], target=4)
        >>> found.target, found.flow.shape, found.completeness.verdict
        ("logit of '4' at token 2, '7'", (2, 3), 'holds')
    """
    names = names_of(held)
    request = check_contrast(model.config, inputs, other, target, contrast, against, position, alignment, tokenizer)
    references = (as_it_is(request.inputs), *request.others)
    labels = [labels_of(model.config, each.inputs, tokenizer) for each in references]
    (reader,) = readers_of(model, [request.target])
    length = bucket(len(request.inputs.real), model.config.positions)
    rows = stack(each.padded(length) for each in references)
    xs, reader, readings = _run(model, reader, rows, request.target.stream)
    read_out, predicted = jax.device_get(readings)
    numbers = read_out.value
    label = request.target.label(row(read_out, 0), labels[0])
    places = ("on what was given", *(f"on {name}" for name in request.names))
    remedy = "check the model's weights, or compute in a dtype of a wider range"
    require_finite(label, dict(zip(places, numbers.tolist(), strict=True)), remedy)

    def recompute(model: Transformer) -> Array:
        (reader,) = readers_of(model, [request.target])
        numbers = _run(model, reader.pinned(row(read_out, 0)), rows, request.target.stream)[2][0].value
        return numbers[0] - numbers[1:].mean()

    parts = jax.device_get(_split(model, reader, rows.inputs.real[0], xs, request.target.stream, names))
    says = [() if predicted is None else each.predictions(*row(predicted, i)) for i, each in enumerate(labels)]
    tokens, image = len(labels[0].names), model.config.image
    return Contrast(
        family=model.config.family,
        tokens=labels[0].names,
        target=label,
        value=float(numbers[0]),
        predictions=says[0],
        others=tuple(
            Compared(name, labels[i].names if text else (), float(numbers[i]), says[i])
            for i, (name, text) in enumerate(zip(request.names, request.texts, strict=True), 1)
        ),
        flow=parts.flow[:, :tokens],
        heads=Marked({key: part[:tokens] for key, part in parts.heads.items()}),
        neurons=Marked({key: part[:tokens] for key, part in parts.neurons.items()}),
        moved=Marked({key: float(part) for key, part in parts.moved.items()}),
        discontinuities={name: float(part) for name, part in parts.discontinuities.items()},
        # The difference is that of the plain forward passes.
        completeness=certified(parts.completeness.against(numbers[0] - numbers[1:].mean()), model, recompute),
        notes=notes_of(parts.unrecognised),
        image=None if image is None else seen_image(image, request.inputs.given),
    )


@partial(jax.jit, static_argnames="stream")
def _run(
    model: Transformer, reader: Reader, rows: Reference, stream: int | None
) -> tuple[Array, Any, tuple[Reading, Predicted]]:
    """Return the embeddings of each row, the pinned reader, and its reading and predictions in each row."""

    def plainly(reference: Reference) -> tuple[Array, ForwardPass]:
        x, real = embedded(model, reference), jnp.asarray(reference.inputs.real)
        streams = {} if stream is None else {stream: _stream(model, x, real, stream)}
        return x, ForwardPass(real, model.states(x, real), streams)

    xs, passed = jax.vmap(plainly)(rows)
    first, _ = read(model, reader, row(passed, 0))
    reader = reader.pinned(first)
    return xs, reader, jax.vmap(partial(read, model, reader))(passed)


def _stream(model: Transformer, x: Array, real: Bool[Array, "tokens"], layers: int) -> Float[Array, "tokens features"]:
    return Stack(model.stack.blocks[:layers])(model.first(x), real)


@partial(jax.jit, static_argnames=("stream", "held"))
def _split(
    model: Transformer,
    reader: Reader,
    real: Bool[Array, "tokens"],
    xs: Float[Array, "rows tokens features"],
    stream: int | None,
    held: bool | tuple[str, ...],
) -> _Parts:
    """Return the parts of the first row's number minus each other's, averaged over the others."""

    def number(x: Array) -> Array:
        if stream is None:
            passed = ForwardPass(real, model.states(x, real), {})
        else:
            passed = ForwardPass(real, x, {stream: _stream(model, x, real, stream)})
        return reader.read(model, passed).value

    def parts(y: Array) -> _Parts:
        difference = secant(number, at=(marks.STREAM, marks.POINT), held=held)(xs[0], y)
        streams, points = difference.contributions.streams, difference.contributions.points
        return _Parts(
            jnp.stack([part.sum(-1) for part in streams.values()]),
            Marked({key: part.sum(-1) for key, part in points.items() if key.name == HEADS}),
            Marked({key: part for key, part in points.items() if key.name == NEURONS}),
            Marked({key: part.sum() for key, part in difference.moved.items()}),
            difference.discontinuities,
            difference.completeness,
            difference.unrecognised,
        )

    found = jax.vmap(parts)(xs[1:])
    return jax.tree.map(lambda leaf: leaf.mean(0), found)._replace(unrecognised=found.unrecognised)
