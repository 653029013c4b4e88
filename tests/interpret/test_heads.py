"""Explanations are exact for models with each kind of head: tokens, masks, classes; texts, pairs and images."""

import functools
import json
import re
import shutil
import struct
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from command import run
from heads import CONFIGS, GIVEN, IDS, LABELS, PIXELS, RECIPE, SEGMENTS, SQUARE, load, model_of
from held_gradient import held_parts
from helpers import close, described, near
from PIL import Image as Pillow

import duat_jax as duat
from duat_jax.inputs import images
from duat_jax.inputs.question import ask

TARGETS = {
    "next token": duat.targets.Logit(4, contrast=6, position=2),
    "masked token": duat.targets.LogProbability(4, position=3),
}
ASKED = dict.fromkeys(CONFIGS, duat.targets.ClassLogit("good", contrast=0)) | TARGETS


def logits_of(name, x):
    """The logits that the target is about, by the model alone."""
    logits = model_of(name).output(x)
    return logits if CONFIGS[name].head.kind == "classes" else logits[ASKED[name].position]


def embedded(name):
    given = GIVEN[name]
    text = isinstance(given, duat.TokenizedText)
    return model_of(name).embed(jnp.asarray(given.ids if text else given), jnp.array(SEGMENTS) if text else None)


def number_of(name, x):
    logits = logits_of(name, x)
    if name == "masked token":
        held = jax.lax.stop_gradient(jax.nn.softmax(logits))
        return logits[4] - held @ logits + duat.offset(held @ jnp.log(held), "entropy")
    return logits[4] - logits[6] if name == "next token" else logits[2] - logits[0]


@functools.cache
def explained(name):
    return duat.explain(model_of(name), GIVEN[name], ASKED[name])


SLOW = ("next token", "first", "last", "mean")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CONFIGS]
)
def test_every_part_is_that_of_the_gradient_with_everything_held(name):
    explanation = explained(name)
    assert explanation.completeness.verdict == explanation.collapse_completeness.verdict == "holds"
    x = embedded(name)
    expected = held_parts(functools.partial(number_of, name), x)
    close(explanation.value, expected.value)
    ours = {"input[0]": explanation.embedding}
    ours |= {f"term {key}": part for key, part in explanation.terms.items()}
    ours |= {f"offset {key}": part for key, part in explanation.biases.items()}
    assert ours.keys() == expected.parts.keys()
    for label, part in ours.items():
        theirs = expected.parts[label]
        near(part, theirs.sum(-1) if label == "input[0]" else theirs, within=1e-13, message=label)
    says_a_bias = CONFIGS[name].head.bias
    assert ("head.bias" in explanation.biases) == says_a_bias
    assert explanation.biases["head.bias"] if says_a_bias else True

    likely = jax.nn.softmax(logits_of(name, x))
    order = np.argsort(-likely)[:5]
    called = LABELS if CONFIGS[name].head.kind == "classes" else tuple(map(str, range(11)))
    assert [p.token for p in explanation.predictions] == [called[i] for i in order]
    close([p.probability for p in explanation.predictions], likely[order])
    assert list(explanation.labels.values()) == ["layer 0", "head"][: 2 if CONFIGS[name].head.dense else 1]


def test_a_class_without_a_name_is_the_most_probable_one():
    explanation = duat.explain(model_of("last"), IDS)
    best = max(explanation.predictions, key=lambda prediction: prediction.probability).token
    assert explanation.target.headline == f"logit of class '{best}'"
    close(explanation.value, max(model_of("last")(jnp.array(IDS))))


REFUSED = {
    "no such class": ("first", {"target": "ugly"}, "'ugly' is no class of the model: give 'bad', 'fair', 'good' or a"),
    "no such number": ("first", {"target": 3}, "a number from 0 to 2"),
    "a true class": ("first", {"target": True}, "the target True is no class"),
    "no such contrast": ("first", {"target": duat.targets.ClassLogit(0, contrast="x")}, "the contrast 'x' is no class"),
    "a position of a class": ("first", {"position": 0}, "predicts a class: explain a class, without position"),
    "a class against a text": ("first", {"against": [1]}, "predicts a class: explain a class, without position"),
    "a token of a classifier": ("first", {"target": duat.targets.Logit(1)}, "predicts a class"),
    "a class of a language model": (
        "masked token",
        {"target": duat.targets.ClassLogit(1)},
        "predicts the token at a mask",
    ),
    "a mask against a text": ("masked token", {"against": [1], "position": 0}, "without another text"),
    "an unknown mask": ("masked token", {}, "isn't known without its tokenizer: give a position"),
    "segments beyond": (
        "first",
        {"inputs": duat.TokenizedText(IDS, [0, 0, 0, 1, 2])},
        "must lie between 0 and 1, not [0, 0",
    ),
    "few segments": ("first", {"inputs": duat.TokenizedText(IDS, [0])}, "segments must be 5 whole numbers"),
    "half segments": ("first", {"inputs": duat.TokenizedText(IDS, [0.5] * 5)}, "segments must be 5 whole numbers"),
    "segments of none": (
        "last",
        {"inputs": duat.TokenizedText(IDS, SEGMENTS)},
        "has no segments: leave them out of the text",
    ),
    "bytes of an image": ("image", {"inputs": np.zeros((3, 9, 13), np.uint8)}, "not uint8 [3, 9, 13]: duat.load_image"),
    "channels at the end": ("image", {"inputs": PIXELS.T}, "numbers [3, 9, 13] (channels, height, width), not float64"),
    "pixels of no number": ("image", {"inputs": PIXELS * np.nan}, "pixels must be finite"),
    "a text as image": ("image", {"inputs": IDS}, "the image: pixels must be"),
    "one bad image of many": ("image", {"inputs": [PIXELS, PIXELS[:1]]}, "image 1: pixels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_head_cannot_say_is_refused(case):
    name, asked, message = REFUSED[case]
    with pytest.raises(duat.InvalidInput, match=re.escape(message)):
        ask(described(CONFIGS[name]), **({"inputs": GIVEN[name]} | asked))


def test_a_masked_model_is_read_at_its_only_mask():
    tokenizer, config = duat.load_tokenizer(GOLDEN / "bert-masked"), duat.load_config(GOLDEN / "bert-masked")
    texts = [tokenizer.encode(text).ids for text in ("w5 [MASK] w6", "[MASK]", "w5 w6", "[MASK] [MASK]")]
    question = ask(described(config), texts[:2], [7, duat.targets.LogProbability(7)], tokenizer=tokenizer)
    assert [[target.position for target in row] for row in question.targets] == [[2, 2], [1, 1]]
    with pytest.raises(duat.InvalidInput) as raised:
        ask(described(config), texts, 7, tokenizer=tokenizer)
    assert str(raised.value) == (
        "text 2 has no [MASK]: write one where a token is to be said, or give a position;"
        " text 3 has 2 [MASK], at 1, 2: give the position of one"
    )
    assert ask(described(config), texts[2], 7, position=-2, tokenizer=tokenizer).targets[0][0].position == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "last", "mean", "image"])
def test_many_are_those_of_each(name):
    given = [PIXELS, -PIXELS, PIXELS**2] if name == "image" else [IDS, [4], IDS[::-1] * 2]
    for explanation, one in zip(duat.explain(model_of(name), given, "bad"), given):
        assert explanation.completeness.verdict == "holds"
        close(explanation.value, model_of(name)(jnp.asarray(one))[0])


def test_an_image_is_called_by_its_patches_and_its_picture_lies_over_it():
    explanation = explained("image")
    assert explanation.tokens == ("whole", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    np.testing.assert_array_equal(explanation.image.pixels, PIXELS[:, :8, :12])
    figure = explanation.plot()
    together, collapse, embedding, layer = (axes.images[1] for axes in figure.axes if len(axes.images) == 2)
    term = explanation.terms["layers.0.mlp"].sum(-1)
    for drawn, numbers in (
        (together, explanation.embedding + term),
        (collapse, explanation.collapse),
        (embedding, explanation.embedding),
        (layer, term),
    ):
        close(drawn.get_array(), numbers[1:].reshape(2, 3))
        left, right, bottom, top = drawn.get_extent()
        assert (right - left, bottom - top) == (12, 8)


@pytest.fixture
def vision(tmp_path):
    """A checkpoint of a vision model of 12 × 12 pixels."""
    return shutil.copytree(GOLDEN / "vit-classes", tmp_path / "vit")


def test_pixels_are_rescaled_and_normalised(vision):
    expected = np.moveaxis(SQUARE, -1, 0) / 255
    near(load(vision, SQUARE), expected, within=1e-7)
    near(load(vision, SQUARE, rescale_factor=0.5), 255 * expected / 2, within=1e-6)
    np.testing.assert_array_equal(load(vision, SQUARE, do_rescale=False), np.moveaxis(SQUARE, -1, 0))
    found = load(vision, SQUARE, do_normalize=True, image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 1, 2])
    by_hand = (expected - np.array([0.1, 0.2, 0.3])[:, None, None]) / np.array([0.5, 1, 2])[:, None, None]
    near(found, by_hand, within=1e-6)
    near(load(vision, SQUARE, do_normalize=True), 2 * expected - 1, within=1e-6)


def test_an_image_is_resized_cut_and_upright(vision):
    blocks = np.kron(SQUARE, np.ones((2, 2, 1), np.uint8))
    expected = np.moveaxis(SQUARE, -1, 0)
    box = {"do_resize": True, "resample": Pillow.Resampling.BOX, "do_rescale": False}
    for size in (12, {"height": 12, "width": 12}):
        np.testing.assert_array_equal(load(vision, blocks, size=size, **box), expected)
    # The shorter edge becomes 12, and the middle is cut out of the longer one.
    tall = np.concatenate([0 * blocks[:4], blocks, 0 * blocks[:4]])
    cut = {"do_center_crop": True, "crop_size": {"height": 12, "width": 12}, "size": {"shortest_edge": 12}}
    np.testing.assert_array_equal(load(vision, tall, **cut, **box), expected)
    np.testing.assert_array_equal(load(vision, tall.swapaxes(0, 1), **cut, **box), expected.swapaxes(1, 2))
    np.testing.assert_array_equal(
        load(vision, np.pad(SQUARE, [(3, 4), (0, 0), (0, 0)]), do_center_crop=True, crop_size=12, do_rescale=False),
        expected,
    )
    exif = Pillow.Exif()
    exif[0x0112] = 6  # lies on its side: its right edge is the top
    sideways = Pillow.fromarray(np.rot90(tall))
    load(vision, tall, **cut, **box)
    sideways.save(vision / "image.png", exif=exif)
    np.testing.assert_array_equal(duat.load_image(vision / "image.png", vision), expected)


def bomb(width, height):
    """The beginning of a PNG file that says how large it is."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(99))
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (head, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


BAD_FILES = {
    "nothing": (b"", "is no image that can be read"),
    "a text": (b"w5 w6", "is no image that can be read"),
    "a damaged one": (bomb(12, 12), "is no image that can be read"),
    "a bomb": (bomb(30000, 30000), "is no image that can be read"),
    "a smaller bomb": (bomb(9000, 9000), "has 9000 × 9000 pixels: make it smaller, up to 67108864 in all"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line(case, vision):
    content, message = BAD_FILES[case]
    (vision / images.RECIPE).write_text(json.dumps(RECIPE))
    (vision / "image.png").write_bytes(content)
    result = run("explain", "--image", vision / "image.png", "--model", vision)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_image_of_another_size_or_mode_is_refused(vision):
    with pytest.raises(
        duat.InvalidInput, match="image.png becomes 12 × 11 pixels, but the model takes 12 × 12: resize it"
    ):
        load(vision, SQUARE[1:])
    for pixels, mode in ((SQUARE[..., 0], "L"), (np.dstack([SQUARE, SQUARE[..., :1]]), "RGBA")):
        with pytest.raises(
            duat.InvalidInput, match=f"image.png is of mode {mode}, but the model reads RGB: convert it"
        ):
            load(vision, pixels)
        assert load(vision, pixels, do_convert_rgb=True).shape == (3, 12, 12)


def test_an_image_that_would_become_enormous_is_refused(vision):
    cut = {"do_resize": True, "size": {"shortest_edge": 40_000}, "do_center_crop": True, "crop_size": 12}
    with pytest.raises(duat.InvalidInput, match="is resized to 40000 × 40000 pixels before 12 × 12 are cut out"):
        load(vision, SQUARE, **cut)
    with pytest.raises(duat.InvalidInput, match="is resized to 11 × 11 pixels before 12 × 12 are cut out"):
        load(vision, SQUARE, **cut | {"size": {"shortest_edge": 11}})


BAD_RECIPES = {
    "an unknown field": ({"do_sharpen": True}, "do_sharpen = True isn't known here and may change"),
    "another processor": (
        {"image_processor_type": "CLIPImageProcessor"},
        "image_processor_type = 'CLIPImageProcessor'",
    ),
    "padding": ({"do_pad": True}, "do_pad = True isn't supported"),
    "a filter": ({"resample": 9}, "resample = 9 is none of Pillow's filters"),
    "a longest edge": ({"size": {"longest_edge": 12}}, "size.longest_edge = 12 isn't known here"),
    "no size": ({"size": {}}, "size.height must be a positive whole number"),
    "two means": ({"image_mean": [1, 2]}, "image_mean must be 3 positive numbers"),
    "a factor in words": ({"rescale_factor": "1/255"}, "rescale_factor must be a positive number"),
}


@pytest.mark.parametrize("case", BAD_RECIPES)
def test_a_field_that_changes_the_pixels_is_used_or_refused_by_name(case, vision):
    changes, message = BAD_RECIPES[case]
    with pytest.raises(duat.BadCheckpoint, match=re.escape(message)):
        load(vision, SQUARE, **changes)


def as_json(*arguments):
    result = run("explain", *arguments, "--json", "-", "--dtype", "float64")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_the_command_explains_a_mask():
    found = as_json("w5 [MASK] w6", "--pair", "w9", "--model", GOLDEN / "bert-masked", "--target", "w7")
    assert found["tokens"] == ["[CLS]", "w5", "[MASK]", "w6", "[SEP]", "w9", "[SEP]"]
    assert found["target"]["headline"] == "logit of 'w7' at token 2, '[MASK]'"
    tokenizer = duat.load_tokenizer(GOLDEN / "bert-masked")
    pair = tokenizer.encode("w5 [MASK] w6", "w9")
    model = duat.load(GOLDEN / "bert-masked", dtype=jnp.float64)
    logits = model(jnp.array(pair.ids), segments=jnp.array(pair.type_ids))[2]
    close(found["value"], logits[tokenizer.token_to_id("w7")])
    assert list(found["contributions"]["terms"]) == ["layers.0.mlp", "layers.1.mlp", "head"]


@pytest.mark.slow
def test_the_command_explains_a_class_of_an_image(vision):
    pixels = load(vision, SQUARE)
    arguments = ("--image", vision / "image.png", "--model", vision, "--target", "b", "--contrast", 0)
    found = as_json(*arguments, "--plot", vision / "a.png")
    assert found["target"]["headline"] == "logit of class 'b' minus that of 'a'"
    assert found["tokens"][:3] == ["whole", "0,0", "0,1"]
    logits = duat.load(vision, dtype=jnp.float64)(jnp.asarray(pixels))
    close(found["value"], logits[1] - logits[0])
    assert (vision / "a.png").read_bytes().startswith(b"\x89PNG")


WRONG = {
    "no text": ([], "bert-masked", "a bert model reads texts: give one, in quotes"),
    "an image for a text model": (["w5", "--image", "a.png"], "bert-masked", "reads texts: give one without --image"),
    "a text for a vision model": (["w5"], "vit-classes", "a vit model reads images: give --image FILE"),
    "an empty pair": (["w5", "--pair", ""], "bert-masked", "the pair's second text is empty"),
    "no mask": (["w5"], "bert-masked", "the text has no [MASK]: write one"),
    "an unknown class": (["w5", "--target", "z"], "bert-classes", "the target 'z' is no class of the model: give 'a',"),
    "another head": (["w5", "--head", "next token"], "bert-masked", "head = 'next token' isn't supported, only masked"),
    "no gate": (["w5", "--gate-rule", "halves"], "bert-masked", "gate_rule = 'halves' is for gated models"),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_command_says_what_a_head_needs(case):
    arguments, name, message = WRONG[case]
    result = run("explain", *arguments, "--model", GOLDEN / name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_another_factor_may_carry_the_neurons():
    """The table is the same, and so is what the collapse sums to; its parts are others."""
    model = duat.load(GOLDEN / "llama", dtype=jnp.float64)
    gate, factor = (duat.explain(model, [5, 3, 8, 2], 7, gate_rule=gate_rule) for gate_rule in ("gate", "factor"))
    for key, part in gate.terms.items():
        np.testing.assert_array_equal(factor.terms[key], part)
    close(factor.collapse.sum() + factor.collapse_bias, gate.value)
    assert factor.collapse_completeness.verdict == "holds"
    assert np.abs(factor.collapse - gate.collapse).max() > 1e-3
    with pytest.raises(duat.DuatError, match="gate_rule = 'both' isn't one of gate, factor, halves"):
        duat.explain(model, [5, 3], 7, gate_rule="both")
