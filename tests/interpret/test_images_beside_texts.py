"""An image or a sound beside a text: what is drawn and printed sums; places are called patches, frames and tokens."""

import base64
import io
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from cases import GOLDEN
from helpers import near
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image as Pillow

import duat_jax as duat
from duat_jax.display.page.data import page_data
from duat_jax.display.page.document import HTML
from duat_jax.inputs.images import SeenImage, seen_by
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.interpret.headline import of_contrast, place_of
from duat_jax.models.config import Image, ImageBesideText
from duat_jax.models.targets.description import TargetDescription
from duat_jax.models.vocabulary.token import Token
from duat_jax.transform.keys import Marked

TEXT = (" a", " cat", " sat")
KINDS = {
    "an image": SeenImage(np.random.default_rng(0).normal(size=(3, 8, 12)), 2, 3),
    "an image with registers": SeenImage(np.random.default_rng(0).normal(size=(1, 8, 12)), 2, 3, before=3),
    "an image of patches alone": SeenImage(np.random.default_rng(0).normal(size=(3, 8, 12)), 2, 3, before=0),
    "an image that stands in the text": SeenImage(np.random.default_rng(0).normal(size=(3, 8, 12)), 2, 3, slots=8),
    "a sound": SeenImage(np.random.default_rng(0).normal(size=(1, 5, 12)), 1, 6, before=0),
}

SLOW = "an image", "an image with registers", "an image of patches alone"
DRAWN = [pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in KINDS]


@cache
def read():
    model = duat.load(GOLDEN / "vit-classes")
    pixels = np.random.default_rng(1).normal(size=(3, 12, 12)).astype(np.float32)
    return duat.explain(model, pixels), duat.contrast(model, pixels, -pixels)


def tokens_of(image, words=TEXT):
    """Return the tokens of an image and of a text, the first of which stands before its slots."""
    before = ("whole", *(f"register {place}" for place in range(1, image.before)))[: image.before]
    patches = [f"frame {2 * i}" if image.sound else f"{i // 3},{i % 3}" for i in range(6)]
    slots = () if image.slots is None else ("<image>",) * 6
    return (*before, *patches, words[0], *slots, *words[1:])


def random_results(kind):
    """Return an explanation and a contrast of a model that read an image and a text, with numbers drawn at random."""
    image, random = KINDS[kind], np.random.default_rng(2)
    tokens = tuple(Token(name, i) for i, name in enumerate(tokens_of(image)))
    count = len(tokens)

    def drawn(marked):
        return Marked({key: random.normal(size=(count, part.shape[-1])) for key, part in marked.items()})

    explanation, contrast = read()
    explanation = replace(
        explanation,
        tokens=tokens,
        image=image,
        embedding=random.normal(size=count),
        coefficients=drawn(explanation.coefficients),
        activations=drawn(explanation.activations),
        collapse=random.normal(size=count),
    )
    flow = random.normal(size=(len(contrast.flow), count))
    flow[-1, image.patches] = flow[-1, image.in_text] = 0  # the last layer reads the text
    others = tokens_of(image, (" a", " dog", " sat"))
    compared = replace(
        contrast,
        tokens=tokens,
        image=image,
        flow=flow,
        heads=drawn(contrast.heads),
        neurons=drawn(contrast.neurons),
        moves=Marked({}),
        references=(contrast.references[0]._replace(name="the other input", tokens=others),),
    )
    return explanation, compared


@pytest.mark.parametrize("kind", DRAWN)
def test_patches_and_the_text_beside_them_sum_to_every_row(kind):
    image = KINDS[kind]
    for result in random_results(kind):
        view = result.view()
        figure = result.plot()
        rows = np.array([row.parts for row in view.rows])
        over = rows[:, image.patches] + (rows[:, image.in_text] if image.slots is not None else 0)
        *_, whole, table = (
            axes.images[0].get_array() for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"
        )
        near(table[:, 0], over.sum(1), within=1e-6)
        near(table.sum(1), rows.sum(1), within=1e-6)
        near(whole.sum(1), [colouring.parts.sum() for colouring in view.all_colourings], within=1e-6)
        drawn = over[over.any(1)]
        if image.sound:
            (frames,) = (axes.images[0].get_array() for axes in figure.axes if axes.get_xlabel() == "frame")
            near(frames, drawn, within=1e-6)
        else:
            panels = [axes.images[1].get_array().reshape(-1) for axes in figure.axes if len(axes.images) == 2]
            near(panels[len(view.all_colourings) :], drawn, within=1e-6)
        (bars,) = (axes for axes in figure.axes if axes.get_title() == "sums")
        added = sum(part for each in view.added for _, part in each.entries)
        near(sum(bar.get_width() for bar in bars.patches), rows.sum() + added, within=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_title_lies_over_another(kind):
    figure = random_results(kind)[0].plot()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    titles = [title for axes in figure.axes for title in (axes.title, axes._left_title) if title.get_text()]
    boxes = [title.get_window_extent(renderer) for title in (*titles, figure._suptitle)]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


@pytest.mark.parametrize(
    ("kind", "token", "place"),
    [
        ("an image", 0, "the token of the whole image"),
        ("an image", 6, "patch 1,2"),
        ("an image", 8, "token 8, “ cat”"),
        ("an image", 9, "the last token"),
        ("an image with registers", 2, "register 2 of the image"),
        ("an image with registers", 3, "patch 0,0"),
        ("an image of patches alone", 0, "patch 0,0"),
        ("an image that stands in the text", 7, "token 7, “ a”"),
        ("an image that stands in the text", 8, "patch 0,0 in the text"),
        ("an image that stands in the text", 13, "patch 1,2 in the text"),
        ("an image that stands in the text", 14, "token 14, “ cat”"),
        ("a sound", 0, "frame 0"),
        ("a sound", 5, "frame 10"),
        ("a sound", 6, "token 6, “ a”"),
    ],
)
def test_a_place_is_a_patch_a_frame_or_a_token(kind, token, place):
    assert place_of(token, tokens_of(KINDS[kind]), KINDS[kind]) == place


SCORE = TargetDescription("similarity", "Entropy")


@pytest.mark.parametrize(
    ("token", "same_image", "ends"),
    [
        (2, False, "higher: +1.50 of +2.00 comes from patch 0,1"),
        (8, False, "higher: +1.50 of +2.00 comes from token 8, “ cat” in the place of “ dog”"),
        (8, True, "higher because token 8 is “ cat”, not “ dog”"),
    ],
)
def test_a_token_is_the_cause_alone_where_the_image_is_the_same(token, same_image, ends):
    image = KINDS["an image"]
    tokens, others = tokens_of(image), tokens_of(image, (" a", " dog", " sat"))
    said = of_contrast(SCORE, 3.0, 2.0, tokens, others, token, 1.5, None, image, same_image=same_image)
    assert said.endswith(ends)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_the_image_below_its_patches(kind):
    image = KINDS[kind]
    page = page_data(random_results(kind)[0].view())
    assert [range(*grid[:2]) for grid in page["seen"]["grids"]] == [
        range(len(page["tokens"]))[tokens] for tokens in (image.patches, image.in_text) if tokens.stop > tokens.start
    ]
    form, kept = re.search(r"url\(data:image/(\w+);base64,(.*)\)", page["seen"]["style"]["backgroundImage"]).groups()
    seen = np.asarray(Pillow.open(io.BytesIO(base64.b64decode(kept))), float)
    expected = np.asarray(image.pixels).mean(0)[:: -1 if image.sound else 1]
    expected = 255 * (expected - expected.min()) / np.ptp(expected)
    assert form == "png" and np.abs(seen - expected).max() <= 1
    assert "img-src data:" in HTML
    patch = "frame 2" if image.sound else "patch 0,1"
    assert (
        page["tokens"][image.before + 1] == patch and f"{patch} in the text" not in page["tokens"][: image.text.start]
    )


def test_a_text_alone_has_no_image_on_its_page():
    explanation = replace(read()[0], image=None)
    assert page_data(explanation.view())["seen"] == {"style": {}, "grids": []}


def test_a_large_image_is_small_on_a_page():
    pixels = np.random.default_rng(0).normal(size=(3, 448, 448))
    explanation = replace(random_results("an image")[0], image=SeenImage(pixels, 2, 3))
    assert len(page_data(explanation.view())["seen"]["style"]["backgroundImage"]) < 300_000


def test_a_terminal_shows_patches_and_the_text_apart():
    for kind, names in (("an image", ("patches", "whole")), ("a sound", ("frames", "·cat"))):
        shown = str(random_results(kind)[0])
        assert f"the {'sound' if kind == 'a sound' else 'image'} and the text" in shown
        assert any(name in shown for name in names)
    image = SeenImage(np.zeros((3, 8, 12)), 2, 3)
    numbers = np.array([0.0, 1, 2, 3, 4, 5, 6, 0, 0.5, 0.25])
    flow = np.stack([numbers, numbers])
    contrast = replace(random_results("an image")[1], image=image, flow=flow, layers=(None, 0))
    line = next(line for line in str(contrast).splitlines() if line.startswith("embedding")).split()
    near([float(cell) for cell in line[1:]], [1, 2, 3, 4, 5, 6, 0.75, 21.75], within=1e-6)


@pytest.mark.parametrize(("ids", "slots"), [([5, 9, 9, 9, 9, 6], 6), ([5, 6], None), ([9, 9, 5, 9, 9], None)])
def test_slots_are_the_placeholders_that_stand_together(ids, slots):
    image = Image(height=4, width=4, channels=3, patch_height=2, patch_width=2)
    beside = ImageBesideText(image=image, placeholder=9, placeholders=4)
    config = replace(duat.load_config(GOLDEN / "gpt2"), beside=beside)
    inputs = Inputs(np.array([0] * 5 + ids), np.ones(5 + len(ids), int), None, np.zeros((3, 4, 4)))
    assert seen_by(config, inputs).slots == slots
