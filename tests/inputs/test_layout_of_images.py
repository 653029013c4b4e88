"""Images have one layout, channels first, in every function that takes them."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from adapters import random_adapters
from cases import GOLDEN
from helpers import close, numbers

import duat_jax as duat
from duat_jax.lora import lora_change
from tests.test_references import functions, parameters_of

IMAGE, OTHER = (numbers(3, 12, 12, key=key).astype(np.float32) for key in (0, 1))

ASKED = {
    "explain": duat.explain,
    "contrast": lambda model, image: duat.contrast(model, image, OTHER),
    "contrast, reference": lambda model, image: duat.contrast(model, OTHER, image),
    "attribute": lambda model, image: duat.attribute(model, image, OTHER),
    "attribute, reference": lambda model, image: duat.attribute(model, OTHER, image),
    "graph": lambda model, image: duat.graph(model, image, top_neurons=0, top_heads=0),
    "intervene": lambda model, image: duat.intervene(model, image, duat.edits.Heads(0, 0).set(0)),
    "explain_attention": lambda model, image: duat.explain_attention(model, image, layer=0, head=0, key=1),
    "diff": lambda model, image: duat.diff(model, image, reference=model, top=0),
    "lora_change": lambda model, image: lora_change(model, random_adapters(model, ["query"]), image),
    "the model": lambda model, image: model(jnp.asarray(image)),
}
"""Every function of a model and an input, with an image."""


@pytest.fixture(scope="module")
def model():
    return duat.load(GOLDEN / "vit-classes")


def test_every_function_of_a_model_and_an_input_is_here():
    taking = {name for name, each in functions().items() if {"model", "inputs"} <= parameters_of(each)}
    assert taking - {"moved_parameters"} == {name for name in ASKED if name.isidentifier()}


@pytest.mark.parametrize("name", ASKED)
def test_channels_that_stand_last_are_refused_in_one_line(model, name):
    with pytest.raises(duat.InvalidInput, match=r"channels first|takes \[3, 12, 12\]") as raised:
        ASKED[name](model, np.moveaxis(IMAGE, 0, -1))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", [name if name == "explain" else pytest.param(name, marks=pytest.mark.slow) for name in ASKED]
)
def test_channels_that_stand_first_are_taken(model, name):
    assert ASKED[name](model, IMAGE) is not None


def test_maps_over_an_image_have_the_same_layout():
    weights = jnp.asarray(numbers(3, 6, 8, key=2))

    def number(pixels):
        return duat.term(jnp.tanh, weights * pixels, "tanh").sum()

    image, other = (jnp.asarray(numbers(3, 6, 8, key=key)) for key in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        maps = duat.image_maps(number, image, other)
    assert maps.path.shape == maps.collapse.shape == maps.change.shape == maps.terms["tanh"].shape == (6, 8)
    close(maps.terms["tanh"], jnp.tanh(weights * image).sum(0))
    close(maps.change.sum(), number(image) - number(other))
    with pytest.warns(FutureWarning, match="channels, height, width"):
        old = duat.image_maps(
            lambda x: number(jnp.moveaxis(x, -1, 0)), *(jnp.moveaxis(x, 0, -1) for x in (image, other))
        )
    for name in ("path", "collapse", "change"):
        close(getattr(old, name), getattr(maps, name))
    assert old.image.pixels.shape == maps.image.pixels.shape == (3, 6, 8)


@pytest.mark.parametrize(
    ("shape", "warned"), [((5, 6, 5), False), ((3, 6, 1), False), ((6, 5, 3), True), ((2, 6, 4), True)]
)
def test_only_a_shape_that_tells_its_layout_is_read_otherwise(shape, warned):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        maps = duat.image_maps(lambda x: 2 * x.sum(), jnp.ones(shape))
    assert [each.category for each in seen] == [FutureWarning] * warned
    assert maps.path.shape == (shape[:2] if warned else shape[1:])


@pytest.mark.parametrize(
    ("shape", "places"),
    [((6, 8, 5), 2), ((5, 6, 8), 0), ((1, 5, 3, 4), 0), ((3, 4, 1), 2), ((7, 5), None), ((1, 9, 8), None)],
)
def test_a_term_has_places_where_its_axes_have_the_proportions_of_the_image(shape, places):
    read = jnp.asarray(numbers(6 * 8, *shape, key=3))
    image = jnp.asarray(numbers(1, 6, 8, key=4))

    def fired(pixels):
        return jnp.tanh(jnp.tensordot(pixels.ravel(), read, 1))

    maps = duat.image_maps(lambda pixels: fired(pixels).sum(), image, marks="auto")
    expected = fired(image).sum().reshape(1, 1) if places is None else fired(image).reshape(shape[-3:]).sum(places)
    close(next(iter(maps.terms.values())), expected)
