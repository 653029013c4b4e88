"""Probes: a few lines that ask a package for a number, with what happens in this package beside it.

Each imports its package when it is run, so that it runs wherever that package alone is installed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Probe(NamedTuple):
    """A question to a package.

    Args:
        name: its name in the kept results.
        package: the package whose version decides.
        what: what is asked, in Markdown.
        here: what this package does there, in Markdown.
        source: module and function.
        run: asks, and returns the answer in Markdown.
    """

    name: str
    package: str
    what: str
    here: str
    source: str
    run: Callable[[], str]


PROBES: dict[str, Probe] = {}
"""The probes by their names, in the order of the page."""


def probe(package: str, what: str, *, here: str, source: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Add a function to the probes.

    Args:
        package: the package whose version decides.
        what: what is asked.
        here: what this package does there.
        source: module and function.
    """

    def add(run: Callable[[], str]) -> Callable[[], str]:
        PROBES[run.__name__] = Probe(run.__name__, package, what, here, source, run)
        return run

    return add


OWN_CODE = "no part of a model here computes it; in your own function the forms follow JAX"


@probe(
    "jax",
    "gradient of `hypot` at (0, 0)",
    here="`duat.secant` from (0, 0) to (3, 4) has parts of −1.8 and −2.7 and a jump of −0.5; with JAX 0.12, whose"
    " `hypot` scales small numbers, parts of 10²² that cancel, and a note that says so: write"
    " `sqrt(x² + y²)`, whose parts are −1.8 and −3.2",
    source="`jax.numpy.hypot`: `_hypot` with a `defjvp` in 0.12, none in 0.11.2",
)
def hypot_at_zero() -> str:
    """Return the gradient in both arguments."""
    import jax
    import jax.numpy as jnp

    return str([float(part) for part in jax.grad(jnp.hypot, (0, 1))(0.0, 0.0)])


@probe(
    "jax",
    "gradient of `abs` at 0",
    here="`duat.secant` from 0 to 0 has the slope 0, the middle",
    source="`jax.lax.abs`",
)
def abs_at_zero() -> str:
    """Return the gradient."""
    import jax
    import jax.numpy as jnp

    return str(float(jax.grad(jnp.abs)(0.0)))


@probe(
    "jax",
    'gradient of the update in `x.at[5].max(v, mode="clip")`, `x` three zeros, `v` = 1',
    here="`duat.decompose` refuses it as not affine; `duat.secant` is the difference of the values",
    source="`jax._src.lax.slicing`, the derivative of `scatter_max`",
)
def scatter_max_clipped() -> str:
    """Return the gradient."""
    import jax
    import jax.numpy as jnp

    return str(float(jax.grad(lambda v: jnp.zeros(3).at[5].max(v, mode="clip").sum())(1.0)))


@probe(
    "jax",
    "`float32(1) // float32(0)`",
    here=OWN_CODE,
    source="`jax.numpy.floor_divide`, by `_float_divmod` of its module",
)
def floor_division_by_zero() -> str:
    """Return the quotient."""
    import jax.numpy as jnp

    return str(float(jnp.float32(1) // jnp.float32(0)))


@probe("jax", "`int32(1) // int32(0)`", here=OWN_CODE, source="`jax.numpy.floor_divide`")
def whole_division_by_zero() -> str:
    """Return the quotient."""
    import jax.numpy as jnp

    return str(int(jnp.int32(1) // jnp.int32(0)))


@probe(
    "jax",
    "entry 502 of `linspace(-4, 4, 1001, dtype=bfloat16)`, which is 0.016",
    here="no model here has a `linspace`",
    source="`jax.numpy.linspace`, by `_linspace`, which multiplies a step by whole numbers in 0.12",
)
def bfloat16_linspace() -> str:
    """Return the entry."""
    import jax.numpy as jnp

    return str(float(jnp.linspace(-4, 4, 1001, dtype=jnp.bfloat16)[502]))


@probe("jax", "error of `lgamma(0.99)` in float32", here=OWN_CODE, source="`jax.lax.lgamma`; since 0.12 `lgamma_impl`")
def lgamma_near_its_zero() -> str:
    """Return the size of the relative error."""
    import math

    import jax
    import jax.numpy as jnp

    exact = math.lgamma(float(jnp.float32(0.99)))
    relative = abs(float(jax.lax.lgamma(jnp.float32(0.99))) - exact) / abs(exact)
    return "more than 1e-4" if relative > 1e-4 else "less than 1e-6" if relative < 1e-6 else f"{relative:.0e}"


@probe(
    "jax",
    "flops that the cost analysis counts for a scan of ten products, against the same written out",
    here="tables of compiled programs say that a loop's body counts once",
    source="`jax.stages.Compiled.cost_analysis`",
)
def cost_of_a_scan() -> str:
    """Return the ratio."""
    import jax
    import jax.numpy as jnp

    def flops(unroll: int) -> float:
        def powers(x: Any) -> Any:
            return jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=10, unroll=unroll)[0]

        return jax.jit(powers).lower(jnp.ones((32, 32))).compile().cost_analysis()["flops"]

    return f"{flops(1) / flops(10):.1f}"


def _norm_dtype(norm: Callable[[], Any]) -> str:
    """Return the dtype of a norm of bfloat16 features, whose own parameters are float32."""
    import jax.numpy as jnp

    return str(norm()(jnp.ones(8, jnp.bfloat16)).dtype)


def _moved(norm: Callable[[], Any]) -> str:
    """Return whether a norm of features to which 10,000 is added is that of the features."""
    import jax.numpy as jnp

    features = jnp.linspace(1, 2, 8)
    return "changes by more than 1" if abs(norm()(features + 1e4) - norm()(features)).max() > 1 else "the same to 0.01"


def _flax_norm() -> Any:
    from flax import nnx

    return nnx.LayerNorm(8, rngs=nnx.Rngs(0))


def _equinox_norm() -> Any:
    import equinox

    return equinox.nn.LayerNorm(8)


OWN_NORM = "weights loaded in bfloat16 are computed with in float32, and the output is float32"
TWO_PASSES = "the features' mean is subtracted before they are squared: the same to 0.01"


@probe("flax", "dtype of `nnx.LayerNorm` of bfloat16", here=OWN_NORM, source="`flax.nnx.nn.normalization`")
def flax_norm_dtype() -> str:
    """Return the dtype."""
    return _norm_dtype(_flax_norm)


@probe("equinox", "dtype of `nn.LayerNorm` of bfloat16", here=OWN_NORM, source="`equinox.nn.LayerNorm.__call__`")
def equinox_norm_dtype() -> str:
    """Return the dtype."""
    return _norm_dtype(_equinox_norm)


@probe(
    "flax",
    "`nnx.LayerNorm` in float32, 10,000 added to every feature",
    here=TWO_PASSES,
    source="`flax.nnx.LayerNorm`, whose `use_fast_variance` takes the difference of two means",
)
def flax_norm_moved() -> str:
    """Return whether it changes."""
    return _moved(_flax_norm)


@probe(
    "equinox",
    "`nn.LayerNorm` in float32, 10,000 added to every feature",
    here=TWO_PASSES,
    source="`equinox.nn.LayerNorm.__call__`",
)
def equinox_norm_moved() -> str:
    """Return whether it changes."""
    return _moved(_equinox_norm)


IDS = "`explain` refuses an id outside the vocabulary, −1 too, before anything is computed"


@probe("flax", "`nnx.Embed` of four rows, rows 5 and −1", here=IDS, source="`flax.nnx.Embed`, by `jnp.take`")
def flax_embedding_outside() -> str:
    """Return what is read."""
    import jax.numpy as jnp
    from flax import nnx

    table = nnx.Embed(4, 1, rngs=nnx.Rngs(0))
    outside, negative = table(jnp.array([5, -1]))
    return ("NaN" if jnp.isnan(outside).all() else "a row") + (
        ", the last row" if (negative == table(jnp.array(3))).all() else ", another"
    )


@probe("equinox", "`nn.Embedding` of four rows, row 5", here=IDS, source="`equinox.nn.Embedding.__call__`, by indexing")
def equinox_embedding_outside() -> str:
    """Return what is read."""
    import equinox
    import jax
    import jax.numpy as jnp

    table = equinox.nn.Embedding(4, 1, key=jax.random.key(0))
    return "the last row" if (table(jnp.array(5)) == table.weight[-1]).all() else "another"


@probe(
    "flax",
    "`nnx.MultiHeadAttention` in bfloat16, its patterns recorded by `sow_weights`",
    here="`duat.record` compiled as the model is compiled has the same output, bit for bit",
    source="`flax.nnx.dot_product_attention`, which leaves `jax.nn.dot_product_attention` for an einsum",
)
def flax_sow() -> str:
    """Return whether the output has the same bits."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    attention = nnx.MultiHeadAttention(4, 64, 64, decode=False, dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(1), (1, 16, 64)).astype(jnp.bfloat16)
    changed = float((attention(x) != attention(x, sow_weights=True)).mean())
    return "another output in more than a third of the entries" if changed > 1 / 3 else f"{changed:.2f} of it changes"


@probe(
    "optax",
    "`softmax_cross_entropy_with_integer_labels` of a label that isn't there",
    here="`evaluation.mean_loss` is NaN too, and `lora.train` stops with `NotFinite`",
    source="`optax.losses`, by `jnp.take_along_axis`",
)
def optax_label_outside() -> str:
    """Return the loss."""
    import jax.numpy as jnp
    import optax

    return str(float(optax.softmax_cross_entropy_with_integer_labels(jnp.zeros((1, 2)), jnp.array([2]))[0]))
