"""Explain numbers that a model computes: check what is asked, run the model, split each number, put it in words."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jaxtyping import Array, Float

from duat_jax.errors import DuatError
from duat_jax.forms import affine_form, decomposition
from duat_jax.forms.completeness import Completeness
from duat_jax.inputs import request as inputs
from duat_jax.inputs.batching import batches
from duat_jax.inputs.images import SeenImage
from duat_jax.inputs.labels import Words, most_probable, words_of
from duat_jax.inputs.request import Inputs
from duat_jax.interpret.double_precision import judged
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.pinned_target import fixed
from duat_jax.models.config import Image
from duat_jax.models.targets.base import ForwardPass, Reading, Target, forward
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_gated
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked, Step
from duat_jax.transform.marks import offset
from duat_jax.transform.recording import record_kinds

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ENTROPY = "entropy"
"""What the part of a log-probability is called that is minus the entropy of the model's distribution."""

_KINDS = tuple(dict.fromkeys((*decomposition.KINDS, *affine_form.KINDS, marks.STREAM)))


class _Parts(NamedTuple):
    embedding: Float[Array, "*batch tokens"]
    coefficients: Marked[Float[Array, "*batch tokens neurons"]]
    biases: Marked[Float[Array, "*batch"]]
    input_tokens: Float[Array, "*batch tokens"]
    input_bias: Float[Array, "*batch"]
    completeness: Completeness
    collapse_completeness: Completeness


def explain(
    model: Transformer,
    given: Any,
    target: Any = None,
    *,
    contrast: int | str | None = None,
    against: Any = None,
    position: int | None = None,
    carries: str | None = None,
    tokenizer: "Tokenizer | None" = None,
    sharding: NamedSharding | None = None,
) -> Any:
    """Explain numbers that a model computes, down to every neuron at every token.

    For a language model, the logit of `target` (minus that of `contrast`) at one position; for a classifier, that of a
    class; for an encoder, the cosine similarity of the mean-pooled embeddings of two texts, the norm held; or any other
    target. Texts of many lengths are padded to a few, and every length is compiled once.

    Args:
        model: a loaded model.
        given: token ids, `[tokens]`, or a `duat.Text` of several segments; for a vision model an image's pixels,
            `[channels, height, width]`; or a list of many, of any lengths.
        target: token id, or class by name or number, whose logit is explained, the most probable one if absent; or a
            target, such as `duat.LogProbability(7)`; or a list of many.
        contrast: the token id or class whose logit is subtracted.
        against: for an encoder, token ids of the other text, `[other_tokens]`.
        position: at which token the logit is read; negative counts from the end. If absent the last one, or for a
            masked language model the only mask.
        carries: what carries gated terms in the collapse, as in `duat.collapse`; the table is the same in each.
        tokenizer: makes tokens readable and knows the mask; without it tokens are shown as numbers.
        sharding: how the axis of texts is spread over devices, for example `NamedSharding(mesh, P("batch"))`; the model
            has to lie on the same devices.

    Returns:
        The `Explanation` with its completeness; it shows itself in a notebook, and `print` shows it in a terminal. Of
        many texts, a list with one for each; of many targets, in its place a list with one for each target.

    Raises:
        BadText: for token ids, pixels, a position or a combination of arguments that the model can't take.
        DuatError: for a sharding that the texts can't have, or other devices than the model's; if nothing is gated that
            could be carried so.

    Example:
        >>> import duat_jax as duat
        >>> model, tokenizer = duat.load(), duat.load_tokenizer()
        >>> ids = tokenizer.encode("for i in range(10").ids
        >>> duat.explain(model, ids, tokenizer.token_to_id("):"), tokenizer=tokenizer).completeness.verdict
        'holds'
        >>> [[e.completeness.verdict for e in row] for row in duat.explain(model, [ids, ids[:3]], [7, None])]
        [['holds', 'holds'], ['holds', 'holds']]

    Source: Wang & Li, Eq. 11; design of the table in the project's README.
    """
    question = inputs.check(model.config, given, target, contrast, against, position, tokenizer)
    require_gated(model.config, carries)
    if sharding is not None:
        _require_spread(model, sharding)
    words = [words_of(model.config, one, tokenizer) for one in question.inputs]
    streams = tuple(one.stream for one in question.targets[0])
    found: dict[int, list[Explanation]] = {}
    for batch in batches(question.inputs, model.config.positions, len(streams), sharding):
        asked = [question.targets[i] for i in batch.rows]
        passed = _run(model, batch.inputs, tuple(sorted({s for s in streams if s is not None})))
        readings = jax.device_get(_read(model, readers_of(model, asked), passed))
        asked_of = [reading for reading, _ in readings]
        parts, every = jax.device_get(_split(model, batch.inputs, asked_of, streams, carries))
        for row, i in enumerate(batch.indices):
            activations = _of_tokens(_at(every, row), len(words[i].names))
            found[i] = [
                _explanation(
                    model, question.inputs[i], words[i], one, _at(readings[k], row), _at(parts[k], row), activations
                )
                for k, one in enumerate(question.targets[i])
            ]
    answers = [found[i] if question.many_targets else found[i][0] for i in range(len(found))]
    return answers if question.many_inputs else answers[0]


def _require_spread(model: Transformer, sharding: NamedSharding) -> None:
    problems = []
    if len(sharding.spec) > 1:
        problems.append(f"{sharding.spec} spreads more than the axis of texts: give P(axis)")
    if any(axis is not AxisType.Auto for axis in sharding.mesh.axis_types):
        problems.append("the mesh has explicit axes: make it by jax.sharding.Mesh(devices, names)")
    if {device for leaf in jax.tree.leaves(model) for device in leaf.devices()} != sharding.device_set:
        problems.append(
            "the model lies on other devices than the texts: put it there, for example by"
            " duat.load(path, device=NamedSharding(mesh, P()))"
        )
    if problems:
        raise DuatError("; ".join(problems))


@partial(jax.jit, static_argnames="streams")
def _run(model: Transformer, batch: Inputs, streams: tuple[int, ...]) -> ForwardPass:
    """Return plain forward passes: a program of its own, which the parts are compared with."""
    return jax.vmap(lambda one: forward(model, one.given, one.real, streams, one.segments))(batch)


def readers_of(model: Transformer, asked: list[tuple[Target, ...]]) -> list[Any]:
    """Return what reads each target, over all texts of a batch.

    Args:
        model: the model.
        asked: of each text, its targets.
    """
    known: dict[bytes, tuple[Array, int]] = {}

    def states(given: np.ndarray) -> tuple[Array, int]:
        if (key := given.tobytes()) not in known:
            one = inputs.checked_input(model.config, given, "the other text", [])
            (alone,) = batches([one], model.config.positions, 1)
            known[key] = _run(model, alone.inputs, ()).states[0], len(one.real)
        return known[key]

    readers = [[one.reader(states) for one in targets] for targets in asked]
    return [jax.tree.map(lambda *leaves: np.stack(leaves), *same) for same in zip(*readers, strict=True)]


def say(model: Transformer, reader: Any, passed: ForwardPass) -> tuple[Reading, tuple[Array, Array] | None]:
    """Return a target on one text, and the most probable of what the model says there, if it says anything.

    Args:
        model: the model.
        reader: what reads the target.
        passed: the model's forward pass.
    """
    kind, place = model.config.head.kind, getattr(reader, "position", None)
    # One output is a number, not the probability of anything.
    if kind == "hidden" or model.config.head.outputs == 1 or (kind != "classes" and place is None):
        return reader.read(model, passed), None
    state = model.head.pooled(passed.states, passed.real) if kind == "classes" else passed.states[place]
    return reader.read(model, passed), most_probable(model.logits_at(state).values)


@jax.jit
def _read(
    model: Transformer, readers: list[Any], passed: ForwardPass
) -> list[tuple[Reading, tuple[Array, Array] | None]]:
    """Return every target on every text, and what the model says there."""
    return [jax.vmap(partial(say, model))(reader, passed) for reader in readers]


@partial(jax.jit, static_argnames=("streams", "carries"))
def _split(
    model: Transformer,
    batch: Inputs,
    readings: list[Reading],
    streams: tuple[int | None, ...],
    carries: str | None,
) -> tuple[list[_Parts], Marked[Float[Array, "texts tokens neurons"]]]:
    """Return the parts of every read-out of every text, from one recording of each, and every activation."""

    def split(one: Any, readings: list[Reading]) -> tuple[list[_Parts], Marked[Array]]:
        added = {} if model.head.bias is None else {"head.bias": [reading.constant for reading in readings]}
        if any(reading.entropy is not None for reading in readings):
            added[ENTROPY] = [
                jnp.zeros_like(reading.constant) if reading.entropy is None else -reading.entropy
                for reading in readings
            ]

        def read_from(x: Array) -> Any:
            """Return the states, and by name what is added to each read-out of them."""
            return model.states(x, one.real), {name: offset(jnp.stack(each), name) for name, each in added.items()}

        recording = record_kinds(read_from, model.embed(one.given, one.segments), _KINDS)

        def parts(readout: Any, target: Step | None) -> _Parts:
            found = decomposition.contributions(recording, readout, target=target)
            collapsed = affine_form.collapsed_contributions(recording, readout, target=target, carries=carries)
            return _Parts(
                found.input.sum(-1),
                found.coefficients,
                found.offsets,
                collapsed.input.sum(-1),
                collapsed.bias,
                found.completeness,
                collapsed.completeness,
            )

        result: list[Any] = [None] * len(streams)
        for stream in dict.fromkeys(streams):
            same = [k for k, other in enumerate(streams) if other == stream]
            target = None if stream is None else recording.streams[stream]
            ones = jnp.eye(len(streams), dtype=readings[0].constant.dtype)
            readouts = [
                (readings[k].readout, dict.fromkeys(added, ones[k])) if stream is None else readings[k].readout
                for k in same
            ]
            if len(same) == 1:  # mapping over one would be traced and compiled for nothing
                result[same[0]] = parts(readouts[0], target)
                continue
            stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *readouts)
            together = jax.vmap(partial(parts, target=target))(stacked)
            for row, k in enumerate(same):
                result[k] = _at(together, row)
        return result, recording.dynamics.activations

    return jax.vmap(split)(batch, readings)


def _at(tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _of_tokens(every: Marked[np.ndarray], tokens: int) -> Marked[np.ndarray]:
    """Return what belongs to a text without its padding, as copies, so that one explanation doesn't keep a batch."""
    return Marked({key: part[:tokens].copy() for key, part in every.items()})


def _explanation(
    model: Transformer,
    one: Inputs,
    words: Words,
    target: Target,
    said: tuple[Reading, tuple[np.ndarray, np.ndarray] | None],
    parts: Any,
    activations: Marked[np.ndarray],
) -> Explanation:
    reading, predicted = said
    tokens, image = len(words.names), model.config.image
    # The value is that of the plain forward pass.
    whole, collapsed = (beside(found, reading.value) for found in (parts.completeness, parts.collapse_completeness))
    number = partial(_number, one=one, target=target, reading=reading)
    return Explanation(
        family=model.config.family,
        tokens=words.names,
        target=target.label(reading, words),
        predictions=() if predicted is None else words.predictions(*predicted),
        embedding=parts.embedding[:tokens].copy(),
        coefficients=_of_tokens(parts.coefficients, tokens),
        activations=activations,
        biases=Marked(
            {
                key: float(part)
                for key, part in parts.biases.items()
                if key.name != ENTROPY or reading.entropy is not None
            }
        ),
        input_tokens=parts.input_tokens[:tokens].copy(),
        input_bias=float(parts.input_bias),
        completeness=judged(whole, model, number),
        collapse_completeness=judged(collapsed, model, number),
        image=None if image is None else seen(image, one.given),
    )


def _number(model: Transformer, one: Inputs, target: Target, reading: Reading) -> Float[Array, ""]:
    """Return a target on one text by another model, about the same output as in a reading."""
    (stacked,) = readers_of(model, [(target,)])
    return _value(model, fixed(_at(stacked, 0), reading), one, target.stream)


@partial(jax.jit, static_argnames="stream")
def _value(model: Transformer, reader: Any, one: Any, stream: int | None) -> Float[Array, ""]:
    streams = () if stream is None else (stream,)
    return reader.read(model, forward(model, one.given, one.real, streams, one.segments)).value


def seen(image: Image, pixels: Float[np.ndarray, "_ _ _"]) -> SeenImage:
    """Return the part of an image that whole patches cover.

    Args:
        image: what the model reads.
        pixels: the image, `[channels, height, width]`.
    """
    rows, columns = image.height // image.patch_height, image.width // image.patch_width
    return SeenImage(pixels[:, : rows * image.patch_height, : columns * image.patch_width], rows, columns)


def beside(completeness: Completeness, value: Any) -> Completeness:
    """Return how exactly parts sum to the value of a plain forward pass.

    Args:
        completeness: the same beside the value of the program that made the parts.
        value: that of the plain one.
    """
    return completeness._replace(value=value, error=completeness.sum - value)
