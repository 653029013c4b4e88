"""Decomposition: one read-out, split exactly over input, terms and biases."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import DuatError
from duat_jax.forms.analysed_function import with_marks
from duat_jax.forms.completeness import Completeness, completeness_of, in_one_line
from duat_jax.marking.program import NOT_ATTRIBUTED
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.keys import Marked
from duat_jax.transform.query import Target, at_zero, is_float, pull_back, question_of, require_affine
from duat_jax.transform.recording import Recording, record_kinds

KINDS = (marks.HOLD, marks.ACTIVATION, marks.TERM_OUTPUT, marks.OFFSET)
"""The marks that contributions need."""


class Decomposition(NamedTuple):
    """One scalar read-out, split exactly: `value = Σ input + Σ terms + Σ offsets + unmarked`.

    Args:
        input: contribution of every entry of the argument, in the argument's structure and shapes.
        terms: contribution of every neuron of every term, in the shape of its activation; without neurons, of every
            token.
        coefficients: the contribution of one unit more, everything held: of every neuron's activation, the `u` of its
            contribution `u σ(z)`; without neurons, of every entry of a term's output.
        offsets: contribution of every bias and norm offset; those in a scan have one per step.  A bias inside a
            pre-activation or a held parameter has none of its own: its contribution is zero.
        unmarked: the contribution of constants without a mark; zero where there are none.
        completeness: value, sum, error and tolerance.
    """

    input: Any
    terms: Marked[Array]
    coefficients: Marked[Array]
    offsets: Marked[Array]
    unmarked: Array
    completeness: Completeness

    @property
    def not_attributed(self) -> Float[Array, "..."]:
        """The contribution of what `duat.auto` can't follow and holds whole; zero where it follows everything."""
        value = jnp.asarray(self.completeness.value)
        held = (part for key, part in self.offsets.items() if key.name == NOT_ATTRIBUTED)
        return sum((part.sum(range(value.ndim, part.ndim)) for part in held), jnp.zeros_like(value))

    def __repr__(self) -> str:
        held = any(key.name == NOT_ATTRIBUTED for key in self.offsets)
        return in_one_line(self, **({"not attributed": self.not_attributed} if held else {}))


def default_readout(value: Any) -> Array:
    """Return the read-out of a function that returns one scalar."""
    leaves = jax.tree.leaves(value)
    shapes = [jnp.shape(leaf) for leaf in leaves]
    if shapes != [()]:
        raise DuatError(
            f"the function returns shapes {shapes}, but one scalar read-out is decomposed: return one logit, or a sum"
            " of outputs, or give a read-out covector of the result's shape"
        )
    if not jnp.issubdtype(jnp.result_type(leaves[0]), jnp.floating):
        raise DuatError(
            f"the function returns a scalar of {jnp.result_type(leaves[0])}, but a real one is decomposed: convert"
            " whole numbers to floating point, and ask for the real and the imaginary part of a complex one each"
        )
    return jax.tree.map(jnp.ones_like, value)


def checked_readout(readout: Any, value: Any) -> Any:
    """Return a read-out as a covector of the dtypes of the value; one if absent and the value is a scalar."""
    if readout is None:
        return default_readout(value)
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (readout, value)]
    structures: list[Any] = [jax.tree.structure(tree) for tree in (readout, value)]
    if structures[0] != structures[1] or shapes[0] != shapes[1]:
        raise DuatError(
            f"the read-out is of shape {shapes[0]}, but the value that is read is of shape {shapes[1]}: give a covector"
            " with one number for each of its entries; many read-outs are mapped with jax.vmap"
        )
    readout_leaves, value_leaves = jax.tree.leaves(readout), jax.tree.leaves(value)
    if any(jnp.iscomplexobj(u) and not jnp.iscomplexobj(x) for u, x in zip(readout_leaves, value_leaves, strict=True)):
        raise DuatError("the read-out is complex, but the value is real: read its two parts, one after the other")
    return jax.tree.map(lambda u, x: jnp.asarray(u).astype(jnp.result_type(x)), readout, value)


def require_flowing(arguments: Sequence[Any]) -> None:
    """Raise if a function's argument has no floating-point numbers, so that nothing flows from it."""
    if arguments and not any(map(is_float, arguments)):
        raise DuatError(
            "the argument is all whole numbers, and nothing flows from those: begin at the embeddings, with a function"
            " of what your model looks up for its token ids, lambda x: rest_of_the_model(x)"
        )


def inputs_times(on_arguments: list[Array | None], arguments: list[Array], dtype: Any) -> list[Array]:
    """Return the contribution of every argument: its derivative times its value; zero for whole numbers."""
    return [
        jnp.zeros(jnp.shape(x), dtype) if u is None else times(u, x, dtype)
        for u, x in zip(on_arguments, arguments, strict=True)
    ]


def times(u: Array, x: Array, dtype: Any) -> Array:
    """Return every entry's contribution to a read-out."""
    # An entry that isn't finite and isn't used, such as one of an additive mask or of a branch that isn't taken,
    # contributes zero.
    product = u * jnp.where((u == 0) & ~jnp.isfinite(x), 0, x)
    return product if jnp.issubdtype(dtype, jnp.complexfloating) else product.real


@renamed_arguments(neurons="by_neuron")
def contributions(
    recording: Recording, readout: Any = None, *, target: Target = None, by_neuron: bool = True
) -> Decomposition:
    """Split one read-out of a recording over input, terms and biases; many with `jax.vmap` over read-outs.

    With the read-out pulled back through the linear path, `u_{j−1} = W_{j,1}ᵀ u_j`, the contribution of neuron `n` is
    `(W_{j,3}ᵀ u_j)_n σ(z_j)_n`, that of an input entry `(u_0)_m (x_0)_m`, that of a bias `⟨u, b⟩`.

    Args:
        recording: a function's forward pass.
        readout: a covector on the target, of its structure and shapes; may be absent where the target is one scalar.
        target: the value that is read: a stream, a pre-activation, a term's output or a point; the function's result if
            absent.
        by_neuron: whether to split down to neurons; otherwise terms with an outer map are split over tokens only, for
            about half of the extra cost.

    Returns:
        The exact parts and their completeness.

    Raises:
        DuatError: if the read-out isn't of the target's shapes, or is absent and the target isn't one scalar; if the
            argument is all whole numbers.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import record, term
        >>> recording = record(lambda x: x + term(jax.nn.relu, 2 * x, "relu"))(jnp.array([1.0, -1.0]))
        >>> jax.vmap(lambda u: contributions(recording, u).terms["relu"])(jnp.eye(2)).tolist()
        [[2.0, 0.0], [0.0, 0.0]]

    Source: Wang & Li, Eq. 11; the split of one read-out follows from its linearity in the terms.
    """
    require_affine(recording, target)
    require_flowing(recording.arguments)
    readout = checked_readout(readout, recording.value if target is None else recording.at(target))
    return _contributions(recording, readout, target, by_neuron)


@partial(compiled, static_argnames=("target", "by_neuron"))
def _contributions(recording: Recording, readout: Any, target: Target, by_neuron: bool) -> Decomposition:
    program, seen, affinity = recording.program, recording.seen, recording.traced.affinity
    outputs = {
        s.key: s for s in ([] if by_neuron else program.of_kind(marks.TERM_OUTPUT)) if s != (target and target.site)
    }
    terms = [outputs.get(site.key, site) for site in program.of_kind(marks.ACTIVATION)]
    offsets = program.of_kind(marks.OFFSET)
    question = question_of(recording, target, linear=[*terms, *offsets], fixed=program.of_kind(marks.HOLD))
    on_input, on_marks = pull_back(recording, question, target, readout, {})

    summands = products(readout, recording.value if target is None else recording.at(target))
    value = reduce(jnp.add, [product.sum() for product in summands])
    input_parts = inputs_times(on_input, recording.arguments, value.dtype)
    finest = {site: times(on_marks[site], seen[site], value.dtype) for site in (*terms, *offsets)}
    term_parts = {site.key: finest[site] for site in terms}
    for key, site in outputs.items():
        # The last axis of a term's output is its features; a scalar term has none.
        if program.place(site).axes:
            term_parts[key] = term_parts[key].sum(-1)
    offset_parts = {site.key: finest[site].sum(range(len(program.lengths(site)), seen[site].ndim)) for site in offsets}
    remainder = jnp.zeros_like(value)
    if affinity.adds_a_constant(target):
        remainder = dot(readout, at_zero(recording, question, target, {}))
    parts = [*input_parts, *term_parts.values(), *offset_parts.values(), remainder]
    rounding = recording.traced.rounding(question)
    eps = [*rounding.arguments, *(rounding.at(program.place(site).path) for site in finest), rounding.coarsest]
    return Decomposition(
        jax.tree.unflatten(recording.in_tree, input_parts),
        Marked(term_parts),
        Marked({site.key: on_marks[site] for site in terms}),
        Marked(offset_parts),
        remainder,
        completeness_of(
            value, parts, [*input_parts, *finest.values(), remainder, *summands], [*eps, *[0.0] * len(summands)]
        ),
    )


def products(readout: Any, value: Any) -> list[Array]:
    """Return the summands of `⟨u, value⟩`, leaf by leaf."""
    return [u * v for u, v in zip(jax.tree.leaves(readout), jax.tree.leaves(value), strict=True)]


def dot(readout: Any, value: Any) -> Float[Array, ""]:
    """Return `⟨u, value⟩` over all leaves."""
    return reduce(jnp.add, [product.sum() for product in products(readout, value)])


@renamed_arguments(neurons="by_neuron")
def decompose(
    fn: Callable[[Any], Float[Array, ""]], x: Any, *, by_neuron: bool = True, marks: str | None = None
) -> Decomposition:
    """Split a function's scalar value exactly over its input, terms and biases.

    `fn(x) = Σ input + Σ terms + Σ offsets`, with every held dynamic parameter at its value on this input.

    Args:
        fn: a pure function of one pytree of arrays, with marks, returning a scalar.
        x: its argument.
        by_neuron: whether to split down to neurons; otherwise terms with an outer map are split over tokens only.
        marks: `"auto"` places those that `fn` lacks, as `duat.auto` does; its own alone if absent.

    Returns:
        The exact parts and their completeness.

    Raises:
        DuatError: if `fn` doesn't return one scalar or `x` is all whole numbers; for marks of an unknown kind.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import offset, term
        >>> fn = lambda x: (x + term(jax.nn.relu, 2 * x, "relu") + offset(jnp.ones(2), "bias")).sum()
        >>> parts = decompose(fn, jnp.array([1.0, -1.0]))
        >>> parts.input.tolist(), parts.terms["relu"].tolist(), float(parts.offsets["bias"])
        ([1.0, -1.0], [2.0, 0.0], 2.0)
        >>> parts.completeness.verdict
        'holds'

    Source: Wang & Li, Eq. 11; the split of one read-out follows from its linearity in the terms.
    """
    return contributions(record_kinds(with_marks(fn, marks), x, KINDS), by_neuron=by_neuron)
