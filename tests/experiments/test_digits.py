"""Small networks that read images: trained, taken apart exactly, and drawn over the image."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, near, numbers, striped

import duat_jax as duat
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.nn import ResidualConvolution
from duat_jax.papers import Digits
from duat_jax.verification.networks import randomised
from experiments.estimate import estimate
from experiments.images import patches as ranking
from experiments.images import run as measured
from symbolic import Block

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "images.md").read_text(encoding="utf-8")


def network():
    made = ResidualNetwork(1, (2, 2, 3), 4, dtype=jnp.float64, rngs=nnx.Rngs(0))
    return randomised(made)


IMAGE, PAPER = jnp.asarray(numbers(4, 6, 1)), jnp.zeros((4, 6, 1))


@pytest.fixture(scope="module")
def maps():
    model = network()
    return duat.image_maps(lambda pixels: model(pixels)[2], *(jnp.moveaxis(x, -1, 0) for x in (IMAGE, PAPER)))


def test_the_maps_are_the_forms_place_by_place(maps):
    model = network()

    def logit(x):
        return model.output(x)[2]

    parts, collapse = duat.decompose(logit, IMAGE), duat.collapse(model.output, IMAGE)
    close(maps.path, parts.input[..., 0])
    for i, (rows, columns) in enumerate(((4, 6), (2, 3))):
        found = maps.terms[f"layers.{i}.convolution"]
        assert found.shape == (rows, columns)
        close(found, parts.terms[f"layers.{i}.convolution"].sum(-1))
    close(maps.collapse, (jax.grad(logit)(IMAGE) * IMAGE)[..., 0])
    close(maps.collapse_bias, collapse.bias[2])
    close(maps.change.sum(), logit(IMAGE) - logit(PAPER))
    total = maps.path.sum() + sum(part.sum() for part in maps.terms.values()) + sum(maps.biases.values())
    close(total, logit(IMAGE))
    verdicts = {maps.completeness.verdict, maps.collapse_completeness.verdict, maps.change_completeness.verdict}
    assert verdicts == {"holds"}


def test_the_maps_show_themselves(maps):
    table = str(maps)
    row, column = np.unravel_index(np.abs(maps.path).argmax(), maps.path.shape)
    assert re.search(rf"pixels, past all terms .*{row}, {column} +4 × 6", table)
    assert re.search(r"layers.1.convolution .* 2 × 3", table)
    assert "image − the reference" in table
    figure = maps.plot()
    drawn = {
        axes.get_title().split("\n")[0]: axes.images[1].get_array() for axes in figure.axes if len(axes.images) == 2
    }
    close(drawn["through everything (collapse)"], maps.collapse)
    close(drawn["what another image changes (secant)"], maps.change)
    close(drawn["layers.1.convolution"], maps.terms["layers.1.convolution"])
    bars = next(axes for axes in figure.axes if axes.get_title() == "sums")
    close(next(bar.get_width() for bar in bars.patches), maps.path.sum())


def test_a_term_that_is_nowhere_on_the_image_is_one_number():
    read = jnp.asarray(numbers(24, 5, key=3))
    maps = duat.image_maps(lambda x: duat.term(jnp.tanh, x.ravel() @ read, "hidden").sum(), IMAGE[None, ..., 0])
    close(maps.terms["hidden"], jnp.tanh(IMAGE.ravel() @ read).sum()[None, None])
    assert maps.change is None
    assert "other image" not in str(maps)
    assert len(maps.plot().axes) > 3


@pytest.mark.parametrize(
    ("x", "against", "words"),
    [
        (IMAGE[..., 0], None, ("[channels, height, width]", "shape [4, 6]")),
        ("8.png", None, ("not a str",)),
        (IMAGE, PAPER[:2], ("shape [2, 6, 1]", "shape [4, 6, 1]", "two alike")),
    ],
)
def test_what_is_no_image_is_refused(x, against, words):
    with pytest.raises(duat.DuatError) as caught:
        duat.image_maps(lambda x: x.sum(), x, against)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.fixture
def as_a_user():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.slow
def test_of_a_linear_logit_every_ranker_says_what_a_patch_adds():
    weights, x = jnp.asarray(numbers(8, 8, 1)), jnp.asarray(numbers(8, 8, 1, key=1))
    expected = (weights * x).reshape(4, 2, 4, 2).sum((1, 3)).ravel()
    rankers = ranking.rankers()
    assert rankers.keys() == {"secant to paper", "collapse", "gradient × ink", "leave one out", "random"}
    for name, rank in rankers.items():
        found = rank(lambda x: jnp.vdot(weights, x), x, jax.random.key(0))
        assert found.shape == (16,)
        if name != "random":
            close(found, expected)
    kept = ranking.kept_of(x, jnp.eye(16)[5])
    close(jnp.vdot(weights, kept), expected[5])
    np.testing.assert_array_equal(kept[2:4, 2:4], x[2:4, 2:4])


@pytest.mark.slow
def test_a_residual_convolution_is_one_residual_term_and_a_block(as_a_user):
    layer = ResidualConvolution(4, 4, "relu", rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(1), (6, 6, 4))
    form = duat.unroll(lambda x: duat.stream(layer(duat.stream(x, "layer")), "layer"), x).residual_term(1)
    assert form.inner.input.shape == form.inner.output.shape == form.outer.output.shape == (6, 6, 4)
    block = Block.from_function(layer, x)
    assert str(block.written) == "x′ᵢ + O′ᵢ₊₁ relu(K′ᵢ₊₁ x′ᵢ + c′ᵢ₊₁) + o′ᵢ₊₁"
    assert str(block.prove().verdict) == "8 of 8 checks hold, by induction, with 9 definitions"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
def test_every_block_of_the_page_prints_what_is_shown(as_a_user, capsys):
    namespace = {}
    assert len(blocks("python")) == len(blocks("text"))
    for block, expected in zip(blocks("python"), blocks("text")):
        exec(block, namespace)
        assert capsys.readouterr().out == expected


def test_which_parameters_move_is_decided_by_zero():
    zero, some = estimate([0.0]), estimate([0.5])
    moves, exact, _ = measured.STUDY.predictions
    maps = len(measured.MAPS)
    as_predicted = [some] * maps + [zero] * maps
    assert moves.decide(*as_predicted) == "confirmed" and moves.decide(*reversed(as_predicted)) == "refuted"
    for i, of in enumerate(as_predicted):
        one_fails = [*as_predicted[:i], zero if of is some else some, *as_predicted[i + 1 :]]
        assert moves.decide(*one_fails) == "refuted"
    assert exact.decide(estimate([True, True])) == "confirmed" and exact.decide(estimate([True, False])) == "refuted"


def test_the_secant_is_compared_on_every_image():
    def row(method, deletion, insertion):
        seeds = {"network": "ViT", "seed": 0, "ranked by": method}
        return seeds | {"deletion": deletion, "insertion": insertion}

    patches = pd.DataFrame([row("secant to paper", [0.1, 0.3], [0.8, 0.9]), row("collapse", [0.4, 0.2], [0.5, 1.0])])
    for kind, ahead in (("deletion", [0.3, -0.1]), ("insertion", [0.3, -0.1])):
        near(measured.ahead_of_collapse("ViT", kind, {"patches": patches}).to_numpy(), np.array(ahead), within=1e-12)


@pytest.mark.slow
def test_forms_and_changes_are_measured(as_a_user):
    model = measured.trained(measured.CNN, 0, Digits(*striped(64), *striped(0)))
    images = striped(4)[0]
    rows = measured.exactness(lambda: model, images)
    assert [row["form"] for row in rows] == 2 * [*measured.FORMS] and all(row["hold"] == row["asked"] for row in rows)
    changes = {row["parameter"]: row["change"] for row in measured.moved(lambda: model, images)}
    assert [name for name in measured.PARAMETERS if changes[name] > 0] == [measured.LAST_BIAS]
    patches = measured.faithfulness(lambda: model, images)
    assert {len(row["deletion"]) for row in patches} == {len(row["insertion"]) for row in patches} == {4}
