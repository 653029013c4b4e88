"""Compare the formulas of a block of several streams, evaluated, with the function that they describe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from sympy import MatrixExpr, sympify

from duat_jax.forms.closed_form import ClosedForm, unroll
from symbolic.errors import ShapeMismatch, SymbolicError, in_one_line
from symbolic.evaluation.arrays import arrays_of, stream_of, times
from symbolic.evaluation.bridge import Activate, with_sizes_to_jax
from symbolic.evaluation.code import of_user
from symbolic.evaluation.comparison import (
    Activations,
    ComparedNumber,
    Numbers,
    another,
    by_layer,
    check_still,
    compared,
    functions_by_name,
    matched,
    random_like,
)
from symbolic.evaluation.rounding import Sized
from symbolic.expressions.parameter import Parameter
from symbolic.theorems.residual_stack import i

Streams = dict[str, Array]


def compare_streams(
    block: Any,
    functions: Callable[[Any], Any] | Sequence[Callable[[Any], Any]],
    x: Mapping[str, Any],
    weights: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    activation: Activations | Sequence[Activations],
) -> Numbers:
    """Compare the formulas of a block of several streams, evaluated with a function's own parameters, with it."""
    # As `compare` does for one stream: every layer as it is written, its matrices on random vectors, and the closed
    # form at the last depth, at the input and at another one.
    layers, of_layers = by_layer(functions, weights)
    by_name = functions_by_name(block, activation, len(layers))
    entering = _checked(block, x)
    at_x = _EvaluatedStreams.at(block, layers, entering, of_layers)
    rows = tuple(_rows(block, at_x, by_name))
    if not all(row.holds for row in rows):
        return Numbers(rows)
    at_other = _EvaluatedStreams.at(block, layers, {name: another(each) for name, each in entering.items()}, of_layers)
    check_still(block, len(layers), at_x.arrays, at_other.arrays)
    return Numbers((*rows, *(row._replace(at_second_input=True) for row in _rows(block, at_other, by_name))))


def _checked(block: Any, x: Mapping[str, Any]) -> Streams:
    """Return the arrays of the streams if they are what the block says."""
    if not isinstance(x, Mapping) or {*x} != {*block.names}:
        given = f"has streams called {', '.join(map(str, x))}" if isinstance(x, Mapping) else f"is {in_one_line(x)}"
        raise SymbolicError(f"x {given}: give an array for each of {', '.join(block.names)}, by name")
    sizes = block.written.free_symbols.union(*(stream.free_symbols for stream in block.streams))
    if symbols := sorted(str(size) for size in sizes if size.is_positive and size.is_integer):
        raise SymbolicError(
            f"the block has symbols for sizes, {', '.join(symbols)}: write it with numbers to compare it"
        )
    arrays = {name: stream_of(name, x[name]) for name in block.names}
    for (name, array), stream in zip(arrays.items(), block.streams, strict=True):
        rows, columns = stream.shape
        if array.shape not in ((rows, columns), *([(rows,)] if columns == 1 else [])):
            raise ShapeMismatch(f"{name} is {times(array.shape)}, expected {times(stream.shape)}: give it that shape")
    return arrays


class _EvaluatedStreams(NamedTuple):
    """A stack of functions at one input."""

    forms: list[ClosedForm]  # of every function at its streams
    arrays: dict[Parameter, Array]  # of every letter

    @classmethod
    def at(
        cls, block: Any, functions: Sequence[Callable[[Any], Any]], x: Streams, weights: Sequence[Mapping[str, Any]]
    ) -> "_EvaluatedStreams":
        """Evaluate the functions, and read the arrays of every layer."""
        forms: list[ClosedForm] = []
        arrays: dict[Parameter, Array] = {}
        for k, (function, of_layer) in enumerate(zip(functions, weights, strict=True), 1):
            with of_user(f"the function of layer {k}, of the streams {', '.join(block.names)},"):
                form = unroll(function, x)
            made = form.value if isinstance(form.value, Mapping) else {}
            if {name: getattr(each, "shape", None) for name, each in made.items()} != {
                name: each.shape for name, each in x.items()
            }:
                raise SymbolicError(
                    f"layer {k} gets {', '.join(x)} and returns something else: give a function from a dictionary of"
                    " streams to one of the same names and shapes"
                )
            forms.append(form)
            arrays |= arrays_of(block, k, form.recording, of_layer)
            for s, (name, stream) in enumerate(zip(block.names, block.streams, strict=True), 1):
                arrays[stream.xreplace({i: sympify(k - 1)})] = x[name].reshape(stream.shape)
                arrays[block.stack.x(k - 1, s)] = x[name].reshape(-1, 1)
            x = dict(form.value)
        return cls(forms, arrays)


def _rows(block: Any, at_input: _EvaluatedStreams, functions: Mapping[str, Activate]) -> Iterator[ComparedNumber]:
    s, (forms, arrays) = block.stack, at_input
    depth, names = len(forms), dict(enumerate(block.names, 1))

    def probe(k: int, letter: str, number: int) -> Parameter:
        # A letter that no user's matrix can have.
        size = s.widths[number - 1] if letter == "?v" else s.neurons[number - 1]
        return Parameter(letter, (k, number), size, 1)

    wanted: dict[tuple[Any, ...], MatrixExpr] = {}
    for k in range(1, depth + 1):
        for r in s.streams:
            wanted["written", k, r] = block.layer[r - 1].right.xreplace({i: sympify(k - 1)})
            wanted["offset", k, r] = s.b(k, r)
            for u in s.streams:
                wanted["path", k, r, u] = s.U(k, r, u) * s.x(k - 1, u)
                wanted["path v", k, r, u] = s.U(k, r, u) * probe(k, "?v", u)
            for t in s.terms:
                wanted["term", k, r, t] = s.G(k, r, t) * s.a(k, t)
                wanted["out h", k, r, t] = s.G(k, r, t) * probe(k, "?h", t)
        for t in s.terms:
            wanted["inside", k, t] = s.layer[t - 1].right.argument.xreplace({i: sympify(k - 1)})
            for u in s.streams:
                wanted["into v", k, t, u] = s.F(k, t, u) * probe(k, "?v", u)
    vs = {k: {n: random_like(form.x0[n], 10 * k + r) for r, n in names.items()} for k, form in enumerate(forms, 1)}
    hs = {
        (k, t): random_like(jnp.zeros((s.neurons[t - 1], 1), vs[k][names[1]].dtype), 100 * k + t)
        for k in vs
        for t in s.terms
    }
    probes = {probe(k, "?v", r): vs[k][n].reshape(-1, 1) for k in vs for r, n in names.items()}
    probes |= {probe(k, "?h", t): h for (k, t), h in hs.items()}
    known = (*s.layer[: len(s.terms)], *block.parameters)
    by_text = with_sizes_to_jax({str(key): each for key, each in wanted.items()}, functions, known)(arrays | probes)
    table = {key: by_text[str(key)] for key in wanted}

    def parts(kind: str, *places: int) -> list[Sized]:
        return [table[kind, *places, u] for u in (s.terms if kind in ("term", "out h") else s.streams)]

    for k, form in enumerate(forms, 1):
        read, v, bias, mapped = "record and replay", vs[k], form.bias(), form.input_map()(vs[k])
        for r, name in names.items():
            whole = [*parts("path", k, r), table["offset", k, r], *parts("term", k, r)]
            yield compared(k, f"{name} as written", "the function", form.value[name], [table["written", k, r]])
            yield compared(k, f"{name} with its matrices", "the function", form.value[name], whole)
            yield compared(k, f"U v into {name}", read, mapped[name], parts("path v", k, r))
            yield compared(k, f"b of {name}", read, bias[name], [table["offset", k, r]])
        sorted_names = sorted(names, key=names.__getitem__)
        ours = [(table["inside", k, t].value, *(table["term", k, r, t].value for r in sorted_names)) for t in s.terms]
        for t, j in zip(s.terms, matched(form, ours), strict=True):
            z = form.recording.at(form.terms[j - 1])
            out = form.outer_map(j)(hs[k, t].reshape(z.shape))
            yield compared(k, f"inside term {t}", read, z, [table["inside", k, t]])
            yield compared(k, f"F v of term {t}", read, form.inner_map(j)(v), parts("into v", k, t))
            for r, name in names.items():
                yield compared(k, f"G h of term {t} into {name}", read, out[name], [table["out h", k, r, t]])
    of_form = {f"P/{r}/{u}": s.P(depth, r, u) * s.x(0, u) for r in s.streams for u in s.streams}
    of_form |= {f"q/{r}": s.q(depth, r) for r in s.streams}
    of_form |= {
        f"C/{r}/{k}/{t}": s.C(k, depth, r, t) * s.h(k, t)
        for r in s.streams
        for k in range(1, depth + 1)
        for t in s.terms
    }
    values = with_sizes_to_jax(of_form, functions, (*s.recursions, *block.parameters))(arrays)
    for r, name in names.items():
        of_stream = [each for key, each in values.items() if key.split("/")[1] == str(r)]
        yield compared(
            None, f"the closed form of {name} at depth {depth}", "the functions", forms[-1].value[name], of_stream
        )
