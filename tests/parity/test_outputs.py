"""Numbers of any output of a PyTorch model: a class, a letter of speech, a similarity, a box, a decoder's token."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import duat_jax as duat
from tests.helpers import near

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
IMAGES = {"image_size": 16, "patch_size": 8}


def an_image():
    """Return the inputs that an image classifier's own processor computes from an image of 20 × 20 pixels."""
    process = transformers.ViTImageProcessor(size={"height": 16, "width": 16})
    pixels = np.random.default_rng(0).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    return process(pixels, return_tensors="pt")


def a_sound():
    """Return the inputs that a speech recogniser's own processor computes from 400 numbers."""
    process = transformers.Wav2Vec2FeatureExtractor()
    return process(np.sin(np.arange(400) / 7), sampling_rate=16_000, return_tensors="pt")


def pixels():
    return {"pixel_values": torch.randn(1, 3, 16, 16)}


def text(**more):
    return {"input_ids": torch.tensor([[3, 4, 29]]), "attention_mask": torch.ones(1, 3, dtype=torch.long), **more}


def settings_of_speech(**more):
    layers = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    places = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    return transformers.Wav2Vec2Config(**SMALL, **layers, **places, **more)


def settings_of_both():
    return transformers.CLIPConfig(
        text_config={"vocab_size": 30, "max_position_embeddings": 8, "eos_token_id": 29, **SMALL},
        vision_config={**IMAGES, **SMALL},
        projection_dim=8,
    )


OUTPUTS = {
    "the logit of a class": (
        lambda: transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=3, **IMAGES, **SMALL)),
        an_image,
        lambda output: output["logits"][0, 1],
    ),
    "a letter at an instant of speech": (
        lambda: transformers.Wav2Vec2ForCTC(settings_of_speech(vocab_size=12)),
        a_sound,
        lambda output: output["logits"][0, 3, 5],
    ),
    "the similarity of an image and a text": (
        lambda: transformers.CLIPModel(settings_of_both()),
        lambda: text(**pixels()),
        lambda output: output["logits_per_image"][0, 0],
    ),
    "an edge of a box": (
        lambda: transformers.YolosForObjectDetection(
            transformers.YolosConfig(
                num_detection_tokens=3, num_labels=4, **{**IMAGES, "image_size": [16, 16]}, **SMALL
            )
        ),
        pixels,
        lambda output: output["pred_boxes"][0, 0, 0],
    ),
    "a token of a decoder": (
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)
        ),
        lambda: {"inputs_embeds": torch.randn(1, 4, 16), "decoder_input_ids": torch.tensor([[0, 9]])},
        lambda output: output["logits"][0, -1, 3],
    ),
}


@pytest.mark.filterwarnings(
    "ignore:all of the result is one logistic"
)  # a box's edge is one logistic function: its secant has parts
@pytest.mark.parametrize("name", OUTPUTS)
def test_parts_of_any_output_sum_to_what_pytorch_computes(name):
    build, inputs_of, of = OUTPUTS[name]
    torch.manual_seed(0)
    module, inputs = build().double().eval(), inputs_of()
    kind = next(key for key, value in inputs.items() if value.is_floating_point())
    inputs = {key: value.double() if key == kind else value for key, value in inputs.items()}
    changed = inputs[kind].flip(-1)
    with torch.no_grad():
        expected = [of(module(**{**inputs, kind: value})).item() for value in (inputs[kind], changed)]
    function = duat.from_torch(module, inputs)
    arrays = {key: jnp.asarray(value.numpy()) for key, value in inputs.items()}

    def number(value):
        return of(function(**{**arrays, kind: value}))

    parts = duat.decompose(number, arrays[kind], marks="auto")
    every = (parts.input, *parts.terms.values(), *parts.offsets.values())
    near(sum(part.sum() for part in every), expected[0], within=1e-6)  # T5 computes its norms in float32
    difference = duat.secant(number)(arrays[kind], jnp.asarray(changed.numpy()))
    near(difference.parts.sum(), expected[0] - expected[1], within=1e-6)
    assert parts.completeness.verdict == difference.completeness.verdict == "holds"
    assert "not_attributed" not in {key.name for key in parts.offsets}


def test_maps_over_an_image_are_those_of_pytorchs_code():
    torch.manual_seed(0)
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic", "num_labels": 3}
    module = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes)).double().eval()
    image, reference = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    with torch.no_grad():
        value, other = module(torch.stack([image, reference])).logits[:, 1].tolist()
    function = duat.from_torch(module, {"pixel_values": image[None]})
    pixels = [jnp.asarray(each.numpy()) for each in (image, reference)]
    maps = duat.image_maps(lambda x: function(pixel_values=x[None])["logits"][0, 1], *pixels, marks="auto")
    near(maps.value, value, within=1e-9)
    near(maps.change.sum(), value - other, within=1e-9)
    assert (
        maps.completeness.verdict == maps.collapse_completeness.verdict == maps.change_completeness.verdict == "holds"
    )
    assert {part.shape for part in maps.terms.values()} == {(8, 8), (4, 4), (2, 2)}
