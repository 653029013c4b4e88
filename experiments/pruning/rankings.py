"""Rankings of layers: by their parameters, by what they do on calibration text, and by what their removal costs."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import duat_jax as duat
from duat_jax.forms.coefficients import coefficients
from duat_jax.models import layer_parts, sites
from duat_jax.models.transformer import Transformer
from duat_jax.nn.block import Block, Part
from duat_jax.nn.stack import Stack
from duat_jax.pruning.calibration import losses as cross_entropy
from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Key, Site
from duat_jax.transform.query import pre_activations_of
from duat_jax.transform.recording import KINDS, Recording, record_kinds

BATCH = 4
"""Windows that are read at once."""

ATTENTION, MLP = 0, 1
KINDS_OF_REMOVAL = {"layers": (ATTENTION, MLP), "MLPs": (MLP,)}
"""The parts that are removed: a layer's attention and MLP, so that it is the identity, or its MLP alone."""

EVERY = 16
"""The distance between positions whose most probable token is read for contributions."""
PROBES = 4
"""Vectors of random signs for each window, by which a norm is estimated."""
STEP = 0.75
"""The scale of all outputs at the other end of the short secant: as much goes as with a quarter of the layers."""

Wrapper = Callable[[int, int, Array], Array]
"""From a layer, `ATTENTION` or `MLP`, and that part's output to another output."""


def _wrapped(model: Transformer, wrap: Wrapper) -> Transformer:
    """Return a model whose attentions and MLPs are followed by a function of their output."""

    def part(layer: int, which: int, of: Part) -> Part:
        return lambda x, *mask: wrap(layer, which, of(x, *mask))

    def block(layer: int, of: Block) -> Block:
        if of.arrangement != "pre-norm" or of.attention_norm or of.mlp_norm or of.scale != 1:
            raise duat.DuatError("what a layer adds isn't the sum of its parts' outputs: give a plain pre-norm model")
        attention, mlp = part(layer, ATTENTION, of.attention), part(layer, MLP, of.mlp)
        return Block(of.arrangement, attention=attention, mlp=mlp, norm_1=of.norm_1, norm_2=of.norm_2)

    copy = layer_parts.written_out(model)
    copy.stack = Stack(block(layer, of) for layer, of in enumerate(layer_parts.blocks(copy)))
    return copy


def losses(
    model: Transformer,
    scales: Float[Array, "layers parts"],
    added: Float[Array, "layers parts features"],
    ids: Int[Array, "windows tokens"],
) -> Float[Array, "windows"]:
    """Return the mean loss of every window, with the output `y` of each attention and MLP replaced by `s y + b`."""
    rescaled = _wrapped(model, lambda layer, which, y: scales[layer, which] * y + added[layer, which])
    return cross_entropy(rescaled(ids[:, :-1]), ids[:, 1:]).mean(-1)


_losses = jax.jit(losses)


@jax.jit
def streams(model: Transformer, ids: Int[Array, "windows tokens"]) -> Float[Array, "steps windows tokens features"]:
    """Return the residual stream before the first layer and after every attention and every MLP."""
    outputs: list[Array] = []

    def kept(layer: int, which: int, y: Array) -> Array:
        outputs.append(y)
        return y

    x = model.embed(ids)
    _wrapped(model, kept).stream(x, model.config.layers)
    return jnp.cumsum(jnp.stack([model.first(x), *outputs]), 0)


def _angles(before: Array, after: Array) -> Array:
    """Return the cosine between two streams, `[..., windows, tokens]`."""
    lengths = [jnp.linalg.norm(x, axis=-1) for x in (before, after)]
    return jnp.clip((before * after).sum(-1) / (lengths[0] * lengths[1]), -1, 1)


def block_influence(x: Float[Array, "steps windows tokens features"], kind: str) -> Float[Array, "layers"]:
    """Return the mean of `1 − cos` between the stream before and after what would be removed of every layer."""
    return (1 - _angles(x[:-1:2] if kind == "layers" else x[1::2], x[2::2])).mean((1, 2))


def angular_distance(x: Float[Array, "steps windows tokens features"], count: int) -> Float[Array, "starts"]:
    """Return the mean angle, in half turns, between the stream before and after every `count` neighbouring layers."""
    return (jnp.arccos(_angles(x[: -2 * count : 2], x[2 * count :: 2])) / jnp.pi).mean((1, 2))


def size(model: Transformer, kind: str) -> Float[np.ndarray, "layers"]:
    """Return `‖W‖`: the Frobenius norm of all matrices of every layer, or of its MLP."""

    def squares(part: Part) -> float:
        return sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(part) if leaf.ndim == 2)

    parts = [(block.attention, block.mlp) for block in layer_parts.blocks(model)]
    return np.sqrt([sum(squares(of[which]) for which in KINDS_OF_REMOVAL[kind]) for of in parts])


def _signs(key: Array, like: Array) -> list[Array]:
    return [jax.random.rademacher(part, like.shape, like.dtype) for part in jax.random.split(key, PROBES)]


def operator_squares(model: Transformer, ids: Int[Array, "windows tokens"], key: Array) -> dict[str, Array]:
    """Return `‖W'_{j,2}‖²` and `‖W'_{j,3}‖²` of every layer's term (Eq. 11)."""
    # Squared Frobenius norms of the matrices from all embeddings of a window to all pre-activations of layer `j`, and
    # from all its activations to all of the last stream, means over windows; estimated by `‖A‖² = E ‖A r‖² = E ‖Aᵀ r‖²`
    # with random signs `r`.
    layers = model.config.layers
    recording = record_kinds(lambda x: model.stream(x, layers), model.embed(ids), KINDS)
    before, after = (
        [Site(kind, Key((f"layers.{layer}",), "mlp", 0)) for layer in range(layers)]
        for kind in (marks.PRE_ACTIVATION, marks.ACTIVATION)
    )

    def squares(every: list[Site], of_probes: Iterable[Seen]) -> Array:
        found = [jnp.stack([(seen[site] ** 2).sum() for site in every]) for seen in of_probes]
        return jnp.stack(found).mean(0) / len(ids)

    return {
        "‖W'2‖": squares(before, (_carried(recording, signs) for signs in _signs(key, recording.arguments[0]))),
        "‖W'3‖": squares(after, (coefficients(recording, after, signs) for signs in _signs(key, recording.value))),
    }


@jax.jit
def _carried(recording: Recording, change: Array) -> Seen:
    """Carry a change of the input to every pre-activation, everything held."""
    return jax.jvp(lambda x: pre_activations_of(recording, [x], {}), (jnp.zeros_like(change),), (change,))[1]


def contributions(
    model: Transformer, ids: Int[Array, "windows tokens"], x: Float[Array, "steps windows tokens features"]
) -> dict[str, Float[Array, "layers"]]:
    """Return the mean size of each layer's contribution to the most probable token's logit, by what is removed."""
    # With every parameter held, `⟨u_i, x_i − x_{i−1}⟩` summed over the tokens of a window: of a whole layer; or of its
    # MLP alone, from the stream before it. Read at every `EVERY`-th position.
    every = sites.streams(model.config.layers)[1:]
    recording = record_kinds(model.output, model.embed(ids), KINDS)
    best = jax.nn.one_hot(recording.value.argmax(-1), recording.value.shape[-1], dtype=x.dtype)

    def covectors(position: int) -> Array:
        read_here = (jnp.arange(ids.shape[1]) == position)[:, None]
        by_site = coefficients(recording, every, jnp.where(read_here, best, 0))
        return jnp.stack([by_site[site] for site in every])

    def sizes(y: Array) -> Array:
        return jnp.stack([jnp.abs((u * y).sum((2, 3))).mean(1) for u in read]).mean(0)

    read = [covectors(position) for position in range(EVERY - 1, ids.shape[1], EVERY)]
    return {"layers": sizes(x[2::2] - x[:-1:2]), "MLPs": sizes(x[2::2] - x[1::2])}


def secant_of_removal(
    model: Transformer, ids: Int[Array, "windows tokens"], kind: str, end: float
) -> Float[Array, "layers"]:
    """Return every layer's part of the loss that is added when all outputs are scaled together, exact in sum."""
    # The secant of the loss as a function of the scales of all layers' outputs, between 1 and `end`.
    layers, features = model.config.layers, model.config.features
    scaled = jnp.zeros(2).at[jnp.array(KINDS_OF_REMOVAL[kind])].set(1)
    nothing = jnp.zeros((layers, 2, features))

    def loss(scale: Array) -> Array:
        return losses(model, 1 - scaled * (1 - scale[:, None]), nothing, ids).mean()

    return duat.secant(loss)(jnp.full(layers, end), jnp.ones(layers)).parts


def by_removal(
    model: Transformer,
    ids: Int[np.ndarray, "windows tokens"],
    kind: str,
    removed: Iterable[int],
    mean: np.ndarray | None,
) -> Float[np.ndarray, "windows"]:
    """Return the mean loss of every window without some layers."""
    layers, features = model.config.layers, model.config.features
    scales = jnp.ones((layers, 2)).at[np.ix_(list(removed), KINDS_OF_REMOVAL[kind])].set(0)
    added = jnp.zeros((layers, 2, features)) if mean is None else (1 - scales)[..., None] * mean
    return np.concatenate([_losses(model, scales, added, batch) for batch in batches(ids)])


def batches(ids: Int[np.ndarray, "windows tokens"]) -> list[Int[Array, "batch tokens"]]:
    """Return windows by fours, so that one compiled program reads all."""
    return [jnp.asarray(part) for part in np.split(ids, len(ids) // BATCH)]


def mean_outputs(
    model: Transformer, ids: Int[np.ndarray, "windows tokens"]
) -> Float[np.ndarray, "layers parts features"]:
    """Return the mean output of every attention and MLP over all tokens."""
    means = [jnp.diff(streams(model, batch[:, :-1]), axis=0).mean((1, 2)) for batch in batches(ids)]
    return np.mean(means, 0).reshape(model.config.layers, 2, -1)
