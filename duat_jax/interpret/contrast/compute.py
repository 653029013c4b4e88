"""Contrast two inputs: why a model says this on the one and that on the other, down to tokens, heads and neurons."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from duat_jax.errors import NotFinite
from duat_jax.forms.completeness import Completeness
from duat_jax.forms.secant import names_of, notes_of, secant
from duat_jax.inputs.baselines import Other, as_it_is, check_contrast
from duat_jax.inputs.batching import bucket, padded
from duat_jax.inputs.labels import words_of
from duat_jax.interpret.contrast.result import Compared, Contrast
from duat_jax.interpret.double_precision import judged
from duat_jax.interpret.explain.compute import beside, readers_of, say, seen
from duat_jax.interpret.pinned_target import fixed
from duat_jax.models.embedding import TokenEmbedding
from duat_jax.models.targets.base import ForwardPass, Reading
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import alike
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
    jumps: dict[str, Float[Array, ""]]
    completeness: Completeness
    unrecognised: dict[str, Float[Array, "..."]]


def contrast(
    model: Transformer,
    given: Any,
    other: Any,
    target: Any = None,
    *,
    contrast: int | str | None = None,
    against: Any = None,
    position: int | None = None,
    alignment: Any = None,
    held: bool | str | Iterable[str] = (),
    tokenizer: "Tokenizer | None" = None,
) -> Contrast:
    """Split the difference of a number between two inputs, `f(x) − f(y)`, exactly, at every layer of a model.

    Between two inputs every product is carried by its midpoint and every elementwise function by its secant. Carried
    back from the number, each value `m` on the way has the part `⟨D_m, m(x) − m(y)⟩`, and over every cut of the network
    the parts sum to the whole difference.

    Args:
        model: a loaded model.
        given: token ids, `[tokens]`, or a `duat.Text`; for a vision model an image's pixels.
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
        >>> config = duat.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
        >>> model = duat.Transformer(config, rngs=nnx.Rngs(0))
        >>> found = duat.contrast(model, [5, 6, 7], [5, 9, 7], target=4)
        >>> found.target, found.flow.shape, found.completeness.verdict
        ("logit of '4' at token 2, '7'", (2, 3), 'holds')
    """
    names = names_of(held)
    asked = check_contrast(model.config, given, other, target, contrast, against, position, alignment, tokenizer)
    everything = (as_it_is(asked.given), *asked.others)
    words = [words_of(model.config, one.inputs, tokenizer) for one in everything]
    (stacked,) = readers_of(model, [(asked.target,)])
    reader = _at(stacked, 0)
    length = bucket(len(asked.given.real), model.config.positions)
    rows = jax.tree.map(lambda *same: np.stack(same), *(_padded(one, length) for one in everything))
    xs, reader, said = _run(model, reader, rows, asked.target.stream)
    readings, predicted = jax.device_get(said)
    numbers = readings.value
    label = asked.target.label(_at(readings, 0), words[0])
    _require_finite(label, numbers, asked.names)

    def difference(model: Transformer) -> Array:
        (stacked,) = readers_of(model, [(asked.target,)])
        own = fixed(_at(stacked, 0), _at(readings, 0))
        found = _run(model, own, rows, asked.target.stream)[2][0].value
        return found[0] - found[1:].mean()

    parts = jax.device_get(_split(model, reader, rows.inputs.real[0], xs, asked.target.stream, names))
    says = [() if predicted is None else one.predictions(*_at(predicted, i)) for i, one in enumerate(words)]
    tokens, image = len(words[0].names), model.config.image
    return Contrast(
        family=model.config.family,
        tokens=words[0].names,
        target=label,
        value=float(numbers[0]),
        predictions=says[0],
        others=tuple(
            Compared(name, words[i].names if text else (), float(numbers[i]), says[i])
            for i, (name, text) in enumerate(zip(asked.names, asked.texts, strict=True), 1)
        ),
        flow=parts.flow[:, :tokens],
        heads=Marked({key: part[:tokens] for key, part in parts.heads.items()}),
        neurons=Marked({key: part[:tokens] for key, part in parts.neurons.items()}),
        moved=Marked({key: float(part) for key, part in parts.moved.items()}),
        jumps={name: float(part) for name, part in parts.jumps.items()},
        # The difference is that of the plain forward passes.
        completeness=judged(beside(parts.completeness, numbers[0] - numbers[1:].mean()), model, difference),
        notes=notes_of(parts.unrecognised),
        image=None if image is None else seen(image, asked.given.given),
    )


def _at(tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _padded(one: Other, length: int) -> Other:
    return Other(padded(one.inputs, length), np.pad(one.averaged, (0, length - len(one.averaged))))


@partial(jax.jit, static_argnames="stream")
def _run(
    model: Transformer, reader: Any, rows: Other, stream: int | None
) -> tuple[Array, Any, tuple[Reading, tuple[Array, Array] | None]]:
    """Return embeddings, what reads the number in the first row and in all others, and what the model says in each."""

    def plainly(one: Other) -> tuple[Array, ForwardPass]:
        x, real = embedded(model, one), jnp.asarray(one.inputs.real)
        streams = {} if stream is None else {stream: _stream(model, x, real, stream)}
        return x, ForwardPass(real, model.states(x, real), streams)

    xs, passed = jax.vmap(plainly)(rows)
    first, _ = say(model, reader, _at(passed, 0))
    reader = fixed(reader, first)
    return xs, reader, jax.vmap(partial(say, model, reader))(passed)


def embedded(model: Transformer, one: Other) -> Float[Array, "tokens features"]:
    """Return the embeddings, the vocabulary's mean in the place of a token's own where it is averaged.

    Args:
        model: the model.
        one: what it reads.
    """
    x = model.embed(one.inputs.given, one.inputs.segments)
    if not isinstance(model.embedding, TokenEmbedding):
        return x
    table = alike(model.embedding.token[...], x)
    change = jnp.asarray(model.config.embedding_scale, x.dtype) * (table.mean(0) - table[one.inputs.given])
    return jnp.where(one.averaged[:, None], x + change, x)


def _stream(model: Transformer, x: Array, real: Bool[Array, "tokens"], layers: int) -> Float[Array, "tokens features"]:
    return Stack(model.stack.blocks[:layers])(model.first(x), real)


@partial(jax.jit, static_argnames=("stream", "held"))
def _split(
    model: Transformer,
    reader: Any,
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
        found = secant(number, at=(marks.STREAM, marks.POINT), held=held)(xs[0], y)
        streams, points = found.contributions.streams, found.contributions.points
        return _Parts(
            jnp.stack([part.sum(-1) for part in streams.values()]),
            Marked({key: part.sum(-1) for key, part in points.items() if key.name == HEADS}),
            Marked({key: part for key, part in points.items() if key.name == NEURONS}),
            Marked({key: part.sum() for key, part in found.moved.items()}),
            found.jumps,
            found.completeness,
            found.unrecognised,
        )

    found = jax.vmap(parts)(xs[1:])
    return jax.tree.map(lambda leaf: leaf.mean(0), found)._replace(unrecognised=found.unrecognised)


def _require_finite(label: str, numbers: Float[np.ndarray, "rows"], names: tuple[str, ...]) -> None:
    wrong = [
        f"{number} on {name}"
        for number, name in zip(numbers, ("what was given", *names), strict=True)
        if not np.isfinite(number)
    ]
    if wrong:
        raise NotFinite(
            f"the {label} is {', '.join(wrong)}: check the model's weights, or compute in a dtype of a wider range"
        )
