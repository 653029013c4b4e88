"""Changes of the closed form's parameters with the prompt, and the effect of each source of change."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.forms.closed_form import unroll
from duat_jax.papers.networks import PromptNetwork
from duat_jax.papers.prompted import require_sequences
from duat_jax.papers.validation import refuse
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Site
from duat_jax.transform.recording import record_kinds


class DenseParameters(NamedTuple):
    """Parameters of the closed form at one input, as dense arrays: `x_L = P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`.

    Args:
        paths: `P_j` of every layer, matrices on `vec(x_0)`.
        inners: `B_j` of every term.
        outers: `C_j` of every term, carried to the last layer.
        biases: `q_j` of every layer, `[tokens, features]`.
        inner_biases: `c_j` of every term, `[tokens, neurons]`: the earlier terms are in it.
    """

    paths: list[Array]
    inners: list[Array]
    outers: list[Array]
    biases: list[Array]
    inner_biases: list[Array]


SYMBOLS = ("P{}", "B{}", "C{}", "q{}", "c{}")
"""The label of each kind, with its layer's number."""


def dense_parameters(fn: Callable[[Array], Array], x: Float[Array, "tokens features"]) -> DenseParameters:
    """Write out the parameters of a small network's closed form at one input.

    `x_L = P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`, by `duat.unroll`, each linear map as its matrix.

    Args:
        fn: a network from embeddings, with marks, and one term in each layer; such as `PromptNetwork.states`.
        x: the embeddings, `x_0`.

    Returns:
        The arrays of every layer. A matrix has `(tokens · features)²` entries.

    Raises:
        InvalidInput: if no term is marked.
        NotAffine: if another mark is missing.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> sizes = duat.papers.PromptSizes(kind="transformer", task="four functions", layers=2, features=4, neurons=3)
        >>> network = duat.papers.PromptNetwork(sizes)
        >>> found = duat.papers.dense_parameters(network.states, network.embed(jnp.ones(8), jnp.array(0)))
        >>> [path.shape for path in found.paths], found.inners[0].shape
        ([(36, 36), (36, 36)], (27, 36))

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Eq. 11.
    """
    form = unroll(fn, x)
    if not form.terms:
        refuse(["fn has no term with a mark: build it of duat.nn, or mark its activations"])
    layers = range(1, len(form.terms) + 1)
    return DenseParameters(
        [form.input_map(j).dense() for j in layers],
        [form.inner_map(j).dense() for j in layers],
        [form.outer_map(j, len(layers)).dense() for j in layers],
        [form.bias(j) for j in layers],
        [form.inner_bias(j) for j in layers],
    )


def held_values(network: Callable[[Array], Array], x: Float[Array, "tokens features"]) -> Seen:
    """Return the held parameters of one input, by the places of their marks."""
    recording = record_kinds(network, x, (marks.HOLD,))
    return {site: recording.seen[site] for site in recording.program.of_kind(marks.HOLD)}


def run_with(
    network: Callable[[Array], Array], x: Float[Array, "tokens features"], values: Mapping[Site, Array]
) -> Array:
    """Return a network's output with marked values replaced, and everything after them computed anew."""
    return edit(network, {site: Edit(kept=0, added=value) for site, value in values.items()})(x)


def embedded(network: PromptNetwork, sequence: Array) -> Array:
    """Return the embeddings of one sequence after every prompt, `[prompts, tokens, features]`."""
    return jax.vmap(network.embed, (None, 0))(sequence, jnp.arange(len(network.prompt[...])))


def _apart(first: Array, second: Array) -> Array:
    """Return `‖A − B‖ / √((‖A‖² + ‖B‖²) / 2)`, or zero if both are zero."""
    size = jnp.sqrt(((first**2).sum() + (second**2).sum()) / 2)
    return jnp.sqrt(((first - second) ** 2).sum()) / jnp.where(size == 0, 1, size)


def parameter_changes(
    network: PromptNetwork, sequences: Float[Array, "sequences numbers"]
) -> dict[str, Float[Array, "prompts prompts"]]:
    """Measure the relative difference of every parameter between two prompts before the same sequence.

    `‖A(p) − A(r)‖ / √((‖A(p)‖² + ‖A(r)‖²) / 2)`, the mean over sequences, where `A` is a parameter of the closed form.

    Args:
        network: one network.
        sequences: the sequences; a few are enough, as every matrix is written out.

    Returns:
        The difference between every two prompts, by parameter with the number of its layer: `"P1"`, …, `"B1"`, …,
        `"C1"`, … (carried to the last layer), and the biases `"q1"`, … of the stream and `"c1"`, … of the terms. It is
        exactly zero for a parameter that doesn't depend on the prompt.

    Raises:
        InvalidInput: if there are several networks or another object, or sequences don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="four functions", layers=2, features=4, neurons=3)
        >>> networks = duat.papers.train_prompted(sizes, jax.random.split(jax.random.key(0), 1), steps=1)
        >>> network = jax.tree.map(lambda leaf: leaf[0], networks)
        >>> changes = duat.papers.parameter_changes(network, duat.papers.draw_sequences(jax.random.key(1), 1))
        >>> [name for name, change in changes.items() if change.max() > 0]
        ['c2']

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Section 2.3 and Eq. 11.
    """
    _require_one(network, sequences)
    mean = _changes(network, sequences)
    return {
        symbol.format(j): change
        for symbol, of_layers in zip(SYMBOLS, mean, strict=True)
        for j, change in enumerate(of_layers, 1)
    }


@jax.jit
def _changes(network: PromptNetwork, sequences: Array) -> DenseParameters:
    def of_sequence(sequence: Array) -> DenseParameters:
        by_prompt = jax.vmap(partial(dense_parameters, network.states))(embedded(network, sequence))
        return jax.tree.map(lambda a: jax.vmap(jax.vmap(_apart, (None, 0)), (0, None))(a, a), by_prompt)

    return jax.tree.map(lambda change: change.mean(0), jax.lax.map(of_sequence, sequences))


def evaluated(
    network: PromptNetwork, x: Float[Array, "tokens features"], weights: DenseParameters, biases: DenseParameters
) -> Float[Array, "numbers"]:
    """Evaluate the closed form with the weights of one input and the term biases of another."""
    # `P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`, written out: `c_j` from `biases`, everything else from `weights`.
    flat = x.reshape(-1)
    state = weights.paths[-1] @ flat + weights.biases[-1].reshape(-1)
    for inner, outer, bias in zip(weights.inners, weights.outers, biases.inner_biases, strict=True):
        state = state + outer @ jax.nn.gelu(inner @ flat + bias.reshape(-1), approximate=False)
    return network.read(state.reshape(x.shape))


CORNERS = tuple(product((False, True), repeat=3))
"""Every choice of input, weights and biases that come from the prompt itself; the rest comes from another prompt."""

SOURCES = {
    corner: " + ".join(name for name, own in zip(("input", "weights", "biases"), corner, strict=True) if own)
    or "nothing"
    for corner in CORNERS
}
"""The names of what comes from the prompt itself."""

PATTERNS, BIASES = "run again, patterns of another", "run again, biases of another"
"""The names of what is run again."""


def exchange_sources(
    network: PromptNetwork, sequences: Float[Array, "sequences numbers"]
) -> dict[str, Float[Array, "sequences prompts prompts numbers"]]:
    """Exchange the sources of difference between two prompts, one by one.

    Outputs after a prompt `p` differ from those after `r` by the prompt's own embedding in `x_0`, by the weights (`P`,
    `B`, `C` and `q`), and by the terms' biases `c` of `x_L = P_L x_0 + q_L + Σ_j C_j σ(B_j x_0 + c_j)`. Here each of
    the three comes from either.

    Args:
        network: one network.
        sequences: the sequences; a few are enough, as every matrix is written out.

    Returns:
        Outputs for every two prompts `p` and `r`, by what comes from `p`: `"nothing"`, `"biases"`, `"weights"`, …,
        `"input + weights + biases"`, with the rest held at its value after `r`. In `"run again, patterns of another"`
        the model runs after `p` with the attention patterns of `r`, and in `"run again, biases of another"` with
        patterns computed anew and each `c_j` that of `r`.

    Raises:
        InvalidInput: if there are several networks or another object, or sequences don't have eight numbers.

    Example:
        >>> import duat_jax as duat, jax
        >>> sizes = duat.papers.PromptSizes(kind="perceptron", task="four functions", layers=1, features=4, neurons=3)
        >>> networks = duat.papers.train_prompted(sizes, jax.random.split(jax.random.key(0), 1), steps=1)
        >>> network = jax.tree.map(lambda leaf: leaf[0], networks)
        >>> sequences = duat.papers.draw_sequences(jax.random.key(1), 2)
        >>> outputs = duat.papers.prompted_outputs(network, sequences)
        >>> exchanged = duat.papers.exchange_sources(network, sequences)
        >>> round(float(duat.papers.relative_position(exchanged["input"], outputs)), 3)
        1.0

    Source: Wang & Li, "Dynamic Universal Approximation Theory", Section 2.3: parameters that the input moves.
    """
    _require_one(network, sequences)
    corners, patterns, biases = _exchanged(network, sequences)
    return {**dict(zip(SOURCES.values(), corners, strict=True)), PATTERNS: patterns, BIASES: biases}


@jax.jit
def _exchanged(network: PromptNetwork, sequences: Array) -> tuple[Array, Array, Array]:
    def of_pair(x: Array, own: DenseParameters, y: Array, other: DenseParameters) -> tuple[Array, Array, Array]:
        corners = [evaluated(network, x if i else y, own if w else other, own if b else other) for i, w, b in CORNERS]
        recording = record_kinds(network.states, x, (marks.PRE_ACTIVATION,))
        terms = {
            site: (inner @ x.reshape(-1) + bias.reshape(-1)).reshape(recording.seen[site].shape)
            for site, inner, bias in zip(
                recording.program.of_kind(marks.PRE_ACTIVATION), own.inners, other.inner_biases, strict=True
            )
        }
        with_patterns = run_with(network.states, x, held_values(network.states, y))
        return jnp.stack(corners), with_patterns, run_with(network.states, x, terms)

    def of_sequence(sequence: Array) -> tuple[Array, Array, Array]:
        x = embedded(network, sequence)
        by_prompt = jax.vmap(partial(dense_parameters, network.states))(x)
        over_others = jax.vmap(of_pair, (None, None, 0, 0))
        return jax.vmap(over_others, (0, 0, None, None))(x, by_prompt, x, by_prompt)

    corners, patterns, biases = jax.lax.map(of_sequence, sequences)
    return jnp.moveaxis(corners, 3, 0), patterns, biases


def relative_position(
    exchanged: Float[Array, "sequences p r numbers"], outputs: Float[Array, "prompts sequences numbers"]
) -> Float[Array, ""]:
    """Measure the position of outputs between those after the other prompt (0) and after the own prompt (1).

    `Σ ⟨y − y_r, y_p − y_r⟩ / Σ ‖y_p − y_r‖²` over sequences and all pairs of prompts.

    Args:
        exchanged: outputs `y` for every two prompts, as `exchange_sources` returns them by source.
        outputs: the outputs after each prompt, as `prompted_outputs` returns them of one network.

    Returns:
        The position: 0 where every output is `y_r`, 1 where it is `y_p`.

    Raises:
        InvalidInput: if the shapes don't belong together.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> outputs = jnp.arange(8.0).reshape(4, 1, 2)
        >>> own = jnp.broadcast_to(outputs[:, 0][None, :, None], (1, 4, 4, 2))
        >>> float(duat.papers.relative_position(own, outputs))
        1.0
    """
    of_pairs = (outputs.shape[1:2] + 2 * outputs.shape[:1] + outputs.shape[2:]) if outputs.ndim == 3 else None
    if exchanged.shape != of_pairs:
        refuse(
            [
                f"exchanged has the shape {exchanged.shape} and outputs {outputs.shape}: give [sequences, prompts,"
                " prompts, numbers] and [prompts, sequences, numbers] of one network and the same sequences"
            ]
        )
    after = outputs.swapaxes(0, 1)
    own, other = after[:, :, None], after[:, None]
    return ((exchanged - other) * (own - other)).sum((-4, -3, -2, -1)) / ((own - other) ** 2).sum()


def _require_one(network: Any, sequences: Array) -> None:
    """Raise for several networks, and unless there are sequences of eight numbers."""
    require_sequences(sequences, network)
    if network.prompt[...].ndim != 2:
        refuse(["there are several networks: give one, jax.tree.map(lambda leaf: leaf[0], networks)"])
