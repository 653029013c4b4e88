"""The difference at marks: every cut sums, multipliers are those of what follows, and what is held moves by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, make_stack

import duat_jax as duat

X, Y = (jax.random.normal(jax.random.key(i), (4, 6)) for i in (1, 2))
W = {name: jax.random.normal(jax.random.key(3 + i), (6, 6)) / 2 for i, name in enumerate(("qk", "vo", "in", "out"))}


def attention(x):
    pattern = duat.hold(jax.nn.softmax(x @ W["qk"] @ x.T), "pattern")
    return x + duat.point(pattern @ (x @ W["vo"]), "mixed")


def mlp(x):
    return x + duat.term(jax.nn.gelu, x @ W["in"], "mlp", outer=lambda h: h @ W["out"])


def network(x):
    return (mlp(duat.stream(attention(x), "middle"))[-1] ** 2).sum()


def difference(fn, **settings):
    return jax.jit(duat.secant(fn, **settings))(X, Y)


AT = ("stream", "activation", "pre_activation", "term_output", "point", "hold")


def test_a_multiplier_at_a_stream_is_that_of_what_follows():
    found = difference(network, at=("stream",))
    rest = jax.jit(duat.secant(lambda x: (mlp(x)[-1] ** 2).sum()))(attention(X), attention(Y))
    close(found.multipliers.streams["middle"], rest.multiplier)
    close(found.contributions.streams["middle"].sum(), found.difference)


def test_multipliers_at_marks_are_written_out():
    """By hand: the square's midpoint, the outer map's transpose, the activation's secant, the heads' outer map."""
    found = difference(network, at=AT)
    y_out, x_out = (mlp(attention(x)) for x in (Y, X))
    on_output = jnp.zeros((4, 6)).at[-1].set(x_out[-1] + y_out[-1])
    z = [attention(x) @ W["in"] for x in (X, Y)]
    slope = (jax.nn.gelu(z[0]) - jax.nn.gelu(z[1])) / (z[0] - z[1])
    on_activation = on_output @ W["out"].T
    on_stream = on_output + (on_activation * slope) @ W["in"].T
    values, multipliers = [x @ W["vo"] for x in (X, Y)], found.multipliers
    close(multipliers.term_outputs["mlp"], on_output)
    close(multipliers.activations["mlp"], on_activation)
    close(multipliers.pre_activations["mlp"], on_activation * slope)
    close(multipliers.points["mixed"], on_stream)
    close(multipliers.held["pattern"], on_stream @ (sum(values) / 2).T)
    close(found.changes.points["mixed"], attention(X) - X - attention(Y) + Y)


def test_moved_inputs_and_moved_parameters_are_the_difference():
    """With the pattern held, one layer of attention: `u (P̄ Δv + ΔP v̄)`."""
    u = jax.random.normal(jax.random.key(9), (4, 6))
    found = duat.secant(lambda x: (u * attention(x)).sum(), held=("pattern",))(X, Y)
    patterns = [jax.nn.softmax(x @ W["qk"] @ x.T) for x in (X, Y)]
    middle, values = sum(patterns) / 2, (X + Y) / 2 @ W["vo"]
    close(found.multiplier, u + middle.T @ u @ W["vo"].T)
    close(found.moved["pattern"], (u @ values.T) * (patterns[0] - patterns[1]))
    assert found.completeness.verdict == "holds" and not found.discontinuities
    close(found.parts.sum() + found.moved["pattern"].sum(), found.difference)


def test_what_flows_and_what_is_held_have_the_same_sum():
    flowing, held = difference(network), difference(network, held=True)
    assert flowing.difference == held.difference and not flowing.moved and list(map(str, held.moved)) == ["pattern"]
    assert abs(flowing.parts.sum() - held.parts.sum()) > 0.01
    assert flowing.completeness.verdict == held.completeness.verdict == "holds"


def scanned(x):
    def layer(x, w):
        gate = duat.hold(jax.nn.sigmoid(x.mean(-1, keepdims=True)), "gate")
        return duat.stream(x + gate * duat.term(jnp.tanh, x @ w, "mlp"), "layer"), None

    return jax.lax.scan(jax.checkpoint(layer), x, jnp.stack([W["in"], W["out"], W["vo"]]))[0].sum()


def unrolled(x):
    for w in (W["in"], W["out"], W["vo"]):
        gate = duat.hold(jax.nn.sigmoid(x.mean(-1, keepdims=True)), "gate")
        x = duat.stream(x + gate * duat.term(jnp.tanh, x @ w, "mlp"), "layer")
    return x.sum()


@pytest.mark.parametrize("held", [False, True])
def test_a_scan_is_its_steps(held):
    steps, layers = (difference(fn, at=("stream", "activation"), held=held) for fn in (scanned, unrolled))
    close(steps.multiplier, layers.multiplier)
    for name, marked in (("layer", "streams"), ("mlp", "activations")):
        stacked = getattr(steps.contributions, marked)[name]
        each = [getattr(layers.contributions, marked)[f"{name}[{i}]"] for i in range(3)]
        close(stacked, jnp.stack(each))
    if held:
        close(steps.moved["gate"], jnp.stack([layers.moved[f"gate[{i}]"] for i in range(3)]))
    assert steps.completeness.verdict == "holds"


@pytest.mark.slow
@pytest.mark.parametrize("block", ["pre-norm", "post-norm", "parallel", "paper"])
def test_every_layer_is_a_cut(block):
    stack = make_stack(block, layers=3)
    readout = jax.random.normal(jax.random.key(5), (4, 6))
    found = jax.jit(duat.secant(lambda x: (readout * stack(x)).sum(), at=("stream",)))(X, Y)
    for part in found.contributions.streams.values():
        close(part.sum(), found.difference)
    assert len(found.contributions.streams) == 4


def test_biases_have_no_part():
    with pytest.warns(match="no mark of the kind stream"):
        found = duat.secant(lambda x: (x + duat.offset(jnp.ones(6), "bias")).sum(), at=("stream",))(X, Y)
    assert not any(found.contributions) and found.completeness.verdict == "holds"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: duat.secant(network, at=("layer",)), "'layer'.*choose among"),
        (lambda: duat.secant(network, at=("offset",)), "'offset'"),
        (lambda: duat.secant(network, held=("gate",))(X, Y), "gate; existing names: pattern"),
        (lambda: duat.secant(jnp.sum, held=("gate",))(X, Y), "gate; existing names: none"),
    ],
)
def test_marks_that_do_not_exist_are_named(make, message):
    with pytest.raises(duat.DuatError, match=message):
        make()


def test_several_outputs_are_mapped_one_after_the_other():
    with pytest.raises(duat.DuatError, match=r"\[\(\(3,\), 'float64'\)\].*map over several with jax.lax.map"):
        duat.secant(jnp.sin)(jnp.ones(3), jnp.zeros(3))


@pytest.mark.parametrize("map_over", [jax.lax.map, lambda fn, indices: jax.vmap(fn)(indices)], ids=["map", "vmap"])
def test_parts_of_many_read_outs_sum_or_their_verdict_fails(map_over):
    """JAX 0.10.2 compiles the way back through a norm wrongly, on CPUs, for many read-outs of one input at once."""
    with jax.enable_x64(False):
        x, y = jax.random.normal(jax.random.key(0), (2, 80, 16))

        def normed(x):
            centred = x - x.mean(-1, keepdims=True)
            return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

        found = map_over(lambda row: duat.secant(lambda x: normed(x)[row, 0])(x, y), jnp.arange(80))
        plain = [np.asarray(of, float) for of in (x, y)]
        centred = [of - of.mean(-1, keepdims=True) for of in plain]
        first, second = (of[:, 0] / np.sqrt((of**2).mean(-1) + 1e-5) for of in centred)
        off = np.abs(np.asarray(found.parts, float).reshape(80, -1).sum(1) - (first - second)).max()
        if map_over is jax.lax.map:
            assert off < 1e-4
        assert found.completeness.verdict == ("holds" if off < 1e-4 else "fails")
