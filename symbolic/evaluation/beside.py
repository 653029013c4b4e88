"""A block's formulas evaluated beside the function that they are said to describe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from sympy import MatrixExpr, sympify

import duat_jax as duat
from duat_jax.forms.completeness import entrywise_completeness
from symbolic.errors import NumbersDiffer, SymbolicError
from symbolic.evaluation.bridge import Activate, name_of, parameters_of, to_jax
from symbolic.expressions.activation import Activation
from symbolic.expressions.parameter import Held, Ones, Parameter
from symbolic.theorems.residual_stack import i

Layer = Callable[[Array], Array]


class Row(NamedTuple):
    """One number of a block's formulas beside the same number from elsewhere.

    Args:
        layer: the layer, counted from 1; the whole stack if None.
        formula: what was evaluated.
        beside: what it was compared with.
        difference: the absolute difference that is largest beside its tolerance.
        tolerance: what rounding may do there.
        holds: whether every difference is within its tolerance, and the tolerance small beside what is compared.
    """

    layer: int | None
    formula: str
    beside: str
    difference: float
    tolerance: float
    holds: bool


class Numbers(NamedTuple):
    """What became of a block's formulas beside its function.

    Args:
        rows: every comparison.
    """

    rows: tuple[Row, ...]

    @property
    def holds(self) -> bool:
        """Whether all of them agree."""
        return all(row.holds for row in self.rows)

    def __str__(self) -> str:
        wide = max(len(row.formula) for row in self.rows)
        other = max(len(row.beside) for row in self.rows)
        return "\n".join(
            f"{'✓' if row.holds else '✗'} {'stack' if row.layer is None else f'layer {row.layer}':8s}"
            f" {row.formula:{wide}s}  {row.beside:{other}s}  {row.difference:.1e} of {row.tolerance:.1e}"
            + (", which says nothing" if row.difference <= row.tolerance and not row.holds else "")
            for row in self.rows
        )


def _row(layer: int | None, formula: str, beside: str, value: Array, parts: Sequence[Array]) -> Row:
    found = entrywise_completeness(value, [part.reshape(value.shape) for part in parts])
    errors, bounds = np.abs(np.asarray(found.error)).ravel(), np.asarray(found.tolerance).ravel()
    worst = int(np.argmax(np.where(errors == 0, 0, errors / np.where(bounds == 0, np.nan, bounds))))
    # Where all parts are zero there is nothing that a tolerance could hide.
    told = np.asarray(found.says_something) | (np.asarray(found.largest) == 0)
    holds = bool(np.all(np.asarray(found.within) & told))
    return Row(layer, formula, beside, float(errors[worst]), float(bounds[worst]), holds)


def _as_matrix(array: Array, parameter: Parameter) -> Array:
    return array.reshape(-1, 1) if parameter.shape[1] == 1 and array.ndim == 1 else array


def _arrays(block: Any, k: int, layer: duat.Recording, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the array of every parameter of layer k by its name, and say all that is missing at once."""
    held = {key.name: value for key, value in layer.dynamics.held.items()}
    of_layers = {p.letter for p in (*block.weights, *block.held) if p.lower[:1] == (i + 1,)}
    streams = {block.stream.letter} | {vector.letter for vector in block.written.atoms(Ones)}
    arrays, missing = {}, []
    for name, parameter in parameters_of(block.written.xreplace({i: sympify(k - 1)})).items():
        if parameter.letter in streams:
            continue
        rows, columns = parameter.shape
        lower = parameter.lower[1:] if parameter.letter in of_layers else parameter.lower
        given = name_of(parameter.func(parameter.letter, lower, rows, columns, parameter.upper))
        source = held if isinstance(parameter, Held) and given not in weights else weights
        if given not in source:
            what = "hold(…, name) of the function" if isinstance(parameter, Held) else "weights"
            missing.append(f"{given} ({rows} × {columns}) in {what}")
            continue
        arrays[name] = _as_matrix(jnp.asarray(source[given]), parameter)
    if missing:
        raise SymbolicError(f"layer {k}: no array for {', '.join(missing)}; held are {', '.join(held) or 'none'}")
    return arrays


def _ones(block: Any, x: Array, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the vectors of ones, whose sizes stand in the shapes of the stream or of a weight."""
    shapes = [(block.stream.shape, x.shape)]
    shapes += [(p.shape, jnp.shape(weights[p.letter])) for p in block.weights if p.letter in weights]
    sizes = {size: number for pair in shapes for size, number in zip(*pair, strict=False)}
    needed = block.written.atoms(Ones)
    unknown = [str(vector) for vector in needed if not (vector.shape[0].is_Integer or vector.shape[0] in sizes)]
    if unknown:
        raise SymbolicError(f"the length of {', '.join(unknown)} is in no shape of a weight: give it as a number")
    return {name_of(vector): jnp.ones((int(sizes.get(vector.shape[0], vector.shape[0])), 1)) for vector in needed}


def _matched(form: duat.ClosedForm, ours: Sequence[tuple[Array, Array]]) -> list[int]:
    """Return the number of the function's term for each of ours: the nearest in pre-activation and contribution."""
    theirs = list(zip(map(form.recording.at, form.terms), form.term_contributions(), strict=True))
    if len(theirs) != len(ours):
        raise NumbersDiffer(
            f"the function has {len(theirs)} terms and the block {len(ours)}: mark every activation of the"
            " function with term(σ, z, name), and write every one of them in the block"
        )
    found: list[int] = []
    for parts in ours:
        near = {
            j: sum(float(jnp.abs(a.ravel() - b.ravel()).max()) for a, b in zip(term, parts, strict=True))
            for j, term in enumerate(theirs, 1)
            if j not in found and term[0].size == parts[0].size
        }
        if not near:
            raise NumbersDiffer("the function's activations have other sizes than the block's: compare their shapes")
        found.append(min(near, key=near.__getitem__))
    return found


def _check(block: Any, functions: Sequence[Layer], weights: Sequence[Any], activation: Any) -> None:
    if not functions or len(functions) != len(weights):
        raise SymbolicError(
            f"{len(functions)} functions and {len(weights)} mappings of weights: give one of each for a layer"
        )
    if not all(callable(function) for function in functions):
        raise SymbolicError("a layer's function can't be called: give a marked function of the stream")
    if not all(isinstance(of_layer, Mapping) for of_layer in weights):
        raise SymbolicError("the weights of a layer are no mapping: give an array by letter")
    known = activation if isinstance(activation, Mapping) else {}
    missing = sorted({p.function for p in block.written.atoms(Activation)} - known.keys())
    if missing and not callable(activation):
        raise SymbolicError(f"no function for {', '.join(missing)}: give one by name, as jax.nn.gelu for gelu")


def _checked(block: Any, k: int, form: duat.ClosedForm, stream: Array) -> duat.ClosedForm:
    """Return a layer's form if its result is a stream like the one before, and no weight of the block is held in it."""
    if not isinstance(form.value, jax.Array) or form.value.shape != stream.shape:
        shape = getattr(form.value, "shape", "no single array")
        raise SymbolicError(f"layer {k} gets {stream.shape} and returns {shape}: give a function from stream to stream")
    letters = {parameter.letter for parameter in block.weights}
    if moved := sorted({key.name for key in form.dynamics.held} & letters):
        raise NumbersDiffer(
            f"{', '.join(moved)} is held in the function and stands still in the block: write it as held(…)"
        )
    return form


def _random(like: Array, seed: int) -> Array:
    return jax.random.normal(jax.random.key(seed), like.shape, like.dtype)


def _probe(block: Any, k: int, term: int | None = None) -> Parameter:
    """Return the symbol of a random vector, with which a whole map is compared and not its value at x alone."""
    # A letter that no user's matrix can have.
    size = block.stack.width if term is None else block.stack.sizes[term - 1]
    return Parameter("?", (k,) if term is None else (k, term), size, 1)


def beside(
    block: Any,
    functions: Sequence[Layer],
    x: Array,
    weights: Sequence[Mapping[str, Array]],
    activation: Activate | Mapping[str, Activate],
) -> Numbers:
    """Evaluate a block's formulas with a function's own parameters, beside the function.

    Of every layer: the block as it is written, and Eq. 20 with the parameters that were read off, beside the function's
    result; and each part of Eq. 20 beside the same part as record and replay read it from the function's program, the
    matrices by what they make of random vectors v and h. `σ` is taken as it is given, and seen at this input alone. Of
    the stack: the closed form at the last depth beside all functions, one after the other.

    Args:
        block: the block.
        functions: one marked function for each layer.
        x: the stream that enters the first one, in the block's shape.
        weights: the weights of each layer by name; what is held comes from the marks of the same name.
        activation: `σ`, or a function for every name.

    Raises:
        SymbolicError: naming every array that is missing.
        NumbersDiffer: if the function isn't the block: what differs, and where.
    """
    _check(block, functions, weights, activation)
    return Numbers(tuple(_rows(block, functions, jnp.asarray(x), weights, activation)))


def _rows(
    block: Any,
    functions: Sequence[Layer],
    x: Array,
    weights: Sequence[Mapping[str, Array]],
    activation: Activate | Mapping[str, Activate],
) -> Iterator[Row]:
    s, depth, stream = block.stack, len(functions), x
    arrays = _ones(block, x, weights[0])
    forms = []

    def at(k: int, expression: MatrixExpr) -> MatrixExpr:
        return expression.xreplace({i: sympify(k - 1)})

    for k, (function, of_layer) in enumerate(zip(functions, weights, strict=True), 1):
        form = _checked(block, k, duat.unroll(function, stream), stream)
        forms.append(form)
        arrays |= _arrays(block, k, form.recording, of_layer)
        arrays[name_of(at(k, block.stream))] = stream
        arrays[name_of(s.x(k - 1))] = stream.reshape(-1, 1)
        stream = form.value

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
            parts_of_layers |= {
                f"inside/{k}/{t}": inside,
                f"term/{k}/{t}": s.W(k, 3, t) * s.activated(inside, t),
            }
            maps |= {
                f"into v/{k}/{t}": s.W(k, 2, t) * _probe(block, k),
                f"out h/{k}/{t}": s.W(k, 3, t) * _probe(block, k, t),
            }
    table = to_jax(parts_of_layers, activation, block.parameters)(arrays)
    vs = {k: _random(form.x0, k) for k, form in enumerate(forms, 1)}
    hs = {(k, t): _random(table[f"inside/{k}/{t}"], 100 * k + t) for k in vs for t in s.terms}
    probes = {name_of(_probe(block, k)): v.reshape(-1, 1) for k, v in vs.items()}
    probes |= {name_of(_probe(block, k, t)): h.reshape(-1, 1) for (k, t), h in hs.items()}
    table |= to_jax(maps, activation, block.parameters)(arrays | probes)
    for k, form in enumerate(forms, 1):
        parts = [table[f"path/{k}"], table[f"offset/{k}"], *(table[f"term/{k}/{t}"] for t in s.terms)]
        yield _row(k, "the block as written", "the function", form.value, [table[f"written/{k}"]])
        yield _row(k, "Eq. 20 with its parameters", "the function", form.value, parts)
        read, v = "record and replay", vs[k]
        yield _row(k, "W'1 v", read, form.input_map()(v), [table[f"path v/{k}"]])
        yield _row(k, "b'3", read, form.bias(), parts[1:2])
        numbers = _matched(form, [(table[f"inside/{k}/{t}"], table[f"term/{k}/{t}"]) for t in s.terms])
        for t, j in zip(s.terms, numbers, strict=True):
            of = f" of term {t}" if len(s.terms) > 1 else ""
            z = form.recording.at(form.terms[j - 1])
            yield _row(k, f"W'2 x + b'2{of}", read, z, [table[f"inside/{k}/{t}"]])
            yield _row(k, f"W'2 v{of}", read, form.inner_map(j)(v), [table[f"into v/{k}/{t}"]])
            h = hs[k, t].reshape(z.shape)
            yield _row(k, f"W'3 h{of}", read, form.outer_map(j)(h), [table[f"out h/{k}/{t}"]])
    whole = {"P": s.P(depth) * s.x(0), "q": s.q(depth)}
    whole |= {f"{j}/{t}": s.C(j, depth, t) * s.activation(j, t) for j in range(1, depth + 1) for t in s.terms}
    parts = list(to_jax(whole, activation, (*s.recursions, *block.parameters))(arrays).values())
    yield _row(None, f"the closed form at depth {depth}", "the functions", forms[-1].value, parts)
