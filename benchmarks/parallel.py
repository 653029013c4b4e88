"""Claim: an unrolled stack's parameters can be computed for all layers in parallel after the forward pass.

Run `python -m benchmarks.parallel`; it writes benchmarks/results/parallel.json, from which `make pages`
fills in the tables in docs/reference/tables/costs.md.

Random layers of one term, the linear path near the identity, 64 of them, in float32, every program jitted but the
recursion and measured in turn in the same run; the numbers' errors are those beside the serial programs in float64.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.parallel_parameters import Parameters, StackedTerms, unroll_in_parallel
from duat_jax.forms.residual_term import ResidualTerm, Term
from duat_jax.reference.recursions import unroll_terms
from experiments.environment import environment
from experiments.markdown import Fields, table

RESULTS = Path("benchmarks/results/parallel.json")
DEPTH, WIDTHS = 64, (16, 32, 64, 128, 256)
WIDEST_RECURSION = 16
"""The recursion carries every earlier term through every layer: beyond, the other serial program stands for it."""
PARTS = Parameters._fields


def random_layers(width: int, dtype: Any) -> tuple[StackedTerms, jax.Array]:
    """Return layers whose products neither vanish nor explode, and an input.

    Args:
        width: features of the stream; there are twice as many neurons.
        dtype: of the numbers, which are those of float32.
    """
    shapes = (width, width), (width,), (2 * width, width), (2 * width,), (width, 2 * width)
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    drawn = [
        jax.random.normal(key, (DEPTH, *shape), jnp.float32) / (8 * width**0.5)
        for key, shape in zip(keys, shapes, strict=False)
    ]
    layers = StackedTerms(jnp.eye(width, dtype=jnp.float32) + drawn[0], *drawn[1:])
    x0 = jax.random.normal(keys[-1], (width,), jnp.float32)
    return jax.tree.map(lambda part: part.astype(dtype), layers), x0.astype(dtype)


def forward(layers: StackedTerms, x0: jax.Array) -> jax.Array:
    """Return the activations of every layer: the plain forward pass, one layer after the other."""

    def layer(x: jax.Array, at: StackedTerms) -> tuple[jax.Array, jax.Array]:
        activation = jnp.tanh(at.inner @ x + at.inner_bias)
        return at.path @ x + at.path_bias + at.outer @ activation, activation

    return jax.lax.scan(layer, x0, layers)[1]


def one_by_one(layers: StackedTerms, activations: jax.Array) -> Parameters:
    """Return the result of `unroll_in_parallel` with the fewest products, one layer after the other."""
    width = layers.path.shape[-1]
    start = jnp.eye(width, dtype=activations.dtype), *jnp.zeros((2, width), activations.dtype)

    def onwards(before: tuple, layer: tuple[StackedTerms, jax.Array]) -> tuple[tuple, tuple]:
        (path, bias, total), (at, activation) = before, layer
        after = at.path @ path, at.path @ bias + at.path_bias, at.path @ total + at.outer @ activation
        return after, (after, at.inner @ path, at.inner_bias + at.inner @ (bias + total))

    def back(after: jax.Array, at: StackedTerms) -> tuple[jax.Array, jax.Array]:
        return after @ at.path, after @ at.outer

    _, (streams, inner, inner_bias) = jax.lax.scan(onwards, start, (layers, activations))
    _, outer = jax.lax.scan(back, start[0], layers, reverse=True)
    first = jax.tree.map(lambda begin, rest: jnp.concatenate([begin[None], rest]), start, streams)
    return Parameters(*first, inner, inner_bias, outer)


def recursion(layers: StackedTerms, x0: jax.Array) -> Parameters:
    """Return the same from the serial recursion, which carries every term to every depth."""
    terms = [
        ResidualTerm(path, path_bias, (Term(inner, inner_bias, outer),))
        for path, path_bias, inner, inner_bias, outer in zip(*layers, strict=True)
    ]
    forms = unroll_terms(terms, jnp.tanh, x0)
    streams = ([form.input, form.bias, form.term_sum()] for form in forms)
    born = ([term.inner, term.inner_bias, term.outer] for term in forms[-1].terms)
    return Parameters(*(jnp.stack(parts) for matrices in (streams, born) for parts in zip(*matrices, strict=True)))


def largest_errors(parameters: Parameters, exact: Parameters) -> dict[str, float]:
    """Return each parameter's largest error, relative to its largest entry."""
    pairs = zip(PARTS, parameters, exact, strict=True)
    return {name: float(jnp.abs(a.astype(b.dtype) - b).max() / jnp.abs(b).max()) for name, a, b in pairs}


def _seconds(programs: dict[str, Callable[[], Any]], least_seconds: float) -> dict[str, dict[str, float]]:
    """Return the times of all programs, measured in turn three times or up to a time limit."""
    for program in programs.values():  # which compiles
        jax.block_until_ready(program())
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    began_all = time.perf_counter()
    while min(map(len, seconds.values())) < 3 or time.perf_counter() - began_all < least_seconds:
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            seconds[name].append(time.perf_counter() - began)
    return {name: {"median": float(np.median(s)), "least": min(s), "repeats": len(s)} for name, s in seconds.items()}


def operations(width: int) -> dict[str, float]:
    """Return the number of multiplications in matrix products, in units of one product of two `W_{i,1}`.

    Args:
        width: features of the stream.
    """
    layers = jax.eval_shape(lambda: random_layers(width, jnp.float32)[0])
    activations = jax.ShapeDtypeStruct(layers.inner_bias.shape, jnp.float32)
    return {
        name: _multiplications(jax.make_jaxpr(program)(layers, activations).jaxpr) / width**3
        for name, program in (("one by one", one_by_one), ("in parallel", unroll_in_parallel))
    }


def _multiplications(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if "jaxpr" in equation.params:  # of a scan or a jitted function
            total += equation.params.get("length", 1) * _multiplications(equation.params["jaxpr"].jaxpr)
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += int(np.prod(equation.outvars[0].aval.shape) * np.prod([left[k] for k in contracted]))
    return total


def measure(width: int, seconds: float) -> dict[str, Any]:
    """Return times and errors at one width.

    Args:
        width: features of the stream.
        seconds: for how long its programs run.
    """
    layers, x0 = random_layers(width, jnp.float32)
    run, serial, parallel = jax.jit(forward), jax.jit(one_by_one), jax.jit(unroll_in_parallel)
    activations = run(layers, x0)
    programs = {
        "forward pass": lambda: run(layers, x0),
        "one by one": lambda: serial(layers, activations),
        "in parallel": lambda: parallel(layers, activations),
    }
    result: dict[str, Any] = {"width": width, "neurons": 2 * width, "seconds": _seconds(programs, seconds)}
    result["operations"] = operations(width)
    slow = width <= WIDEST_RECURSION
    if slow:
        result["seconds"] |= _seconds({"recursion": lambda: recursion(layers, x0)}, 0)
    with jax.enable_x64(True):
        exact_layers, exact_x0 = random_layers(width, jnp.float64)
        exact_activations = run(exact_layers, exact_x0)
        exact = recursion(exact_layers, exact_x0) if slow else serial(exact_layers, exact_activations)
        result["errors"] = {
            "float64, in parallel": largest_errors(parallel(exact_layers, exact_activations), exact),
            "float32, in parallel": largest_errors(parallel(layers, activations), exact),
            "float32, one by one": largest_errors(serial(layers, activations), exact),
        }
    return result


def _page(results: dict[str, Any]) -> str:
    """Return the tables."""
    names = ["forward pass", "in parallel", "one by one", "recursion"]
    rows = []
    for row in results["widths"]:
        times = {name: measured["least"] for name, measured in row["seconds"].items()}
        cells = [f"{1e3 * times[name]:,.2f} ms" if name in times else "" for name in names]
        ratios = (by_name["in parallel"] / by_name["one by one"] for by_name in (times, row["operations"]))
        rows.append([str(row["width"]), *cells, *(f"{ratio:.2f}" for ratio in ratios)])
    errors = [
        [str(row["width"]), *(f"{max(errors.values()):.0e}" for errors in row["errors"].values())]
        for row in results["widths"]
    ]
    head = ["features", *names, "times, ratio", "products, ratio"]
    return "\n".join([*table(head, rows), "", *table(["features", *results["widths"][0]["errors"]], errors)])


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: what was kept.
    """
    return {"tables": _page(results)}


def main() -> None:
    """Run the measurements, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12, help="for how long the programs of one width run")
    arguments = parser.parse_args()
    rows = []
    for width in WIDTHS:
        rows.append(measure(width, arguments.seconds))
        print(json.dumps(rows[-1]), flush=True)
    keep({"environment": environment(), "depth": DEPTH, "widths": rows})


def keep(results: dict[str, Any]) -> None:
    """Write the results and the page's tables.

    Args:
        results: what was measured.
    """
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
