"""The symbolic form, the numeric closed form and the plain forward pass of one network, side by side."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from duat_jax.closed_form import ClosedForm, unroll
from duat_jax.errors import DuatError
from duat_jax.matrix_vector import vec
from duat_jax.models.loader import load
from duat_jax.nn import ACTIVATIONS, BLOCKS, Stack
from duat_jax.recursion import Unrolled, unroll_terms
from duat_jax.residual import ResidualTerm, residual_terms
from symbolic import stack as symbols
from symbolic.bridge import name_of, to_jax
from symbolic.normal_form import Normaliser

Module = TypeVar("Module")

EMBEDDED = Path(__file__).parent / "models" / "embedded"
_TOKENS = 3
_LARGEST = 8e9  # bytes of dense matrices above which the check is refused


class Difference(NamedTuple):
    """How far the symbolic form is from one other route to the same numbers.

    Args:
        route: the other route.
        largest: the absolute difference that is largest beside its tolerance, over all parts and layers.
        tolerance: what rounding may do there, `8 · eps · (layers + 2) · Σ|parts|`.
        share: the one divided by the other.
    """

    route: str
    largest: float
    tolerance: float
    share: float

    @property
    def holds(self) -> bool:
        """Whether every difference is within its tolerance."""
        return self.share <= 1  # which is False where something isn't a number


class Verification(NamedTuple):
    """What became of one network.

    Args:
        name: the block type, or the model.
        depth: number of layers.
        differences: one for each other route.
    """

    name: str
    depth: int
    differences: tuple[Difference, ...]

    @property
    def holds(self) -> bool:
        """Whether all routes agree."""
        return all(difference.holds for difference in self.differences)


def parameters(terms: list[ResidualTerm], x0: Float[Array, "entries"]) -> dict[str, Array]:
    """Return the arrays of Eq. 20's symbols, by the names that the symbolic layer gives them.

    Args:
        terms: the residual term of every layer.
        x0: `vec(x_0)`.
    """
    s = symbols.Stack()
    arrays = {name_of(s.x(0)): x0}
    for k, term in enumerate(terms, 1):
        arrays |= {
            name_of(s.W(k, 1)): term.path.matrix,
            name_of(s.b(k, 3)): term.path.offset,
            name_of(s.W(k, 2)): term.inner.matrix,
            name_of(s.b(k, 2)): term.inner.offset,
            name_of(s.W(k, 3)): term.outer,
        }
    return arrays


def _symbolic(depth: int, arrays: dict[str, Array], activation: str) -> dict[str, Array]:
    """Return every part of the derived form as a vector: `x_i` from Eq. 20 alone, its parts from the recursions."""
    s = symbols.Stack()
    network, recursions = Normaliser([s.equation_20]), Normaliser(s.recursions)
    wanted = {f"x/{i}": network.form(s.x(i)) for i in range(1, depth + 1)}
    for i in range(1, depth + 1):
        wanted[f"q/{i}"] = recursions.form(s.q(i))
        wanted[f"P x/{i}"] = recursions.form(s.P(i) * s.x(0))
        wanted[f"UAT/{i}"] = recursions.form(s.UAT(i))
        wanted[f"B x/{i}"] = recursions.form(s.B(i) * s.x(0))
        wanted[f"c/{i}"] = recursions.form(s.c(i))
        wanted[f"C s/{i}"] = recursions.form(s.C(i, depth) * s.activation(i))
    return to_jax({name: form.expression() for name, form in wanted.items()}, ACTIVATIONS[activation])(arrays)


def _forward(form: ClosedForm, stack: Stack, x: Array) -> dict[str, Array]:
    """Return the residual stream of the plain pass: every block run by itself, and the last one by the whole stack."""
    streams = {f"x/{i}": vec(x_i) for i, x_i in enumerate(form.dynamics.streams.values()) if i}
    return streams | {f"x/{len(stack.blocks)}": vec(jax.jit(lambda x: stack(x))(x))}


def _recorded(form: ClosedForm, depth: int) -> dict[str, Array]:
    """Return the parts of the closed form as record and replay give them."""
    activations = form.dynamics.activations
    found: dict[str, Array] = {}
    for i in range(1, depth + 1):
        site, index = form.terms[i - 1]
        found |= {
            f"q/{i}": vec(form.bias(i)),
            f"P x/{i}": vec(form.input_map(i)(form.x0)),
            f"UAT/{i}": vec(form.term_sum(i)),
            f"B x/{i}": vec(form.inner_map(i - 1)(form.x0)),
            f"c/{i}": vec(form.inner_bias(i - 1)),
            f"C s/{i}": vec(form.outer_map(i - 1, depth)(activations[site.key][index])),
        }
    return found


def _recursive(forms: list[Unrolled], x0: Array) -> dict[str, Array]:
    """Return the parts of the closed form as the dense recursions give them."""
    found: dict[str, Array] = {}
    for i, form in enumerate(forms[1:], 1):
        born = form.terms[-1]
        last = forms[-1].terms[i - 1]
        found |= {
            f"q/{i}": form.bias,
            f"P x/{i}": form.input @ x0,
            f"UAT/{i}": form.term_sum(),
            f"B x/{i}": born.inner @ x0,
            f"c/{i}": born.inner_bias,
            f"C s/{i}": last.outer @ last.activation,
            f"x/{i}": form.evaluate(x0),
        }
    return found


def _sizes(forms: list[Unrolled], terms: list[ResidualTerm], x0: Array) -> dict[str, float]:
    """Return `Σ|parts|` at its largest entry: `|P| |x_0| + |q| + Σ |C_j| |σ(·)|`, times `|W'_{j,2}|` inside a term."""
    found: dict[str, float] = {}
    for i, form in enumerate(forms[1:], 1):
        before, inner = forms[i - 1], terms[i - 1].inner
        carried = sum(jnp.abs(t.outer) @ jnp.abs(t.activation) for t in form.terms)
        stream = jnp.abs(form.input) @ jnp.abs(x0) + jnp.abs(form.bias) + carried
        earlier = sum((jnp.abs(t.outer) @ jnp.abs(t.activation) for t in before.terms), jnp.abs(before.bias))
        whole = jnp.abs(inner.matrix) @ (jnp.abs(before.input) @ jnp.abs(x0) + earlier) + jnp.abs(inner.offset)
        sizes = {"x": stream, "P x": stream, "q": stream, "UAT": stream, "B x": whole, "c": whole}
        found |= {f"{part}/{i}": float(size.max()) for part, size in sizes.items()}
    output = found[f"x/{len(terms)}"]
    return found | {f"C s/{i}": output for i in range(1, len(forms))}


def _difference(
    route: str, symbolic: dict[str, Array], other: dict[str, Array], sizes: dict[str, float], depth: int
) -> Difference:
    rule = 8 * float(np.finfo(symbolic[f"x/{depth}"].dtype).eps) * (depth + 2)
    errors = np.array([float(jnp.abs(symbolic[name] - value).max()) for name, value in other.items()])
    bounds = rule * np.array([sizes[name] for name in other])
    shares = np.where(errors == 0, 0, errors / np.where(bounds == 0, np.nan, bounds))
    worst = int(np.argmax(shares))  # the first that isn't a number, if there is one
    return Difference(route, float(errors[worst]), float(bounds[worst]), float(shares[worst]))


def _first(stack: Stack) -> Any:
    return stack.blocks[0]


def _check_size(stack: Stack, x: Array) -> None:
    tokens, features = x.shape
    neurons = _first(stack).mlp.input.kernel.shape[1]
    layers, width, hidden = len(stack.blocks), tokens * features, tokens * neurons
    # W'_{i,1}, P_i, W'_{i,2}, W'_{i,3} and B_i of every layer, and every C_j^{(i)}.
    entries = layers * width * (2 * width + 3 * hidden) + layers * (layers + 1) // 2 * width * hidden
    if (needed := entries * x.dtype.itemsize) > _LARGEST:
        raise DuatError(
            f"{layers} layers of {features} features, {neurons} neurons and {tokens} tokens are"
            f" {needed / 1e9:.0f} GB of dense matrices, and the limit is {_LARGEST / 1e9:.0f} GB: give fewer tokens"
        )


def verify(stack: Stack, x: Float[Array, "tokens features"], name: str) -> Verification:
    """Evaluate the symbolic form with a network's own parameters, and compare it with every other route.

    The parameters are the blocks' weights and their held dynamics as dense matrices. Compared are the residual stream
    of every layer with the plain forward pass, and every part of the form (`P_i x_0`, `q_i`, `UAT^R_i`, `B_j x_0`,
    `c_j` and `C_j σ(·)`) with the closed form that record and replay give, and with the dense recursions.

    Args:
        stack: the blocks.
        x: the residual stream that enters them, `[tokens, features]`.
        name: what to call it.

    Raises:
        DuatError: if the dense matrices would be too large.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from flax import nnx
        >>> from duat_jax.nn import Stack
        >>> stack = Stack("parallel", layers=2, features=4, heads=2, neurons=8, rngs=nnx.Rngs(0))
        >>> verify(stack, jax.random.normal(jax.random.key(1), (3, 4)), "parallel").holds
        True

    Source: Wang & Li, Eq. 20–34.
    """
    _check_size(stack, x)
    depth, activation = len(stack.blocks), _first(stack).mlp.activation
    form = unroll(stack, x)
    terms = residual_terms(stack, form.dynamics)
    forms = unroll_terms(terms, ACTIVATIONS[activation], vec(x))
    symbolic = _symbolic(depth, parameters(terms, vec(x)), activation)
    sizes = _sizes(forms, terms, vec(x))
    routes: Iterable[tuple[str, dict[str, Array]]] = (
        ("forward pass", _forward(form, stack, x)),
        ("closed form by record and replay", _recorded(form, depth)),
        ("closed form by the recursions", _recursive(forms, vec(x))),
    )
    return Verification(
        name, depth, tuple(_difference(route, symbolic, other, sizes, depth) for route, other in routes)
    )


def random_stack(block: str, depth: int, key: int = 0) -> Stack:
    """Return a small stack whose every parameter is random, biases and norms too.

    Args:
        block: a name in `duat_jax.nn.BLOCKS`.
        depth: number of layers.
        key: seed.

    Raises:
        DuatError: if there is no such block.
        SymbolicError: if the depth isn't a positive integer.
    """
    if block not in BLOCKS:
        raise DuatError(f"there is no block {block!r} to run: choose one of {', '.join(BLOCKS)}")
    stack = Stack(
        block,
        layers=symbols.check_depth(depth),
        features=6,
        heads=2,
        neurons=10,
        dtype=jnp.float64,
        rngs=nnx.Rngs(key),
    )
    return randomised(stack, key)


def randomised(module: Module, key: int = 0, scale: float = 0.3) -> Module:
    """Return a module with noise on every parameter, so that none is zero or one.

    Args:
        module: the module.
        key: seed.
        scale: standard deviation of the noise.
    """
    leaves, tree = jax.tree.flatten(module)
    keys = jax.random.split(jax.random.key(key), len(leaves))
    noisy = [x + scale * jax.random.normal(k, x.shape, x.dtype) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, noisy)


def networks(depth: int | None = None, block: str | None = None, model: Path | None = None) -> Iterator[Verification]:
    """Verify random networks of one or all block types, or a checkpoint.

    Args:
        depth: number of layers: 4 for random networks if absent, and all layers of a checkpoint.
        block: one block type; all if absent.
        model: a checkpoint directory.

    Raises:
        DuatError: if the block is unknown, both block and model are given, or the checkpoint has fewer layers.
        SymbolicError: if the depth isn't a positive integer.
        BadCheckpoint: if the directory can't be loaded.
    """
    if model is None:
        x = jax.random.normal(jax.random.key(1), (_TOKENS, 6), jnp.float64)
        for name in BLOCKS if block is None else (block,):
            yield verify(random_stack(name, 4 if depth is None else depth), x, name)
        return
    if block is not None:
        raise DuatError("a model has a block type of its own: give --model or --block, not both")
    transformer = load(model, dtype=jnp.float64)
    stack = transformer.stack
    layers = len(stack.blocks) if depth is None else symbols.check_depth(depth)
    if layers > len(stack.blocks):
        raise DuatError(f"{model} has {len(stack.blocks)} layers: give a depth of at most that")
    stack.blocks = nnx.List(list(stack.blocks)[:layers])
    x = transformer.embed(jnp.arange(_TOKENS))
    yield verify(stack, x if transformer.embedding_norm is None else transformer.embedding_norm(x), str(model))
