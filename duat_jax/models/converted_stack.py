"""The layers of a PyTorch model as one stack: of one text, or of an encoder's text and its decoder's."""

from collections.abc import Callable
from functools import partial
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Shaped

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.marking.automatic import auto
from duat_jax.marking.patterns import held_factor
from duat_jax.marking.program import MIXED
from duat_jax.models.layout import DECODER, ENCODER, NO_LAYERS, UnitLayout, pattern_at, units_at
from duat_jax.pytorch.module import TorchFunction, has_decoder
from duat_jax.transform import marks
from duat_jax.transform.interpret import evaluate
from duat_jax.transform.keys import Key, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.marks import stream
from duat_jax.transform.program import trace


@final
class ConvertedStack(nnx.Module):
    """The layers of a PyTorch model, from embeddings to the states that logits are read from, marked by `duat.auto`.

    An encoder's text and its decoder's stand one after the other: `mask` says of each token which of the two it
    belongs to.

    Args:
        function: the model as a JAX function, whose read-out is the identity.
        output: the name of its output.
    """

    def __init__(self, function: TorchFunction, output: str) -> None:
        self.weights = nnx.data(function.weights)
        self.module, self.output = function.module, output

    @property
    def blocks(self) -> Any:
        """No blocks: the layers are known as marks alone."""
        raise DuatError(NO_LAYERS)

    def __call__(
        self, x: Float[Array, "... tokens features"], mask: Shaped[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens _"]:
        """Return the states."""
        if mask is None and has_decoder(self.module):
            raise InvalidInput(
                "an encoder with a decoder reads two texts: say of each token which one it belongs to,"
                " model(ids, segments=…) with 0 for the encoder's and 1 for the decoder's, or give a mask of 1 and 2"
            )
        real = jnp.ones(x.shape[:-1], bool) if mask is None else jnp.broadcast_to(mask, x.shape[:-1])
        x = stream(x, "layer")
        return self._of_two(x, real) if has_decoder(self.module) else self._marked({ENCODER: real})({ENCODER: x})

    def until(
        self, units: UnitLayout, x: Float[Array, "tokens features"], mask: Shaped[Array, "tokens"] | None
    ) -> Float[Array, "tokens _"]:
        """Return a residual stream, with the marks before it."""
        program, constants = trace(partial(self, mask=mask), x)
        question = ProgramQuestion(wanted=frozenset({units.site}), value=False, marked=True)
        real = jnp.ones(len(x), bool) if mask is None else mask
        return units.by_token(evaluate(program, constants, [x], question, {})[1][units.site], real)

    def layouts(self, x: Float[Array, "tokens features"], real: Int[np.ndarray, "tokens"]) -> tuple[UnitLayout, ...]:
        """Return how units lie at every mark with one axis of tokens, which is found by texts of two lengths."""
        streams = {int(each): x[real == each] for each in np.unique(real)}
        shorter = {each: rows[1:] for each, rows in streams.items()}
        ones = [{each: jnp.ones(len(rows), bool) for each, rows in texts.items()} for texts in (streams, shorter)]
        programs = [trace(self._marked(mask), texts)[0] for mask, texts in zip(ones, (streams, shorter), strict=True)]
        layouts = [units_at(Site(marks.STREAM, Key((), "layer", 0)), x.shape, 0, 0)]

        def axes_of_tokens(site: Site) -> dict[int, int]:
            """Return each axis of tokens of a mark's array, with the number of the stream."""
            first, second = (program.place(site).shape for program in programs)
            return {
                axis: each if len(streams) > 1 else 0
                for axis, sizes in enumerate(zip(first, second, strict=False))
                for each, rows in streams.items()
                if sizes == (len(rows), len(rows) - 1)
            }

        for site in programs[0].of_kind(marks.STREAM, marks.POINT, marks.ACTIVATION):
            if site not in programs[1].places or programs[0].place(site).loops:
                continue
            axes = axes_of_tokens(site)
            if len(axes) == 1:
                shape = programs[0].place(site).shape
                units = units_at(site, shape, *next(iter(axes.items())))
                factor = held_factor(programs[0], site) if site.key.name == MIXED else None
                if factor is not None and factor.site in programs[1].places:
                    sizes = programs[0].place(factor.site).shape
                    units = units._replace(pattern=pattern_at(units, factor, sizes, axes_of_tokens(factor.site)))
                layouts.append(units)
        return tuple(layouts)

    def _marked(self, real: dict[int, Shaped[Array, "... tokens"]]) -> Callable[[dict[int, Array]], Array]:
        """Return the function from the embeddings of each stream to the states, marked."""

        def states(streams: dict[int, Array]) -> Array:
            rows = {each: x.reshape(-1, *x.shape[-2:]) for each, x in streams.items()}
            masks = {each: mask.reshape(-1, mask.shape[-1]).astype(int) for each, mask in real.items()}
            given = {"inputs_embeds": rows[ENCODER], "attention_mask": masks[ENCODER]}
            if DECODER in rows:
                given |= {"decoder_inputs_embeds": rows[DECODER], "decoder_attention_mask": masks[DECODER]}
            output = TorchFunction(self.weights, self.module)(**given, **arguments(self.module))[self.output]
            *texts, tokens, _ = streams[max(streams)].shape
            return at_tokens(output, tokens).reshape(*texts, tokens, -1)

        return auto(states)

    def _of_two(self, x: Float[Array, "... tokens features"], real: Shaped[Array, "... tokens"]) -> Array:
        """Return the decoder's states at its tokens, which come after the encoder's, and zeros at those."""
        encoder, decoder = real == ENCODER, real == DECODER
        moved = jnp.vectorize(partial(jnp.roll, axis=0), signature="(t,f),()->(t,f)")
        before, of_tokens = encoder.sum(-1), decoder[..., None]
        streams = {ENCODER: jnp.where(encoder[..., None], x, 0), DECODER: moved(jnp.where(of_tokens, x, 0), -before)}
        masks = {ENCODER: encoder, DECODER: moved(of_tokens, -before)[..., 0]}
        return jnp.where(of_tokens, moved(self._marked(masks)(streams), before), 0)


def at_tokens(output: Any, tokens: int) -> Any:
    """Return the output at every token; that of a whole text is the same at each."""
    return output if output.ndim == 3 else output[:, None].repeat(tokens, 1)


def arguments(module: Any) -> dict[str, Any]:
    """Return what a model of transformers is asked, beside its inputs."""
    return {"use_cache": False} if hasattr(module.config.get_text_config(), "use_cache") else {}


def arguments_of(module: Any, ids: Int[np.ndarray, "tokens"], real: Shaped[np.ndarray, "tokens"]) -> dict[str, Any]:
    """Return what a model of transformers is asked about the tokens of a text, by itself."""
    parts = {"input_ids": ids[real == ENCODER]}
    if has_decoder(module):
        parts["decoder_input_ids"] = ids[real == DECODER]
    texts = {name: part[None].astype(np.int64) for name, part in parts.items()}
    return {**texts, "attention_mask": np.ones_like(texts["input_ids"]), **arguments(module)}
