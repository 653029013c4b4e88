"""Compare a block's formulas, evaluated, with the function that they describe."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sympy import MatrixExpr, Symbol, sympify

from duat_jax.forms.closed_form import ClosedForm, unroll
from duat_jax.forms.completeness import entrywise_completeness
from symbolic.errors import NumbersDiffer, SymbolicError
from symbolic.evaluation.arrays import arrays_of, letters_of, numbers_of_sizes, stream_of
from symbolic.evaluation.bridge import Activate, with_sizes_to_jax
from symbolic.evaluation.code import guarded, of_user
from symbolic.evaluation.flow import Values
from symbolic.evaluation.rounding import Sized
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Held, Parameter, latin
from symbolic.theorems.residual_stack import i

Layer = Callable[[Array], Array]

Activations = Activate | Mapping[str, Activate]


class ComparedNumber(NamedTuple):
    """One number of a block's formulas, compared with the same number from another source.

    Args:
        layer: the layer, counted from 1; the whole stack if None.
        formula: the formula that was evaluated.
        reference: the source of the number that it is compared with.
        difference: the absolute difference that is largest in proportion to its tolerance.
        tolerance: the difference that rounding may make there.
        holds: whether every difference is within its tolerance, and the tolerance is small for what is compared.
        at_second_input: whether it is at the second input, which was drawn at random.
    """

    layer: int | None
    formula: str
    reference: str
    difference: float
    tolerance: float
    holds: bool
    at_second_input: bool = False


class Numbers(NamedTuple):
    """The comparison of a block's formulas with its function.

    Args:
        rows: every comparison.
    """

    rows: tuple[ComparedNumber, ...]

    @property
    def holds(self) -> bool:
        """Whether all of them agree."""
        return all(row.holds for row in self.rows)

    def __str__(self) -> str:
        wide = max(len(row.formula) for row in self.rows)
        wide_reference = max(len(row.reference) for row in self.rows)
        return "\n".join(
            f"{'✓' if row.holds else '✗'} {'stack' if row.layer is None else f'layer {row.layer}':8s}"
            f" {row.formula:{wide}s}  {row.reference:{wide_reference}s}  {row.difference:.1e} of {row.tolerance:.1e}"
            + (" at a second input" if row.at_second_input else "")
            + (", which is inconclusive" if row.difference <= row.tolerance and not row.holds else "")
            for row in self.rows
        )


def compared(layer: int | None, formula: str, reference: str, value: Array, parts: Sequence[Sized]) -> ComparedNumber:
    """Return a number of a block's formulas, the sum of parts, compared with its value from another source."""
    values, sizes = ([each.reshape(value.shape) for each in column] for column in zip(*parts, strict=True))
    completeness = entrywise_completeness(value, values, sizes=sizes)
    errors, bounds = np.abs(np.asarray(completeness.error)).ravel(), np.asarray(completeness.tolerance).ravel()
    worst = int(np.argmax(np.where(errors == 0, 0, errors / np.where(bounds == 0, np.nan, bounds))))
    # Where all parts are zero there is nothing that a tolerance could hide.
    conclusive = np.asarray(completeness.conclusive) | (np.asarray(completeness.largest) == 0)
    holds = bool(np.all(np.asarray(completeness.within) & conclusive))
    return ComparedNumber(layer, formula, reference, float(errors[worst]), float(bounds[worst]), holds)


def matched(form: ClosedForm, ours: Sequence[tuple[Array, ...]]) -> list[int]:
    """Return the number of the function's term for each of ours: the nearest in pre-activation and contributions."""
    contributions = map(jax.tree.leaves, form.term_contributions())
    theirs = [(form.recording.at(term), *each) for term, each in zip(form.terms, contributions, strict=True)]
    if len(theirs) != len(ours):
        raise NumbersDiffer(
            f"the function has {len(theirs)} terms and the block {len(ours)}: mark every activation of the"
            " function with term(σ, z, name), and write every one of them in the block"
        )
    matched: list[int] = []
    for parts in ours:
        near = {
            j: sum(float(jnp.abs(a.ravel() - b.ravel()).max()) for a, b in zip(term, parts, strict=True))
            for j, term in enumerate(theirs, 1)
            if j not in matched and term[0].size == parts[0].size
        }
        if not near:
            raise NumbersDiffer("the function's activations have other sizes than the block's: compare their shapes")
        matched.append(min(near, key=near.__getitem__))
    return matched


def by_layer(functions: Any, weights: Any) -> tuple[list[Layer], list[Mapping[str, Any]]]:
    """Return a function and its weights, by the letters as they are kept, for every layer."""
    layers = [functions] if callable(functions) else _all_of(functions)
    if layers is None or not all(map(callable, layers)):
        raise SymbolicError("a layer's function can't be called: give a marked function of the stream")
    of_layers = [weights] * len(layers) if isinstance(weights, Mapping) else _all_of(weights)
    if of_layers is None or not all(isinstance(arrays, Mapping) for arrays in of_layers):
        raise SymbolicError("the weights of a layer are no mapping: give an array by letter")
    if not layers or len(layers) != len(of_layers):
        counts = ((len(layers), "function"), (len(of_layers), "mapping"))
        given = " and ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
        raise SymbolicError(f"{given} of weights: give one of each for a layer")
    return layers, [arrays if isinstance(arrays, Values) else _by_letter(arrays) for arrays in of_layers]


def _all_of(several: Any) -> list[Any] | None:
    return list(several) if isinstance(several, Iterable) else None


def _by_letter(arrays: Mapping[Any, Any]) -> dict[str, Any]:
    if wrong := [repr(name) for name in arrays if not isinstance(name, str)]:
        raise SymbolicError(
            f"{', '.join(wrong)} names no weight: give an array by letter, as it is written in the block"
        )
    return {latin(name): array for name, array in arrays.items()}


def functions_by_name(block: Any, activation: Any, depth: int) -> dict[str, Activate]:
    """Return the activation functions of all layers by name, `σ[2]` for the one that is layer 2's own."""
    several = isinstance(activation, Sequence) and not isinstance(activation, str)
    of_layers = list(activation) if several else [activation] * depth
    if len(of_layers) != depth:
        raise SymbolicError(f"activation functions of {len(of_layers)} layers for {depth}: give each layer its own")
    parts, missing = block.written.atoms(Activation), set()
    functions: dict[str, Any] = {}
    for k, of_layer in enumerate(of_layers, 1):
        known = of_layer if isinstance(of_layer, Mapping) else {}
        for part in parts:
            function = of_layer if callable(of_layer) else known.get(part.function)
            name = part.of_layer(k).name if part.indices else part.name
            missing |= set() if callable(function) else {part.function}
            if functions.setdefault(name, function) != function:
                raise SymbolicError(
                    f"{name} is one function in every layer of the block, and another one in layer {k} of those given:"
                    f" write the block with own=({name!r},)"
                )
    if missing:
        raise SymbolicError(f"no function for {', '.join(sorted(missing))}: give one by name, as jax.nn.gelu for gelu")
    return {name: guarded(function, f"the activation {name}") for name, function in functions.items()}


def _checked(k: int, form: ClosedForm, stream: Array) -> ClosedForm:
    """Return a layer's form if its result is a stream like the one before."""
    if not isinstance(form.value, jax.Array) or form.value.shape != stream.shape:
        shape = getattr(form.value, "shape", "no single array")
        raise SymbolicError(f"layer {k} gets {stream.shape} and returns {shape}: give a function from stream to stream")
    return form


def random_like(like: Array, seed: int) -> Array:
    """Return random numbers of an array's shape."""
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _probe(block: Any, k: int, term: int | None = None) -> Parameter:
    """Return the symbol of a random vector, with which a whole map is compared and not its value at x alone."""
    # A letter that no user's matrix can have.
    size = block.stack.width if term is None else block.stack.sizes[term - 1]
    return Parameter("?", (k,) if term is None else (k, term), size, 1)


def compare(
    block: Any,
    functions: Layer | Sequence[Layer],
    x: Array,
    weights: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    activation: Activations | Sequence[Activations],
    sizes: Mapping[Symbol, int] | None = None,
) -> Numbers:
    """Compare a block's formulas, evaluated with a function's own parameters, with the function."""
    # Of every layer: the block as it is written, and Eq. 20 with the parameters that were read off, beside the
    # function's result; and each part of Eq. 20 beside the same part as record and replay read it from the function's
    # program, the matrices by what they make of random vectors v and h. `σ` is taken as it is given, and seen at this
    # input alone. Of the stack: the closed form at the last depth beside all functions, one after the other. All of it
    # a second time at an input that is drawn at random: a letter that stands still has to be the same there.
    layers, of_layers = by_layer(functions, weights)
    by_name = functions_by_name(block, activation, len(layers))
    x = stream_of("x", x)
    block = block.with_sizes(numbers_of_sizes(block, x, of_layers[0], sizes or {}))
    at_x = _Evaluated.at(block, layers, x, of_layers)
    rows = tuple(_rows(block, at_x, by_name))
    if not all(row.holds for row in rows):
        return Numbers(rows)
    at_other = _Evaluated.at(block, layers, another(x), of_layers, again=True)
    check_still(block, len(layers), at_x.arrays, at_other.arrays)
    return Numbers((*rows, *(row._replace(at_second_input=True) for row in _rows(block, at_other, by_name))))


def another(x: Array) -> Array:
    """Return a random stream as far from another one as that is from zero."""
    spread = jnp.sqrt(jnp.mean(x * x))
    return x + jnp.where(spread > 0, spread, 1).astype(x.dtype) * random_like(x, 0)


class _Evaluated(NamedTuple):
    """A stack of functions at one input."""

    forms: list[ClosedForm]  # of every function at its stream
    arrays: dict[Parameter, Array]  # of every letter

    @classmethod
    def at(
        cls, block: Any, functions: Sequence[Layer], x: Array, weights: Sequence[Mapping[str, Any]], again: bool = False
    ) -> "_Evaluated":
        """Evaluate the functions, and read the arrays of every layer."""
        s, forms = block.stack, []
        arrays: dict[Parameter, Array] = {}
        for k, (function, of_layer) in enumerate(zip(functions, weights, strict=True), 1):
            with of_user(f"the function of layer {k}"):
                form = unroll(function, x)
            form = _checked(k, form, x)
            forms.append(form)
            of_layer = of_layer.at(x) if again and isinstance(of_layer, Values) else of_layer
            arrays |= arrays_of(block, k, form.recording, of_layer)
            arrays[block.stream.xreplace({i: sympify(k - 1)})] = x.reshape(-1, 1) if block.stream == s.x(i) else x
            arrays[s.x(k - 1)] = x.reshape(-1, 1)
            x = form.value
        return cls(forms, arrays)


def check_still(block: Any, depth: int, at_x: Mapping[Parameter, Array], at_other: Mapping[Parameter, Array]) -> None:
    """Raise if a letter that stands still has other values at another input."""
    names = {
        name: parameter
        for k in range(1, depth + 1)
        for parameter, name in letters_of(block, k)
        if not isinstance(parameter, Held)
    }
    if moved := [name for name, p in names.items() if not np.array_equal(at_x[p], at_other[p])]:
        raise NumbersDiffer(
            f"{', '.join(moved)} stands still in the block and has other values at a second input: write it as held(…)"
        )


def _rows(block: Any, at_input: _Evaluated, functions: Mapping[str, Activate]) -> Iterator[ComparedNumber]:
    s, (forms, arrays) = block.stack, at_input
    depth = len(forms)

    def at(k: int, expression: MatrixExpr) -> MatrixExpr:
        return expression.xreplace({i: sympify(k - 1)})

    parts_of_layers: dict[str, MatrixExpr] = {}
    maps: dict[str, MatrixExpr] = {}
    for k in range(1, depth + 1):
        parts_of_layers |= {
            f"written/{k}": at(k, block.written),
            f"path/{k}": s.W(k, 1) * s.x(k - 1),
            f"offset/{k}": s.b(k, 3),
        }
        maps[f"path v/{k}"] = s.W(k, 1) * _probe(block, k)
        for t in s.terms:
            inside = s.pre_activation(k, t)
            parts_of_layers |= {f"inside/{k}/{t}": inside, f"term/{k}/{t}": s.W(k, 3, t) * s.activated(inside, k, t)}
            maps |= {
                f"into v/{k}/{t}": s.W(k, 2, t) * _probe(block, k),
                f"out h/{k}/{t}": s.W(k, 3, t) * _probe(block, k, t),
            }
    table = with_sizes_to_jax(parts_of_layers, functions, block.parameters)(arrays)
    vs = {k: random_like(form.x0, k) for k, form in enumerate(forms, 1)}
    hs = {(k, t): random_like(table[f"inside/{k}/{t}"].value, 100 * k + t) for k in vs for t in s.terms}
    probes = {_probe(block, k): v.reshape(-1, 1) for k, v in vs.items()}
    probes |= {_probe(block, k, t): h.reshape(-1, 1) for (k, t), h in hs.items()}
    table |= with_sizes_to_jax(maps, functions, block.parameters)(arrays | probes)
    for k, form in enumerate(forms, 1):
        parts = [table[f"path/{k}"], table[f"offset/{k}"], *(table[f"term/{k}/{t}"] for t in s.terms)]
        yield compared(k, "the block as written", "the function", form.value, [table[f"written/{k}"]])
        yield compared(k, "Eq. 20 with its parameters", "the function", form.value, parts)
        read, v = "record and replay", vs[k]
        yield compared(k, "W'1 v", read, form.input_map()(v), [table[f"path v/{k}"]])
        yield compared(k, "b'3", read, form.bias(), parts[1:2])
        numbers = matched(form, [(table[f"inside/{k}/{t}"].value, table[f"term/{k}/{t}"].value) for t in s.terms])
        for t, j in zip(s.terms, numbers, strict=True):
            term = f" of term {t}" if len(s.terms) > 1 else ""
            z = form.recording.at(form.terms[j - 1])
            yield compared(k, f"W'2 x + b'2{term}", read, z, [table[f"inside/{k}/{t}"]])
            yield compared(k, f"W'2 v{term}", read, form.inner_map(j)(v), [table[f"into v/{k}/{t}"]])
            h = hs[k, t].reshape(z.shape)
            yield compared(k, f"W'3 h{term}", read, form.outer_map(j)(h), [table[f"out h/{k}/{t}"]])
    whole = {"P": s.P(depth) * s.x(0), "q": s.q(depth)}
    whole |= {f"{j}/{t}": s.C(j, depth, t) * s.activation(j, t) for j in range(1, depth + 1) for t in s.terms}
    parts = list(with_sizes_to_jax(whole, functions, (*s.recursions, *block.parameters))(arrays).values())
    yield compared(None, f"the closed form at depth {depth}", "the functions", forms[-1].value, parts)
