"""Small models with each kind of head, and an input of each."""

import functools
import json

import jax.numpy as jnp
import numpy as np
from flax import nnx
from PIL import Image as Pillow

import duat_jax as duat
from duat_jax.inputs import images
from duat_jax.models.config import Head, Image
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

ENCODER = BlockConfig(arrangement="post-norm", features=8, heads=2, neurons=6, causal=False)
DECODER = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=6)
VISION = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=6, causal=False)
LABELS = ("bad", "fair", "good")
CLASSES = {"kind": "classes", "outputs": 3, "labels": LABELS, "bias": True}
IDS, SEGMENTS = [5, 7, 3, 10, 2], [0, 0, 0, 1, 1]
RECIPE = {"do_resize": False, "do_normalize": False, "image_processor_type": "ViTImageProcessor"}
BERT = {
    "family": "bert",
    "blocks": (ENCODER,),
    "vocab": 11,
    "positions": 16,
    "embedding_norm": True,
    "final_norm": False,
}

CONFIGS = {
    "next token": duat.models.Config(
        family="gptj",
        blocks=(DECODER,),
        vocab=11,
        positions=16,
        head=Head(kind="next token", outputs=11, bias=True, cap=0.7),
    ),
    "masked token": duat.models.Config(
        **BERT,
        segments=2,
        head=Head(kind="masked token", outputs=11, tied=True, bias=True, dense="gelu", norm=True),
    ),
    "first": duat.models.Config(**BERT, segments=2, head=Head(**CLASSES, pool="first", dense="tanh")),
    "last": duat.models.Config(
        family="gpt2",
        blocks=(DECODER,),
        vocab=11,
        positions=16,
        head=Head(kind="classes", outputs=3, labels=LABELS, pool="last"),
    ),
    "mean": duat.models.Config(**BERT, head=Head(**CLASSES, pool="mean", dense="relu")),
    "image": duat.models.Config(
        family="vit",
        blocks=(VISION,),
        vocab=1,
        positions=7,
        image=Image(height=9, width=13, channels=3, patch_height=4, patch_width=4),
        head=Head(**CLASSES, pool="first"),
    ),
}

PIXELS = np.random.default_rng(0).normal(size=(3, 9, 13))
GIVEN = dict.fromkeys(CONFIGS, IDS) | {
    "masked token": duat.TokenizedText(IDS, SEGMENTS),
    "first": duat.TokenizedText(IDS, SEGMENTS),
    "image": PIXELS,
}


@functools.cache
def model_of(name):
    return randomised(duat.models.Transformer(CONFIGS[name], dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def load(vision, pixels, mode=None, name="image.png", **recipe):
    (vision / images.RECIPE).write_text(json.dumps(RECIPE | recipe))
    Pillow.fromarray(pixels, mode).save(vision / name)
    return duat.load_image(vision / name, vision)


SQUARE = np.arange(432, dtype=np.uint8).reshape(12, 12, 3)
