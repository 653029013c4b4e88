"""Both ways the secant is the same, of equal inputs the gradient; JAX transforms it further; what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_input, near, numbers, relative
from jax import lax
from two_inputs import X, Y, sums, tanh_slope

import duat_jax as duat
from duat_jax.transform.secant import changed_value, softmax
from duat_jax.transform.secant import elementwise_secants as secants

# --- Equal inputs, exchanged inputs ---------------------------------------------------------------------------------

SMOOTH = {
    "a norm and a gate": lambda x: (jax.nn.silu(x[0] * lax.rsqrt(jnp.square(x[0]).mean() + 0.1)) * x[1]).sum(),
    "attention": lambda x: (jax.nn.softmax(x @ x.T) @ x)[0, 0],
    "a product of powers": lambda x: jnp.prod(jnp.cosh(x[0])) * jnp.exp(x[1]).sum() / (1 + jnp.square(x[2]).sum()),
    "a logarithm": lambda x: jnp.log(1 + jnp.square(x).sum()) * jnp.linalg.norm(x[:2]),
}


DISTANCES = (1e-2, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15)


@pytest.fixture(scope="module")
def smooth():
    """The secants of `SMOOTH` at one input against others: itself, another one both ways, and some ever nearer."""
    x, direction = make_input(), make_input(key=5)
    pairs = [(x, x), (x, direction), (direction, x), *((x + h * direction, x - h * direction) for h in DISTANCES)]
    first, second = (jnp.stack(side) for side in zip(*pairs))
    gradients = jax.jit(lambda x: {name: jax.grad(fn)(x) for name, fn in SMOOTH.items()})(x)
    secants = jax.jit(lambda x, y: {name: jax.vmap(duat.secant(fn))(x, y) for name, fn in SMOOTH.items()})
    return secants(first, second), gradients


@pytest.mark.parametrize("name", SMOOTH)
def test_of_an_input_and_itself_it_is_the_gradient(name, smooth):
    found, gradients = smooth[0][name], smooth[1]
    close(found.multiplier[0], gradients[name], layers=10)
    assert found.difference[0] == 0 and not found.parts[0].any()


@pytest.mark.parametrize("name", SMOOTH)
def test_both_ways_the_multiplier_is_the_same(name, smooth):
    found = smooth[0][name]
    close(found.multiplier[1], found.multiplier[2])
    close(found.parts[1], -found.parts[2])
    assert found.difference[1] == -found.difference[2] != 0
    assert found.completeness.holds[1:3].all()


@pytest.mark.parametrize("name", SMOOTH)
def test_near_the_multiplier_is_the_gradient_at_the_midpoint(name, smooth):
    """To the square of the distance: of a tenth of it, a hundredth."""
    found, gradients = smooth[0][name], smooth[1]
    far, near = (np.abs(found.multiplier[i] - gradients[name]).max() for i in (3, 4))
    assert 50 < far / near < 200


@pytest.mark.parametrize("name", SMOOTH)
def test_however_near_the_parts_sum(name, smooth):
    found = smooth[0][name]
    assert found.completeness.within.all()
    assert jnp.isfinite(found.multiplier).all()


def test_a_quotient_is_split_at_any_scale():
    """Of two sums its parts are the same at each, in float32 too, where squares and their inverses are out of range."""
    multiplier = (1 / X[0] + 1 / Y[0]) / 2 * np.ones(len(X))
    multiplier[0] -= (X.sum() + Y.sum()) / 2 / (X[0] * Y[0])
    scales = jnp.array([[1e-25], [1.0], [1e30]])
    x, y = (jnp.asarray(scales * z, "float32") for z in (X, Y))
    found = jax.jit(jax.vmap(duat.secant(lambda x: x.sum() / x[0])))(x, y)
    relative(found.parts, np.tile(multiplier * (X - Y), (3, 1)), within=1e-5)


def test_a_root_of_zero_that_stays_zero_has_no_part():
    """As the norm of a row of padding, of which the gradient isn't a number."""
    rows = jnp.array([1.0, 1.0, 0.0])[:, None]
    secant = duat.secant(lambda x: jnp.sqrt(jnp.square(rows * x).sum(1)).sum())
    x, y = (jnp.broadcast_to(jnp.array(z), (3, 4)) for z in (X, Y))
    close(sums(secant(x, y)).multiplier, rows * (X + Y) / (np.linalg.norm(X) + np.linalg.norm(Y)))


# --- With JAX's other transformations -------------------------------------------------------------------------------


def product_of_exponentials(x):
    return jnp.exp(x[0]) * jnp.exp(x[1])


def test_it_is_the_same_compiled_operation_by_operation_and_mapped_over_baselines():
    x, baselines = jnp.array(X), jnp.array([Y, 2 * Y, X])
    secant = duat.secant(product_of_exponentials)
    mapped = jax.jit(jax.vmap(secant, (None, 0)))(x, baselines)
    for k, baseline in enumerate(baselines):
        for alone in (secant(x, baseline), jax.jit(secant)(x, baseline)):
            close(mapped.multiplier[k], alone.multiplier)
            close(mapped.parts[k], alone.parts)
            close(mapped.difference[k], alone.difference)
            assert alone.completeness.within and mapped.completeness.within[k]


def test_it_composes_with_vmap_over_read_outs_and_jumps():
    x, y = jnp.array(X), jnp.array(Y)

    def vector(x):
        return jnp.where(x > 0, x * x.sum(), -x)

    def one(place):
        return duat.secant(lambda x: vector(x)[place])(x, y)

    found = jax.jit(jax.vmap(one))(jnp.arange(4))
    totals = found.parts.sum(1) + sum(found.discontinuities.values())
    close(totals, vector(x) - vector(y))
    assert found.completeness.within.all()


def test_it_can_be_differentiated():
    """The part of one input as a function of it: of a product, half the sum of the other's."""
    x, y = jnp.array([2.0, 3.0]), jnp.array([-1.0, 5.0])
    part = jax.jit(jax.grad(lambda x: duat.secant(lambda x: x[0] * x[1])(x, y).parts[0]))(x)
    close(part, jnp.array([4.0, 1.5]))


def test_arguments_are_pytrees_and_whole_numbers_among_them_jump():
    def fn(arguments):
        table = arguments["table"] * arguments["scale"]
        return table[arguments["ids"]].sum() + arguments["nothing"].sum() * 0

    first = {"table": jnp.array([1.0, 2.0, 4.0]), "scale": jnp.float64(2.0), "ids": jnp.array([0, 2])}
    second = {"table": jnp.array([0.0, 1.0, 1.0]), "scale": jnp.float64(1.0), "ids": jnp.array([1, 2])}
    first, second = (tree | {"nothing": jnp.zeros((0,))} for tree in (first, second))
    found = sums(jax.jit(duat.secant(fn))(first, second))
    assert jax.tree.structure(found.multiplier) == jax.tree.structure(first)
    # Scaled rows: (0, 1) at (2, 4) and (0, 1), with the first id moved from one to the other; (2) from 8 to 1.
    close(sum(found.discontinuities.values()), ((2 - 4) + (0 - 1)) / 2)
    scaled = [np.array([2.0, 4.0, 8.0]), np.array([0.0, 1.0, 1.0])]
    reads = np.array([0.5, 0.5, 1.0])
    close(found.parts["table"], reads * 1.5 * (first["table"] - second["table"]))
    close(found.parts["scale"], (reads * np.array([0.5, 1.5, 2.5])).sum())
    close(sum(float(p.sum()) for k, p in found.parts.items() if k != "ids"), (reads * (scaled[0] - scaled[1])).sum())


def test_arrays_that_are_closed_over_stand_still():
    weights = jnp.array(numbers(3, 3))
    x, y = jnp.array(numbers(3, key=1)), jnp.array(numbers(3, key=2))
    found = sums(jax.jit(duat.secant(lambda x: jnp.tanh(weights @ x).sum()))(x, y))
    inside = [np.asarray(weights) @ np.asarray(z) for z in (x, y)]
    close(found.multiplier, np.asarray(weights).T @ tanh_slope(*inside))


RELAYED = {
    "transposed": lambda w: w.T,
    "in another dtype": lambda w: w.astype(jnp.float32).astype(w.dtype),
    "reshaped": lambda w: w.reshape(2, -1, w.shape[-1]).reshape(w.shape),
    "cut and joined": lambda w: jnp.concatenate([w[2:], w[:2]]),
    "split": lambda w: jnp.split(w, 2)[1],
    "squared": lambda w: w * w,
    "looked up": lambda w: w[jnp.array([3, 0, 3, 1])],
    "scanned": lambda w: lax.scan(lambda carry, row: (carry + row, carry * row), w[0], w)[1],
    "in a branch": lambda w: lax.cond(w[0, 0] > 0, lambda w: w.T, lambda w: w, w),
    "recomputed": jax.checkpoint(lambda w: jnp.sin(w.T)),
}


@pytest.mark.parametrize("name", RELAYED)
def test_weights_that_are_rearranged_are_split_as_where_they_are_stored_so(name):
    """The multiplier of a weight is that of what it becomes, pulled back: the mean is passed on, or computed anew."""
    change, x = RELAYED[name], jnp.linspace(-1.0, 1.0, 4)
    a, b = jnp.array(numbers(2, 4, 4))
    read = jnp.linspace(1.0, 2.0, change(a).shape[0])

    def use(w):
        return jnp.tanh(w @ x) @ read

    found = duat.secant(lambda w: use(change(w)))(a, b)
    assert found.completeness.verdict == "holds"
    if name in {"transposed", "reshaped", "cut and joined", "split", "looked up"}:  # linear, so that it has a transpose
        inner = duat.secant(use)(change(a), change(b))
        close(found.multiplier, jax.linear_transpose(change, a)(inner.multiplier)[0])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_the_mean_of_converted_weights_is_that_of_what_they_become(dtype):
    """In float16 the sum of both points isn't finite, in bfloat16 their mean isn't a number."""
    high, low = (40000, 40000) if dtype == jnp.float16 else (1.0078125, 1.0)
    a, b = ({"w": jnp.full((1, 2), w, dtype), "h": h} for w, h in ((high, jnp.array([1.0, 2.0])), (low, jnp.zeros(2))))
    found = duat.secant(lambda x: (x["w"].astype(jnp.float64).T.T @ x["h"]).sum())(a, b)
    close(found.multiplier["h"], np.full(2, (high + low) / 2))


@pytest.mark.parametrize("masked", [False, True])
def test_a_secant_through_masked_scores_can_be_differentiated(masked):
    """The reference is a difference of two secants."""
    seen = jnp.tri(3, dtype=bool)

    def attend(a):
        scores = jnp.outer(a, a)
        pattern = jax.nn.softmax(scores, where=seen) if masked else jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        return (pattern @ a)[1]

    def part(a):
        return duat.secant(attend)(a, jnp.array([0.5, 0.7, 0.2])).parts[0]

    at, step = jnp.array([1.0, 2.0, 0.4]), 1e-5
    slopes = [(part(at + step * one) - part(at - step * one)) / (2 * step) for one in jnp.eye(3)]
    near(jax.grad(part)(at), np.array(slopes), 1e-8)


def test_whole_numbers_and_truth_values_are_rearranged_too():
    def fn(x):
        chosen = x["which"].reshape(4).astype(jnp.float64) + jnp.where(x["mask"].T, 1.0, 0.0)[0]
        return (chosen * x["weight"].T[0]).sum()

    a = {"which": jnp.arange(4).reshape(2, 2), "mask": jnp.eye(4, dtype=bool), "weight": jnp.array(numbers(4, 4))}
    b = {"which": a["which"] + 1, "mask": ~a["mask"], "weight": 2 * a["weight"]}
    found = duat.secant(fn)(a, b)
    assert found.completeness.verdict == "holds"
    close(found.difference, fn(a) - fn(b))


def apply_one_by_one(weights):
    x = jnp.ones(256)
    for w in weights:
        x = jnp.tanh(w.T @ x)
    return x.sum()


def apply_in_a_scan(weights):
    return lax.scan(lambda x, w: (jnp.tanh(w.T @ x), None), jnp.ones(256), weights)[0].sum()


@pytest.mark.parametrize("apply, gather, weights", [(apply_one_by_one, list, 4), (apply_in_a_scan, jnp.stack, 14)])
def test_weights_are_not_copied(apply, gather, weights):
    """A difference in twelve weights needs no room for both points of them; a scan keeps their means."""
    one = gather([jnp.eye(256)] * 12)
    program = jax.jit(lambda a, b: duat.secant(apply)(a, b).multiplier)
    assert program.lower(one, one).compile().memory_analysis().temp_size_in_bytes < weights * 256 * 256 * 8


def test_what_does_not_depend_on_its_argument_has_no_difference():
    found = duat.secant(lambda x: jnp.float64(3.0))(jnp.ones(2), jnp.zeros(2))
    assert found.difference == 0 and not found.multiplier.any() and found.discontinuities == {}


@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16", "float32"])
def test_everything_is_of_the_dtype_of_its_argument(dtype):
    x, y = (jnp.array(numbers(4, key=key), dtype) for key in (1, 2))
    found = jax.jit(duat.secant(lambda x: jnp.tanh(x).sum() * jax.nn.softmax(x)[0]))(x, y)
    assert {found.multiplier.dtype, found.parts.dtype, found.difference.dtype} == {jnp.dtype(dtype)}
    assert found.completeness.within


# --- What it can't do -----------------------------------------------------------------------------------------------

REFUSED = {
    "a vector": (lambda x: 2 * x, "one real number|scalar"),
    "a tree": (lambda x: {"a": x.sum(), "b": x.sum()}, "one real number|scalar"),
    "a complex number": (lambda x: x.sum().astype(complex), "real"),
    "a whole number": (lambda x: jnp.argmax(x), "real|floating"),
    "complex numbers inside": (lambda x: jnp.abs(jnp.fft.fft(x)).sum(), "complex"),
    "a loop without an end": (
        lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: 2 * c, jnp.exp(x)).sum(),
        "while.*scan",
    ),
    "a factorisation": (lambda x: jnp.linalg.eigh(x * jnp.eye(4))[0].sum(), "eigh"),
    "a callback": (lambda x: jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), x.dtype), x) * x[0], "callback"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(name):
    fn, message = REFUSED[name]
    with pytest.raises(duat.DuatError, match=message) as raised:
        duat.secant(fn)(jnp.array(X), jnp.array(Y))
    if "while" in message or name == "a factorisation":
        assert __file__ in str(raised.value)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (jnp.ones(3), r"shape.*\(4,\).*\(3,\)|\(3,\).*\(4,\)"),
        ({"a": jnp.ones(4)}, "structure|tree"),
        (jnp.ones(4, jnp.float32), "float32"),
    ],
    ids=["shape", "structure", "dtype"],
)
def test_inputs_that_are_not_alike_are_refused(y, message):
    with pytest.raises(duat.DuatError, match=message):
        duat.secant(jnp.sum)(jnp.ones(4), y)


def test_a_secant_of_a_shard_is_refused():
    mesh, rows = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",)), jax.sharding.PartitionSpec("rows")

    def parts(x, y):
        return duat.secant(lambda z: jnp.tanh(z).sum())(x, y).parts

    for options in ({}, {"check_vma": False}):
        with pytest.raises(duat.UnsupportedProgram, match=r"inside of jax.shard_map \(over rows\)"):
            jax.shard_map(parts, mesh=mesh, in_specs=(rows, rows), out_specs=rows, **options)(jnp.ones(2), jnp.zeros(2))


def test_a_complex_argument_is_refused():
    with pytest.raises(duat.DuatError, match="complex"):
        duat.secant(lambda z: jnp.abs(z).sum())(jnp.ones(2, complex), jnp.zeros(2, complex))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_what_is_not_a_number_on_one_side_is_said(value, side):
    """Completeness says that the parts don't sum, and never that they do."""
    pair = [jnp.array(X), jnp.array(Y)]
    pair[side] = pair[side].at[1].set(value)
    found = duat.secant(lambda x: (x * x).sum())(*pair)
    assert found.completeness.verdict == "fails"


def test_nothing_else_is_an_argument_of_a_mark():
    with pytest.raises(duat.DuatError, match="hold"):
        duat.secant(jnp.sum, at=("attention",))(jnp.ones(2), jnp.zeros(2))
    with pytest.raises(duat.DuatError, match="attention.pattern"):
        duat.secant(jnp.sum, held=("attention.pattern",))(jnp.ones(2), jnp.zeros(2))


# --- Lies -----------------------------------------------------------------------------------------------------------


def of_everything(x):
    """A product, a quotient's secant, a closed one, a softmax and a jump."""
    return x[1] * jnp.sin(x[0]) * jnp.tanh(x[1]) * jax.nn.softmax(x)[2] + jnp.where(x[3] > 0, x[0], x[1])


def at_the_midpoint(f, name, operands, k, x, y):
    middle = (x + y) / 2
    return jax.jvp(lambda z: f(*operands[:k], z, *operands[k + 1 :]), (middle,), (jnp.ones_like(x),))[1]


LIES = {
    "a product by one end": (changed_value.ChangedValue, "middle", property(lambda self: self.both[0])),
    "the derivative for the secant": (secants, "secant", at_the_midpoint),
    "the derivative of tanh at one end": (secants.CLOSED, "tanh", lambda x, y: 1 - jnp.tanh(x) ** 2),
    "one probability for their logarithmic mean": (softmax, "_logarithmic_means", lambda distance, pair: pair[0]),
    "a jump that is dropped": (changed_value, "finite", lambda x: 0 * x),
}


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("name", [None, *LIES])
def test_a_rule_that_is_broken_is_noticed_by_the_sum(name, monkeypatch):
    if name is not None:
        where, what, broken = LIES[name]
        (monkeypatch.setitem if isinstance(where, dict) else monkeypatch.setattr)(where, what, broken)
    found = jax.jit(duat.secant(of_everything))(jnp.array(X), jnp.array(Y))
    assert found.completeness.verdict == ("holds" if name is None else "fails")
