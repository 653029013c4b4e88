"""The layers of a PyTorch model as one stack: of one text, or of two streams, an encoder or an image before a text."""

from collections.abc import Callable
from functools import partial
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Shaped

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.marking.automatic import auto
from duat_jax.models.config import Image, ImageBesideText
from duat_jax.models.image_beside_text import FEATURES, PIXELS, pixels_of
from duat_jax.models.layout import DECODER, ENCODER, NO_LAYERS, UnitLayout
from duat_jax.pytorch.module import TorchFunction, has_decoder
from duat_jax.transform.interpret import evaluate
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.marks import hold, stream
from duat_jax.transform.program import trace

LOGITS_PER_IMAGE = "logits_per_image"
"""The output of PyTorch's code that is the similarity of an image and a text."""


@final
class ConvertedStack(nnx.Module):
    """The layers of a PyTorch model, from embeddings to the states that logits are read from, marked by `duat.auto`.

    An encoder's text and its decoder's stand one after the other: `mask` says of each token which of the two it
    belongs to. So do an image and its text: `mask` is 1 for its tokens, and for the text's 2 more than their ids.

    Args:
        function: the model as a JAX function, whose read-out is the identity.
        output: the name of its output.
        beside: the image or the sound that it reads before its text, if there is one.
        features: the width of its text's embeddings.
        image: the image that it reads, if that is all.
    """

    def __init__(
        self,
        function: TorchFunction,
        output: str,
        beside: ImageBesideText | None = None,
        features: int = 0,
        image: Image | None = None,
    ) -> None:
        self.weights = nnx.data(function.weights)
        self.module, self.output = function.module, output
        self.beside, self.features, self.image = beside, features, image

    @property
    def blocks(self) -> Any:
        """No blocks: the layers are known as marks alone."""
        raise DuatError(NO_LAYERS)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens _"]:
        """Return the states."""
        if mask is None and self.beside is not None:
            raise InvalidInput("which tokens are an image's and which a text's isn't known: ask model(ids, pixels=…)")
        if mask is None and has_decoder(self.module):
            raise InvalidInput(
                "an encoder with a decoder reads two texts: say of each token which one it belongs to,"
                " model(ids, segments=…) with 0 for the encoder's and 1 for the decoder's, or give a mask of 1 and 2"
            )
        real = jnp.ones(x.shape[:-1], bool) if mask is None else jnp.broadcast_to(mask, x.shape[:-1])
        x = stream(x, "layer")
        if self.beside is not None:
            return self._beside_image(self.beside, x, real)
        if self.image is not None:
            seen = self.marked({ENCODER: real[..., self.image.whole :]})({ENCODER: x[..., self.image.whole :, :]})
            return jnp.pad(seen, (*[(0, 0)] * (seen.ndim - 2), (x.shape[-2] - seen.shape[-2], 0), (0, 0)))
        return self._of_two(x, real) if has_decoder(self.module) else self.marked({ENCODER: real})({ENCODER: x})

    def until(
        self, units: UnitLayout, x: Float[Array, "tokens features"], mask: Shaped[Array, "tokens"] | None
    ) -> Float[Array, "tokens _"]:
        """Return a residual stream, with the marks before it."""
        program, constants = trace(partial(self, mask=mask), x)
        question = ProgramQuestion(wanted=frozenset({units.site}), value=False, marked=True)
        real = jnp.ones(len(x), bool) if mask is None else mask
        return units.by_token(evaluate(program, constants, [x], question, {})[1][units.site], real)

    def marked(self, real: dict[int, Shaped[Array, "... tokens"]]) -> Callable[[dict[int, Array]], Array]:
        """Return the function from the embeddings of each stream to the states, marked."""

        def states(streams: dict[int, Array]) -> Array:
            rows = {each: x.reshape(-1, *x.shape[-2:]) for each, x in streams.items()}
            masks = {each: mask.reshape(-1, mask.shape[-1]).astype(int) for each, mask in real.items()}
            outputs = TorchFunction(self.weights, self.module)(**self._given(rows, masks))
            output = self._similarity(**outputs) if self.output == LOGITS_PER_IMAGE else outputs[self.output]
            *texts, tokens, _ = streams[max(streams)].shape
            output = at_tokens(output, tokens if self.image is None else self.image.tokens)
            return output.reshape(*texts, *output.shape[-2:])

        return auto(states)

    def _given(self, rows: dict[int, Array], masks: dict[int, Array]) -> dict[str, Any]:
        """Return the arguments of the PyTorch code."""
        if self.beside is not None:
            pixels, numbers = pixels_of(self.beside.image, rows[ENCODER]), masks[DECODER]
            ids, mask = jnp.maximum(numbers - DECODER, 0), (numbers > 0).astype(int)
            return {"embedded": rows[DECODER], **arguments_beside_image(self.module, self.beside, ids, mask, pixels)}
        if self.image is not None:
            return {PIXELS: pixels_of(self.image, rows[ENCODER])}
        given = {"inputs_embeds": rows[ENCODER], "attention_mask": masks[ENCODER], **arguments(self.module)}
        if DECODER in rows:
            given |= {"decoder_inputs_embeds": rows[DECODER], "decoder_attention_mask": masks[DECODER]}
        return given

    def _similarity(self, image_embeds: Array, text_embeds: Array, **_: Any) -> Float[Array, "texts 1"]:
        """Return the similarity of images and texts: half of the product belongs to each of its factors."""
        image, text = hold(image_embeds, "image"), hold(text_embeds, "text")
        product = ((image * text_embeds).sum(-1) + (image_embeds * text).sum(-1)) / 2
        scale, bias = self.weights["inner.logit_scale"], self.weights.get("inner.logit_bias", 0)
        return jnp.exp(scale) * product[:, None] + bias

    def _beside_image(
        self, beside: ImageBesideText, x: Float[Array, "... tokens features"], real: Shaped[Array, "... tokens"]
    ) -> Array:
        """Return the states at the text's tokens, which come after the image's, and zeros at those."""
        entries = beside.image.channels * beside.image.patch_height * beside.image.patch_width
        seen = slice(beside.image.whole, beside.tokens)
        patches, text = x[..., seen, :entries], x[..., beside.tokens :, : self.features]
        masks = {ENCODER: real[..., seen], DECODER: real[..., beside.tokens :]}
        states = self.marked(masks)({ENCODER: patches, DECODER: text})
        return jnp.pad(states, (*[(0, 0)] * (states.ndim - 2), (beside.tokens, 0), (0, 0)))

    def _of_two(self, x: Float[Array, "... tokens features"], real: Shaped[Array, "... tokens"]) -> Array:
        """Return the decoder's states at its tokens, which come after the encoder's, and zeros at those."""
        encoder, decoder = real == ENCODER, real == DECODER
        moved = jnp.vectorize(partial(jnp.roll, axis=0), signature="(t,f),()->(t,f)")
        before, of_tokens = encoder.sum(-1), decoder[..., None]
        streams = {ENCODER: jnp.where(encoder[..., None], x, 0), DECODER: moved(jnp.where(of_tokens, x, 0), -before)}
        masks = {ENCODER: encoder, DECODER: moved(of_tokens, -before)[..., 0]}
        return jnp.where(of_tokens, moved(self.marked(masks)(streams), before), 0)


def at_tokens(output: Any, tokens: int) -> Any:
    """Return the output at every token; that of a whole text is the same at each."""
    return output if output.ndim == 3 else output[:, None].repeat(tokens, 1)


def arguments(module: Any) -> dict[str, Any]:
    """Return what a model of transformers is asked, beside its inputs."""
    return {"use_cache": False} if hasattr(module.config.get_text_config(), "use_cache") else {}


def arguments_of(module: Any, ids: Any, real: Shaped[np.ndarray, "tokens"]) -> dict[str, Any]:
    """Return what a model of transformers is asked about the tokens of a text, by itself."""
    parts = {"input_ids": ids[real == ENCODER]}
    if has_decoder(module):
        parts["decoder_input_ids"] = ids[real == DECODER]
    texts = {name: part[None].astype(np.int64) for name, part in parts.items()}
    return {**texts, "attention_mask": np.ones_like(texts["input_ids"]), **arguments(module)}


def arguments_beside_image(module: Any, beside: ImageBesideText, ids: Any, mask: Any, pixels: Any) -> dict[str, Any]:
    """Return what a model of transformers is asked about images, or sounds, and their texts."""
    side = "decoder_" if has_decoder(module) else ""
    seen = {FEATURES: pixels[:, 0]} if beside.sound else {PIXELS: pixels}
    return {**seen, f"{side}input_ids": ids, f"{side}attention_mask": mask, **arguments(module)}
