"""The affine form (collapse) of a function at one input: `x_L = W(x_0) x_0 + b(x_0)`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import DuatError
from duat_jax.forms.analysed_function import Model, from_embeddings, with_marks
from duat_jax.forms.completeness import Completeness, completeness_of, concatenated, entrywise_completeness, in_one_line
from duat_jax.forms.decomposition import checked_readout, dot, inputs_times, products, require_flowing
from duat_jax.forms.slopes import slopes_of
from duat_jax.operators.function import LinearFunction
from duat_jax.operators.linear_map import LinearMap
from duat_jax.operators.shapes import require_floats, shapes_of
from duat_jax.transform import marks
from duat_jax.transform.compiled import compiled
from duat_jax.transform.interpret import Seen
from duat_jax.transform.keys import Marked, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.query import Target, ask, at_zero, pull_back, require_affine
from duat_jax.transform.recording import Recording, record_kinds

KINDS = (marks.HOLD, marks.PRE_ACTIVATION, marks.ACTIVATION, marks.OFFSET)
"""The marks that the collapse needs."""


GATE_RULES = {"gate": 0.0, "factor": 1.0, "halves": 0.5}
"""The gate rules: the share of a gated term `σ(g) ⊙ u` that flows through the factor `u`; the rest flows through the
gate."""

GATE_RULE = "halves"
"""The default: by the mean of three tasks it ranks neurons best, though not by an interval over tasks
(`docs/findings/tables/gauges.md`)."""


class Collapse(NamedTuple):
    """A function as one affine map at one input: `fn(x) = linear(x) + bias`.

    Args:
        linear: `W(x_0)`.
        bias: `b(x_0)`, in the result's structure.
        completeness: of `W(x_0) x_0 + b(x_0)` against the function's value, entry by entry.
    """

    linear: LinearMap
    bias: Any
    completeness: Completeness

    def __repr__(self) -> str:
        return in_one_line(self)


class CollapsedContributions(NamedTuple):
    """One scalar read-out split over the entries of its input and one bias.

    Args:
        input: contribution of every entry of the argument, in the argument's structure.
        bias: the part that doesn't depend on the input.
        neurons: the part that passes through every neuron: the read-out's derivative in its activation, through the
            slopes of all later terms, times that activation.  The neurons of two terms don't sum: a path through both
            is counted in each.
        completeness: value, sum of input and bias, error and tolerance.
    """

    input: Any
    bias: Array
    neurons: Marked[Array]
    completeness: Completeness

    def __repr__(self) -> str:
        return in_one_line(self)


def shared_factors(recording: Recording, gate_rule: str | None) -> dict[Site, Site]:
    """Return the gated activations through whose other factor a share flows, each with the mark that holds it."""
    if gate_rule not in (None, *GATE_RULES):
        raise DuatError(f"gate_rule = {gate_rule!r} isn't one of {', '.join(GATE_RULES)}")
    factors = recording.traced.affinity.factors
    if gate_rule is not None and not factors:
        raise DuatError(
            f"gate_rule = {gate_rule!r} is for gated terms, whose activation is multiplied by a held factor that is"
            " linear in what flows, and there are none: leave it out"
        )
    return factors if GATE_RULES[gate_rule or GATE_RULE] else {}


def _question(recording: Recording, target: Target, factors: Iterable[Site]) -> ProgramQuestion:
    program = recording.program
    activations = program.of_kind(marks.ACTIVATION)
    linear = {*program.of_kind(marks.OFFSET), *(site._replace(kind=marks.AT_ZERO) for site in activations)}
    slopes = {site._replace(kind=marks.SLOPE) for site in activations}
    slopes |= {site._replace(kind=marks.FACTOR_SLOPE) for site in factors}
    return ProgramQuestion(
        provided=frozenset({*program.of_kind(marks.HOLD), *linear, *slopes}),
        linear=frozenset(linear),
        linearised=frozenset(activations),
        shared=frozenset(factors),
        wanted=frozenset() if target is None else frozenset({target.site}),
        value=target is None,
        affine=True,
    )


def _slopes(recording: Recording, gate_rule: str | None) -> Seen:
    """Return `σ(0)` and the slope of every term (`slopes.py`), or the gate's and the factor's shares of these."""
    factors, share = shared_factors(recording, gate_rule), GATE_RULES[gate_rule or GATE_RULE]
    at_zero, slopes = slopes_of(recording)
    provided: Seen = {}
    for site, constant in at_zero.items():
        carried = slopes[site]
        if site in factors:
            constant, carried = (1 - share) * constant, (1 - share) * carried
            provided[site._replace(kind=marks.FACTOR_SLOPE)] = share * recording.seen[site]
        provided[site._replace(kind=marks.AT_ZERO)] = constant
        provided[site._replace(kind=marks.SLOPE)] = carried
    return provided


_compiled_slopes = compiled(_slopes, static_argnames=("gate_rule",))


@dataclass(frozen=True)
class _Collapsed:
    factors: frozenset[Site]

    def __call__(self, data: tuple[Recording, Seen], x: Any) -> Any:
        return _carry(*data, x, self.factors)


@partial(compiled, static_argnames=("factors",))
def _carry(recording: Recording, provided: Seen, x: Any, factors: frozenset[Site]) -> Any:
    question = _question(recording, None, factors)
    leaves = jax.tree.leaves(x)
    return jax.jvp(
        lambda leaves: ask(recording, question, None, leaves, provided), (list(map(jnp.zeros_like, leaves)),), (leaves,)
    )[1]


@partial(compiled, static_argnames=("factors",))
def _bias(recording: Recording, provided: Seen, factors: frozenset[Site]) -> Any:
    question = _question(recording, None, factors)
    return ask(recording, question, None, list(map(jnp.zeros_like, recording.arguments)), provided)


def collapse_of(recording: Recording, gate_rule: str | None = None) -> Collapse:
    """Collapse a recorded function to one affine map at one input: `fn(x) = W(x) x + b(x)`."""
    require_floats(recording.argument, recording.value)
    factors = shared_factors(recording, gate_rule)
    provided = _compiled_slopes(recording, gate_rule)
    x, shared = recording.argument, frozenset(factors)
    linear = LinearFunction(_Collapsed(shared), (recording, provided), shapes_of(x))
    bias = _bias(recording, provided, shared)
    rounding = recording.traced.rounding(_question(recording, None, factors))
    eps = [max(rounding.arguments), rounding.coarsest]
    return Collapse(linear, bias, entrywise_completeness(recording.value, [linear(x), bias], eps))


@renamed_arguments(carries="gate_rule")
def collapse(
    fn: Callable[[Any], Any] | Model, x: Any, *, gate_rule: str | None = None, marks: str | None = None
) -> Collapse:
    """Collapse a function to one affine map at one input: `fn(x) = W(x) x + b(x)`.

    Every term's slope `s = (σ(z) − σ(0)) / z` is held (at `z = 0` it is `σ'(0)`, of a kink the mean of both sides), and
    `σ(0)` is carried as a bias; where `σ(0)` isn't finite, as of a logarithm, the slope is `σ(z) / z` and nothing is
    carried.  `σ'` is that of the operations that `σ` computes: rules of `jax.custom_jvp` and `jax.custom_vjp` and
    `jax.lax.stop_gradient` are left out.  Where σ is piecewise linear, the map is exact in a neighbourhood.  A gated
    term `σ(g) ⊙ u` is a product of two things that flow: a rule says which one does, and the map is exact as a value by
    each rule:

    | gate rule | the term |
    |---|---|
    | `"gate"` | `(σ(0) + s g) ⊙ u`, with `u` held |
    | `"factor"` | `σ(g) ⊙ u`, with `σ(g)` held |
    | `"halves"` | half of each |

    A factor that isn't linear in what flows, such as one with a limit, stays held.

    Args:
        fn: a pure function of one array, or of a pytree of named streams, with marks, or a model; a model is collapsed
            from its embeddings on.
        x: its argument; for a model, token ids `[tokens]`.
        gate_rule: the rule for gated terms; `"halves"` if absent.
        marks: `"auto"` places those that `fn` lacks, as `duat.auto` does; its own alone if absent.

    Returns:
        The linear map without its matrix, the bias, and their completeness.

    Raises:
        DuatError: if `x` has whole numbers; if there is no gated term with such a rule; for marks of
            an unknown kind.
        NotAffine: naming each operation that isn't linear, its source line and the missing mark.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from duat_jax import term
        >>> form = collapse(lambda x: x + term(jax.nn.relu, 2 * x, "relu"), jnp.array([1.0, -1.0]))
        >>> form.linear.dense().tolist(), form.bias.tolist()
        ([[3.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    """
    fn, x = from_embeddings(fn, x)
    return collapse_of(record_kinds(with_marks(fn, marks), x, KINDS), gate_rule)


def collapsed_contributions(
    recording: Recording, readout: Any = None, *, target: Target = None, gate_rule: str | None = None
) -> CollapsedContributions:
    """Split one read-out of a recording over its input's entries and one bias, by the collapse."""
    # With slopes held, the read-out is one affine function of every stream: `⟨c, x_i⟩` and the biases after it are the
    # value, whichever layer one cuts at; the first of these cuts is the input's. A neuron's `c σ(z)` is the part that
    # passes through it.
    require_affine(recording, target)
    require_flowing(recording.arguments)
    readout = checked_readout(readout, recording.value if target is None else recording.at(target))
    return _contributions(recording, readout, target, gate_rule)


@partial(compiled, static_argnames=("target", "gate_rule"))
def _contributions(recording: Recording, readout: Any, target: Target, gate_rule: str | None) -> CollapsedContributions:
    factors, provided = shared_factors(recording, gate_rule), _slopes(recording, gate_rule)
    question = _question(recording, target, factors)
    on_input, on_marks = pull_back(recording, question, target, readout, provided)
    summands = products(readout, recording.value if target is None else recording.at(target))
    value = reduce(jnp.add, [product.sum() for product in summands])
    inputs = inputs_times(on_input, recording.arguments, value.dtype)
    rounding, program = recording.traced.rounding(question), recording.program
    eps = [*rounding.arguments, *(rounding.at(program.place(site).path) for site in on_marks)]
    biases = [on * (provided[site] if site in provided else recording.seen[site]) for site, on in on_marks.items()]
    upstream = recording.traced.affinity.upstream(target, factors)
    if recording.traced.affinity.adds_a_constant(target, *upstream):
        biases.append(dot(readout, at_zero(recording, question, target, provided)))
        eps.append(rounding.coarsest)
    bias = sum((b.sum() for b in concatenated(biases)), jnp.zeros_like(value))
    neurons = {
        site.key: on_marks[site._replace(kind=marks.AT_ZERO)] * recording.seen[site]
        for site in program.of_kind(marks.ACTIVATION)
    }
    eps += [rounding.at(program.place(site).path) for site in program.of_kind(marks.ACTIVATION)]
    # Every activation is rounded on the way, though it isn't one of the parts.
    rounded = [*inputs, *biases, *neurons.values(), *summands]
    completeness = completeness_of(value, [*inputs, *biases], rounded, [*eps, *[0.0] * len(summands)])
    return CollapsedContributions(jax.tree.unflatten(recording.in_tree, inputs), bias, Marked(neurons), completeness)
