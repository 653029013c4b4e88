"""The routes to the same numbers: the symbolic form, the plain forward pass, record and replay, the recursions.

Every route gives the parts of a form by name, each as a vector: the streams `x/i` where it has them, and `q/i`,
`P x/i`, `UAT/i`, `B x/i`, `c/i` and `C s/i` of every layer, counted from 1.
"""

import jax
from jaxtyping import Array, Float

from duat_jax.forms.closed_form import ClosedForm
from duat_jax.forms.residual_term import ResidualTerm
from duat_jax.nn import ACTIVATIONS, Stack
from duat_jax.reference.dense import vec
from duat_jax.reference.recursions import Unrolled
from duat_jax.transform.recording import Dynamics
from symbolic.equality.normal_form import Normaliser
from symbolic.evaluation.bridge import name_of, to_jax
from symbolic.theorems import residual_stack as symbols


def held_by_layer(dynamics: Dynamics, layers: int) -> list[dict[str, Array]]:
    """Return the held values of every block of a stack by name.

    Args:
        dynamics: what a recording says of the stack at one input.
        layers: number of blocks.
    """
    held = dynamics.held.items()
    return [{key.name: value for key, value in held if f"layers.{i}" in key.scope} for i in range(layers)]


def parameters(terms: list[ResidualTerm], x0: Float[Array, "entries"]) -> dict[str, Array]:
    """Return the arrays of Eq. 20's symbols, by the names that the symbolic layer gives them.

    Args:
        terms: the residual term of every layer.
        x0: `vec(x_0)`.
    """
    s = symbols.ResidualStack()
    arrays = {name_of(s.x(0)): x0}
    for k, term in enumerate(terms, 1):
        arrays |= {
            name_of(s.W(k, 1)): term.path,
            name_of(s.b(k, 3)): term.path_bias,
            name_of(s.W(k, 2)): term.inner,
            name_of(s.b(k, 2)): term.inner_bias,
            name_of(s.W(k, 3)): term.outer,
        }
    return arrays


def derived(depth: int, arrays: dict[str, Array], activation: str) -> dict[str, Array]:
    """Return every part of the symbolic form as a vector: `x_i` from Eq. 20 alone, its parts from the recursions.

    Args:
        depth: number of layers.
        arrays: the arrays of Eq. 20's symbols.
        activation: the name of `σ`.
    """
    s = symbols.ResidualStack()
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


def forward(form: ClosedForm, stack: Stack, x: Array) -> dict[str, Array]:
    """Return the residual stream of the plain pass: every block run by itself, and the last one by the whole stack.

    Args:
        form: the stack's closed form.
        stack: the blocks.
        x: what enters them.
    """
    streams = {f"x/{i}": vec(x_i) for i, x_i in enumerate(form.dynamics.streams.values()) if i}
    return streams | {f"x/{len(stack.blocks)}": vec(jax.jit(lambda x: stack(x))(x))}


def recorded(form: ClosedForm, depth: int) -> dict[str, Array]:
    """Return the parts of the closed form as record and replay give them.

    Args:
        form: the closed form.
        depth: number of layers.
    """
    activations = form.dynamics.activations
    found: dict[str, Array] = {}
    for i in range(1, depth + 1):
        site, index = form.terms[i - 1]
        found |= {
            f"q/{i}": vec(form.bias(i)),
            f"P x/{i}": vec(form.input_map(i)(form.x0)),
            f"UAT/{i}": vec(form.term_sum(i)),
            f"B x/{i}": vec(form.inner_map(i)(form.x0)),
            f"c/{i}": vec(form.inner_bias(i)),
            f"C s/{i}": vec(form.outer_map(i, depth)(activations[site.key][index])),
        }
    return found


def recursive(forms: list[Unrolled], x0: Array) -> dict[str, Array]:
    """Return the parts of the closed form as the dense recursions give them.

    Args:
        forms: the unrolled form at every depth.
        x0: `vec(x_0)`.
    """
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
