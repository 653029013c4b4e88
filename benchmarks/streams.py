"""Claim: of two streams a table costs 1.6 × the forward pass, and a difference 1.7 × the gradient, at most.

Run `.venv-reference/bin/python -m benchmarks.streams` on two quiet cores (three minutes); it needs PyTorch.

By PyTorch's code with random weights: one logit of T5-small's shape, of 128 tokens of its encoder and 32 of its
decoder; and the similarity of an image and a text of 77 tokens, of the shape of CLIP with ViT-B/32, whose streams are
the pixels and the embeddings of the text.  The difference is to the mirrored image, and to features in reverse order.
Everything jitted, with automatic marks, all programs measured in turn in the same run.  Memory is that of temporaries
beside those of `jax.value_and_grad`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import duat_jax as duat
from benchmarks.secant import beside_the_gradient
from benchmarks.table import run
from duat_jax.pytorch.module import TorchFunction
from experiments.markdown import Fields

ENCODER, DECODER, TEXT = 128, 32, 77
TARGET = 11
OF_IDS = "text_model.embeddings.token_embedding.weight"

RESULTS = Path("benchmarks/results/streams.json")

Streams = dict[str, Array]


class EncoderWithDecoder(NamedTuple):
    """A function of the embeddings of an encoder's tokens and of its decoder's."""

    function: TorchFunction

    def streams(self, ids: Array) -> Streams:
        """Return the embeddings of both sides' tokens, the encoder's first."""
        embeddings = self.function.weights["shared.weight"][ids][None]
        return {"inputs_embeds": embeddings[:, :ENCODER], "decoder_inputs_embeds": embeddings[:, ENCODER:]}

    def number(self, streams: Streams) -> Float[Array, ""]:
        """Return a logit at the decoder's last token."""
        state = self.function(**streams, use_cache=False)["last_hidden_state"][0, -1]
        return jnp.dot(state, self.function.weights["shared.weight"][TARGET], precision="highest") / len(state) ** 0.5


class ImageAndText(NamedTuple):
    """A function of an image and of a text's embeddings, which are the whole table of its tokens."""

    function: TorchFunction
    image: Float[Array, "1 channels height width"]

    def streams(self, ids: Array) -> Streams:
        """Return the image and the embeddings of the text."""
        return {"image": self.image, "text": self.function.weights[OF_IDS][ids]}

    def number(self, streams: Streams) -> Float[Array, ""]:
        """Return the similarity, the cosine times CLIP's scale."""
        function = self.function.with_weights({OF_IDS: streams["text"]})
        return function(input_ids=jnp.arange(TEXT)[None], pixel_values=streams["image"])["logits_per_image"][0, 0]


def t5_small() -> EncoderWithDecoder:
    """Return a model of T5-small's shape with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    module = transformers.T5Model(transformers.T5Config(decoder_start_token_id=0)).eval()
    given = {"inputs_embeds": torch.randn(1, ENCODER, 512), "decoder_inputs_embeds": torch.randn(1, DECODER, 512)}
    return EncoderWithDecoder(duat.from_torch(module, {**given, "use_cache": False}))


def clip() -> ImageAndText:
    """Return a model of the shape of CLIP with ViT-B/32 with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    # A text that ends with its last token; its table has these tokens alone.
    config = transformers.CLIPConfig(text_config={"vocab_size": TEXT, "bos_token_id": 0, "eos_token_id": TEXT - 1})
    module = transformers.CLIPModel(config).eval()
    image = torch.randn(1, 3, 224, 224)
    function = duat.from_torch(module, {"input_ids": torch.arange(TEXT)[None], "pixel_values": image})
    return ImageAndText(function, jnp.asarray(image.numpy()))


Model = EncoderWithDecoder | ImageAndText


def forward(model: Model, ids: Array) -> Array:
    """Return the number, from the plain forward pass."""
    return model.number(model.streams(ids))


def gradient(model: Model, ids: Array) -> Any:
    """Return the number and its gradient in both streams."""
    return jax.value_and_grad(model.number)(model.streams(ids))


def table(model: Model, ids: Array) -> duat.results.Decomposition:
    """Return the complete table over both streams: input × token, layer × token × neuron, every bias."""
    return duat.decompose(model.number, model.streams(ids), marks="auto")


class Parts(NamedTuple):
    """Parts of both streams, which sum."""

    streams: Streams
    completeness: duat.results.Completeness


def difference(model: Model, ids: Array) -> Parts:
    """Return the parts of both streams of a difference."""
    x = model.streams(ids)
    split = duat.secant(model.number)(x, jax.tree.map(lambda values: jnp.flip(values, -1), x))
    return Parts(split.parts, split.completeness)


PROGRAMS = {"forward": forward, "gradient": gradient, "table": table, "difference": difference}
CASES = (("T5-small's shape", t5_small, (ENCODER + DECODER,)), ("CLIP's shape", clip, (TEXT,)))


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    cases = {name.split("'")[0]: each for name, each in results.items() if isinstance(each, dict) and "table" in each}
    ratios = {"table": ("table", "forward"), "difference": ("difference", "gradient")}
    return {
        f"{what} {case}": f"{each[program]['median_s'] / each[other]['median_s']:.2f}"
        for case, each in cases.items()
        for what, (program, other) in ratios.items()
    } | {
        f"memory of the {what} {case}": f"{each[what]['temporary_mb'] / each['gradient']['temporary_mb']:.2f}"
        for case, each in cases.items()
        for what in ratios
    }


if __name__ == "__main__":
    run(__doc__, RESULTS, CASES, PROGRAMS, beside_the_gradient)
