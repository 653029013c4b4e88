"""A fine-tuned model beside its base: the exact ledger of its loss, ranks, truncations, and what Eq. 18 leaves out."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import duat_jax as duat
from duat_jax.models.transformer import Transformer
from duat_jax.nn.mlp import ACTIVATIONS
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record_kinds
from experiments.lora.tuning import kernels_of, leaves_of, replaced, text_losses

KINDS = "query", "key", "value", "output", "input", "output of the MLP"
"""The matrices of a layer, in their order in a ledger."""
OTHERS = "biases", "norms", "embeddings"
RANKS = 1, 2, 4, 8, 16, 32, 64, 128
TOP, REST, SHRUNK, SCALED = "largest singular values", "the rest", "all of it, same norm", "all of it, same projection"
CUTS = TOP, REST, SHRUNK, SCALED
"""The kept part of a change: by rank; or the whole, times a factor by which it has the norm of the largest singular
values' part, or, on itself, the projection of that part."""


class Ledger(NamedTuple):
    """The change of every text's loss from the base to a tuned model, split over the weights by the secant.

    Args:
        difference: the change.
        matrices: the parts of the matrices of the blocks, `[texts, layers × kinds]`.
        others: those of all biases, all norms and all embeddings, `[texts, 3]`.
        heads: the parts of the matrices by head, `[texts, layers × heads]`.
        neurons: the parts of the matrices by neuron, `[texts, layers × neurons]`.
        error: the sum of all parts minus the change.
        holds: whether completeness holds.
    """

    difference: Float[Array, "texts"]
    matrices: Float[Array, "texts _"]
    others: Float[Array, "texts _"]
    heads: Float[Array, "texts _"]
    neurons: Float[Array, "texts _"]
    error: Float[Array, "texts"]
    holds: Any


@jax.jit
def ledger(
    base: Transformer, tuned: Transformer, ids: Int[Array, "texts tokens"], counted: Float[Array, "predicted"]
) -> Ledger:
    """Split the change of each text's loss by fine-tuning over the weights, exactly."""

    def of_text(text: Array) -> Ledger:
        split = duat.secant(lambda model: text_losses(model, text[None], counted)[0])(tuned, base)
        whole = split.completeness
        parts = by_unit(split.parts)
        return Ledger(split.difference, *parts, whole.error, jnp.abs(whole.error) <= whole.tolerance)

    return jax.lax.map(of_text, ids)


def by_unit(parts: Transformer) -> tuple[Array, Array, Array, Array]:
    """Sum the parts of all weights by matrix, by kind of the others, by head and by neuron."""
    matrices, heads, neurons = [], [], []
    blocks: Any = parts.stack.blocks
    for block in blocks:
        attention, mlp = block.attention, block.mlp
        inner = [getattr(attention, name).kernel[...] for name in ("query", "key", "value")]
        outer, into, out = attention.output.kernel[...], mlp.input.kernel[...], mlp.output.kernel[...]
        matrices += [kernel.sum() for kernel in (*inner, outer, into, out)]
        of_head = sum(kernel.reshape(len(kernel), attention.heads, -1).sum((0, 2)) for kernel in inner)
        heads.append(of_head + outer.reshape(attention.heads, -1).sum(1))
        neurons.append(into.sum(0) + out.sum(1))
    leaves = leaves_of(parts)
    rest = {path: leaf.sum() for path, leaf in leaves.items() if path not in kernels_of(parts)}
    norms = sum(part for path, part in rest.items() if "norm" in path)
    embeddings = sum(part for path, part in rest.items() if "embedding" in path)
    others = jnp.stack([sum(rest.values()) - norms - embeddings, norms, embeddings])
    return jnp.stack(matrices), others, jnp.concatenate(heads), jnp.concatenate(neurons)


def changes(base: Transformer, tuned: Transformer) -> dict[str, np.ndarray]:
    """Return how the matrices of the blocks changed, by path, layer after layer in the order of `KINDS`."""
    before, after = kernels_of(base), kernels_of(tuned)
    names = "attention.query", "attention.key", "attention.value", "attention.output", "mlp.input", "mlp.output"
    order = sorted(before, key=lambda path: (path.split(".")[2], [name in path for name in names].index(True)))
    return {path: np.asarray(after[path], float) - np.asarray(before[path], float) for path in order}


def effective_ranks(singular_values: Float[np.ndarray, "values"]) -> dict[str, float]:
    """Return three effective ranks of a matrix; zeros if it is zero."""
    squares = singular_values**2
    if squares.sum() == 0:
        return {"stable": 0.0, "entropy": 0.0, "energy": 0.0}
    share = squares / squares.sum()
    some = share[share > 0]
    return {
        "stable": float(squares.sum() / squares.max()),
        "entropy": float(np.exp(-(some * np.log(some)).sum())),
        "energy": float(np.searchsorted(np.cumsum(share), 0.9) + 1),
    }


def ranks_of(base: Transformer, tuned: Transformer) -> list[dict[str, float]]:
    """Return the effective ranks of the change of every matrix, with its size relative to the matrix."""
    before = kernels_of(base)
    return [
        {
            **effective_ranks(np.linalg.svd(change, compute_uv=False)),
            "size": float(np.linalg.norm(change) / np.linalg.norm(before[path])),
        }
        for path, change in changes(base, tuned).items()
    ]


def truncations(
    base: Transformer, tuned: Transformer, ids: Int[np.ndarray, "texts tokens"], counted: Array
) -> dict[str, dict[str, list[float]]]:
    """Return every text's loss with the changes of all matrices cut to a rank, by what is kept and by rank."""
    decomposed = {path: np.linalg.svd(change, full_matrices=False) for path, change in changes(base, tuned).items()}
    before = kernels_of(base)
    losses = {cut: dict[str, list[float]]() for cut in CUTS}
    for rank in RANKS:
        kept = {cut: dict[str, Array]() for cut in CUTS}
        for path, (left, values, right) in decomposed.items():
            top, whole = ((left[:, :r] * values[:r]) @ right[:r] for r in (rank, len(values)))
            share = np.linalg.norm(top) / np.linalg.norm(whole)
            for cut, change in zip(CUTS, (top, whole - top, share * whole, share**2 * whole), strict=True):
                kept[cut][path] = before[path] + jnp.asarray(change, before[path].dtype)
        for cut in CUTS:
            found = text_losses(replaced(base, kept[cut]), jnp.asarray(ids), counted)
            losses[cut][str(rank)] = np.asarray(found, float).round(5).tolist()
    return losses


class Ladder(NamedTuple):
    """Every text's loss with ever more of what fine-tuning moves.

    Args:
        base: of the base.
        printed: each layer's update in the places of Eq. 18: in `W'₂`, which reads the input, and in `W'₃`.
        own: each layer's update on what the layer reads in the base, so in its bias too.
        weights: the tuned weights with the base's dynamic parameters.
        dynamics: the base's weights with the tuned model's dynamic parameters.
        tuned: of the tuned model.
    """

    base: Float[Array, "texts"]
    printed: Float[Array, "texts"]
    own: Float[Array, "texts"]
    weights: Float[Array, "texts"]
    dynamics: Float[Array, "texts"]
    tuned: Float[Array, "texts"]


@jax.jit
def ladder(
    base: Transformer, tuned: Transformer, ids: Int[Array, "texts tokens"], counted: Float[Array, "predicted"]
) -> Ladder:
    """Return losses with ever more of what fine-tuning of the MLPs' matrices moves."""

    def of_text(text: Array) -> Ladder:
        x = base.embed(text[:-1])
        blocks: Any = base.stack.blocks
        tuned_blocks: Any = tuned.stack.blocks
        runs = {
            name: record_kinds(model.states, model.embed(text[:-1]), (marks.HOLD, marks.PRE_ACTIVATION))
            for name, model in (("base", base), ("tuned", tuned))
        }
        holds = {
            name: {
                site: Edit(jnp.zeros_like(run.seen[site]), run.seen[site]) for site in run.program.of_kind(marks.HOLD)
            }
            for name, run in runs.items()
        }
        run = runs["base"]
        activations, inner = (run.program.of_kind(kind) for kind in (marks.ACTIVATION, marks.PRE_ACTIVATION))
        before = [run.seen[site] for site in inner]

        def loss(model: Transformer, states: Array) -> Array:
            logs = jax.nn.log_softmax(model.head.logits(states, model.unembedding))
            losses = -jnp.take_along_axis(logs, text[1:, None], -1)[..., 0]
            return losses @ counted / counted.sum()

        def with_terms(pre_activations: list[Array]) -> Array:
            """Return the loss with these pre-activations, the tuned outer maps, and all else of the base."""
            edits = dict(holds["base"])
            for site, z, block in zip(activations, pre_activations, tuned_blocks, strict=True):
                edits[site] = Edit(jnp.zeros_like(z), ACTIVATIONS[block.mlp.activation](z))
            return loss(tuned, edit(tuned.states, edits)(x))

        def of_input(model: Transformer) -> list[Array]:
            """Return what the input alone brings to every pre-activation, `W'₂ x₀`, with the base's dynamics."""
            edits = dict(holds["base"])
            edits |= {site: Edit(jnp.zeros(())) for site in run.program.of_kind(marks.OFFSET)}
            edits |= {site: Edit(jnp.zeros(())) for site in activations}
            seen = record_kinds(edit(model.states, edits), x, (marks.PRE_ACTIVATION,)).seen
            return [seen[site] for site in inner]

        moved = zip(before, of_input(tuned), of_input(base), strict=True)
        own, stream = [], base.first(x)
        for block, changed in zip(blocks, tuned_blocks, strict=True):
            middle = stream + block.attention(block.norm_1(stream))
            own.append(changed.mlp.input(block.norm_2(middle)))
            stream = block(stream)
        return Ladder(
            base=loss(base, base.states(x)),
            printed=with_terms([z + (after - at) for z, after, at in moved]),
            own=with_terms(own),
            weights=loss(tuned, edit(tuned.states, holds["base"])(tuned.embed(text[:-1]))),
            dynamics=loss(base, edit(base.states, holds["tuned"])(x)),
            tuned=loss(tuned, tuned.states(tuned.embed(text[:-1]))),
        )

    return jax.lax.map(of_text, ids)


@jax.jit
def first_step(base: Transformer, ids: Int[Array, "texts tokens"], counted: Float[Array, "predicted"]) -> Any:
    """Return what Adam's first step changes to first order, `−Σ |∂loss/∂w|`, by matrix, head and neuron."""
    gradient = jax.grad(lambda model: text_losses(model, ids, counted).mean())(base)
    matrices, _, heads, neurons = by_unit(jax.tree.map(lambda leaf: -jnp.abs(leaf), gradient))
    return {"matrices": matrices, "heads": heads, "neurons": neurons}
