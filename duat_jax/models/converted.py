"""Checkpoints of any architecture that Hugging Face transformers has: its PyTorch code, run by JAX and marked."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Int

from duat_jax.errors import BadCheckpoint, DuatError
from duat_jax.extras import requiring
from duat_jax.models.checkpoint.dtypes import valid_dtype
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.settings import HEAD_KINDS
from duat_jax.models.config import Config, Image, ImageBesideText
from duat_jax.models.converted_config import LOGITS_BIAS, OTHERWISE, config_of, kind_of, read_out_of
from duat_jax.models.converted_stack import (
    LOGITS_PER_IMAGE,
    ConvertedStack,
    arguments_beside_image,
    arguments_of,
    at_tokens,
)
from duat_jax.models.found_layouts import layouts_beside_image, layouts_of_image, layouts_of_texts
from duat_jax.models.image_beside_text import PIXELS, patches_of, text_table
from duat_jax.models.layout import DECODER, UnitLayout
from duat_jax.models.transformer import Transformer
from duat_jax.pytorch.embedded_text import with_embedded_text
from duat_jax.pytorch.module import (
    TorchFunction,
    has_decoder,
    require_agreement,
    torch_and_torchax,
    torch_outputs,
    weights_of,
)

AUTOMATIC = {
    "next token": "AutoModelForCausalLM",
    "masked token": "AutoModelForMaskedLM",
    "classes": "AutoModelForSequenceClassification",
    "hidden": "AutoModel",
}
"""The class of transformers that loads a checkpoint with a read-out."""
BY_CHOICE = "by choice"
"""The name under which transformers finds a sum over experts that is one of each token's choices after the other."""


def _architecture(path: Path, head: str | None) -> tuple[Any, Any]:
    """Return the class that a checkpoint was saved with, or one with another read-out, and its settings."""
    torch_and_torchax()
    if head not in (None, *AUTOMATIC):
        raise BadCheckpoint(
            f"{path}: head = {quoted(head)}: by its PyTorch code it has {', '.join(map(repr, AUTOMATIC))}"
        )
    with requiring("torch", "the model"):
        import transformers
    try:
        settings = transformers.AutoConfig.from_pretrained(str(path), trust_remote_code=False)
        name = (getattr(settings, "architectures", None) or ["AutoModel"])[0] if head is None else AUTOMATIC[head]
        return getattr(transformers, name), settings
    except Exception as error:
        raise BadCheckpoint(f"{path}: transformers {transformers.__version__}: {_line(error)}") from None


def load_converted_config(path: Path, head: str | None) -> Config:
    """Load what is known of a checkpoint of any architecture that transformers has, without its weights."""
    architecture, settings = _architecture(path, head)
    torch, _ = torch_and_torchax()
    build = getattr(architecture, "from_config", architecture)
    try:
        with torch.device("meta"):
            module = build(settings)
    except Exception as error:
        raise BadCheckpoint(f"{path}: {_line(error)}") from None
    return config_of(module, str(path))


def load_converted(path: Path, dtype: DTypeLike, head: str | None) -> Transformer:
    """Load a checkpoint of any architecture that transformers has."""
    return from_hugging_face(_architecture(path, head)[0], path, dtype=dtype)


def from_hugging_face(architecture: Any, path: Path | str, *, dtype: DTypeLike = jnp.float32) -> Transformer:
    """Load a checkpoint by a class of Hugging Face transformers, whose PyTorch code is run by JAX and marked.

    Args:
        architecture: the class, for example `transformers.AutoModelForCausalLM`.
        path: the checkpoint directory, or `hub:OWNER/NAME` as in `load`.
        dtype: dtype of the parameters: float32 or float64.

    Returns:
        The model, as `duat.load` returns it.

    Raises:
        BadCheckpoint: where there is none, or transformers can't load it.
        DuatError: without PyTorch; for another dtype, and for float64 where JAX has none; where a text's logits differ
            from PyTorch's, or those by its eager attention, which is read, from those by its default.

    Example:
        >>> import pytest
        >>> _, transformers = pytest.importorskip("torchax"), pytest.importorskip("transformers")
        >>> from_hugging_face(transformers.AutoModelForCausalLM, "nowhere")
        Traceback (most recent call last):
        ...
        duat_jax.errors.BadCheckpoint: nowhere is not a directory: ...
    """
    path = open_checkpoint(path).settings_path.parent
    torch, _ = torch_and_torchax()
    dtype = valid_dtype(dtype, ("float64", "float32"))
    try:
        module = architecture.from_pretrained(
            str(path),
            dtype=getattr(torch, dtype.name),
            attn_implementation="eager",
            trust_remote_code=False,
            local_files_only=True,
        ).eval()
    except Exception as error:
        raise BadCheckpoint(f"{path}: {_line(error)}") from None
    model = converted(module, f"{path}")
    model.tokenizer = path
    return model


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def converted(module: Any, name: str) -> Transformer:
    """Return a model of transformers as one of this package."""
    config, whole = config_of(module, name), module
    if config.beside is not None:
        return converted_beside_image(module, config, config.beside, name)
    if config.image is not None:
        return converted_of_image(module, config, config.image, name)
    kind, read_out = config.head.kind, read_out_of(module, config.head.kind)
    if kind == "classes" and read_out is not None:
        module = whole.base_model
    module.config._experts_implementation = _experts_by_choice()
    # Ids in the middle: the first are often padding and masks, whose positions some models don't count.
    places = np.arange(min(8, config.positions))
    sample = (config.vocab // 2 + places) % config.vocab
    # An encoder reads the first three quarters.
    real = 1 + (places >= 6) if has_decoder(module) else np.ones_like(places)
    output = "logits" if module is whole and kind != "hidden" else "last_hidden_state"
    computed = _computed(name, whole, arguments_of(module, sample, real))
    result = "last_hidden_state" if kind == "hidden" else "logits"
    if result not in computed:
        known = ", ".join(sorted(end for end, kind in HEAD_KINDS.items() if kind != "hidden"))
        raise DuatError(f"{name}: a {type(whole).__name__} is none of {known}: give head='hidden'{OTHERWISE}")
    _require_one_attention(name, whole, arguments_of(module, sample, real), computed[result], result)
    bias: Any = None if read_out is None else getattr(whole, LOGITS_BIAS, read_out.bias)
    if module is whole:
        _return_states(module, config, read_out)
    function = TorchFunction(weights_of(module), module)
    stack, table = ConvertedStack(function, output), _array(_embeddings(module.get_input_embeddings()))
    config = dataclasses.replace(config, marks=layouts_of_texts(stack, table[: len(real)], real))
    model = _with_tables(Transformer(config, rngs=None, stack=stack), table, read_out, bias)
    ours = jax.jit(lambda model, ids: model(ids, segments=jnp.asarray(real - 1)))(model, jnp.asarray(sample))
    if has_decoder(module):
        ours = ours[real == DECODER]
    require_agreement(function, computed[result][0], ours, "a sample")
    return model


def converted_beside_image(module: Any, config: Config, beside: ImageBesideText, name: str) -> Transformer:
    """Return a model of transformers that reads an image, or a sound, before its text."""
    read_out = read_out_of(module, kind_of(module))
    table = text_table(module)
    embeddings = _array(_embeddings(table))
    whole = with_embedded_text(module, table)
    result = LOGITS_PER_IMAGE if read_out is None else "logits"
    image, pixels = beside.image, _sample_image(beside.image, embeddings.dtype)
    ids = _sample_beside_image(config, beside)
    given = arguments_beside_image(module, beside, ids[None], np.ones_like(ids)[None], pixels[None])
    computed = _computed(name, whole, given)[result]
    bias = None if read_out is None else read_out.bias
    _return_states(module, config, read_out)
    stack = ConvertedStack(TorchFunction(weights_of(whole), whole), result, beside, embeddings.shape[-1])
    patches, text = patches_of(image, jnp.asarray(pixels)), embeddings[ids]
    layouts = _traced(name, lambda: layouts_beside_image(stack, beside, patches, text, ids + DECODER))
    config = dataclasses.replace(config, marks=layouts)
    model = _with_tables(Transformer(config, rngs=None, stack=stack), embeddings, read_out, bias)
    joint = np.append(np.zeros(beside.tokens, int), ids)
    ours = jax.jit(lambda model, ids: model(ids, pixels=jnp.asarray(pixels)))(model, jnp.asarray(joint))
    require_agreement(
        TorchFunction({}, whole), computed[0], ours if read_out is None else ours[beside.tokens :], "a sample"
    )
    return model


def converted_of_image(module: Any, config: Config, image: Image, name: str) -> Transformer:
    """Return a model of transformers that reads images alone."""
    output = "logits" if config.head.kind == "classes" else "last_hidden_state"
    function = TorchFunction(weights_of(module), module)
    pixels = _sample_image(image, next(iter(function.weights.values())).dtype)
    computed = _computed(name, module, {PIXELS: pixels[None]})[output]
    stack = ConvertedStack(function, output, image=image)
    layouts = _traced(name, lambda: layouts_of_image(stack, image, patches_of(image, jnp.asarray(pixels))))
    model = Transformer(dataclasses.replace(config, marks=layouts), rngs=None, stack=stack)
    _read_classes(model, pixels.dtype)
    ours = jax.jit(lambda model, pixels: model(pixels))(model, jnp.asarray(pixels))
    require_agreement(function, computed[0], ours[-len(computed[0]) :], "a sample")
    return model


def _computed(name: str, module: Any, given: dict[str, Any]) -> Any:
    """Return what PyTorch computes of a sample, or raise in one line."""
    try:
        return torch_outputs(module, (), given)
    except Exception as error:
        raise BadCheckpoint(f"{name}: PyTorch can't compute it: {_line(error)}") from None


def _require_one_attention(name: str, module: Any, given: dict[str, Any], expected: Any, result: str) -> None:
    """Raise where attention computes something else by PyTorch's kernel than in the code that is read here."""
    # Falcon with ALiBi: of transformers' two, "eager" adds the bias of positions twice, and "sdpa" is the default.
    if not getattr(module, "_supports_sdpa", False):
        return
    module.config._attn_implementation = "sdpa"
    found = _computed(name, module, given)[result]
    module.config._attn_implementation = "eager"
    try:
        require_agreement(TorchFunction({}, module), found, expected, "a sample")
    except DuatError:
        raise DuatError(
            f"{name}: a {type(module).__name__} of this transformers computes other numbers with"
            ' attn_implementation="eager", which is read here, than with "sdpa", its default: that is a mistake in one'
            " of them"
        ) from None


def _traced(name: str, find: Callable[[], tuple[UnitLayout, ...]]) -> tuple[UnitLayout, ...]:
    """Return what is found by tracing PyTorch's code, or raise in one line."""
    try:
        return find()
    except DuatError:
        raise
    except Exception as error:  # of many kinds, such as a draw of random numbers
        raise DuatError(f"{name}: its PyTorch code can't be traced: {_line(error)}") from None


def _sample_image(image: Image, dtype: Any) -> np.ndarray:
    """Return an image that isn't the same anywhere."""
    shape = image.channels, image.height, image.width
    return np.sin(np.arange(math.prod(shape), dtype=dtype)).reshape(shape)


def _sample_beside_image(config: Config, beside: ImageBesideText) -> Int[np.ndarray, "tokens"]:
    """Return a text, with the image's tokens after the first."""
    ids = (config.vocab // 2 + np.arange(6)) % config.vocab
    ids = ids[ids != beside.placeholder]
    if beside.placeholder is not None:
        return np.concatenate([ids[:1], np.full(beside.placeholders, beside.placeholder), ids[1:]])
    return ids if beside.filler is None else np.resize(ids, config.positions - beside.tokens)


def _return_states(module: Any, config: Config, read_out: Any) -> None:
    """Have a module return the states that its logits are read from, in the logits' place."""
    import torch

    if read_out is None:
        return
    read_out.forward = torch.nn.Identity().forward
    if hasattr(module, LOGITS_BIAS):
        module.register_buffer(LOGITS_BIAS, torch.zeros_like(getattr(module, LOGITS_BIAS)[:, :1]))
    if config.head.cap is not None:
        module.config.get_text_config().final_logit_softcapping = None


def _with_tables(model: Transformer, table: Array, read_out: Any, bias: Any) -> Transformer:
    """Return a model with the embeddings and the read-out of PyTorch's."""
    embedding: Any = model.embedding
    embedding.token = nnx.Param(table)
    if read_out is not None:
        model.head.unembedding = nnx.Param(_array(read_out.weight))
        model.head.bias = None if bias is None else nnx.Param(_array(bias.reshape(-1)))
    else:
        _read_classes(model, table.dtype)
    return model


def _read_classes(model: Transformer, dtype: Any) -> None:
    """Have a model of classes read the logits that PyTorch's code computes, as they are."""
    if model.config.head.kind == "classes":
        model.head.unembedding = nnx.Param(jnp.eye(model.config.head.outputs, dtype=dtype))


def _experts_by_choice() -> str:
    """Return the name under which transformers finds a sum over experts, one choice of each token after the other."""
    # Its own sums choose rows by numbers that aren't known in a trace, or have an axis of tokens and choices together.
    try:
        from transformers.integrations import moe
    except ImportError:  # before transformers 5 there is none
        return "eager"

    def experts(module: Any, states: Any, chosen: Any, weights: Any) -> Any:
        choices = range(chosen.shape[-1])
        return sum(moe.batched_mm_experts_forward(module, states, chosen[:, [k]], weights[:, [k]]) for k in choices)

    moe.ALL_EXPERTS_FUNCTIONS.register(BY_CHOICE, experts)
    return BY_CHOICE


def _array(tensor: Any) -> Array:
    return jnp.asarray(tensor.detach().numpy())


def _embeddings(table: Any) -> Any:
    """Return the embedding of every token: the rows of a plain table, or what another layer computes of each id."""
    import torch

    # A plain table's rows are shared with the module's weights.
    return table.weight if type(table) is torch.nn.Embedding else table(torch.arange(len(table.weight)))


def require_source_agrees(model: Transformer, batch: Any, states: Callable[[], Any]) -> None:
    """Raise where the states of texts differ from those that a model's PyTorch code computes, of each text alone."""
    stack = model.stack
    if not isinstance(stack, ConvertedStack):
        return
    for k, (ids, real, ours) in enumerate(zip(*map(np.asarray, (batch.given, batch.real, states())), strict=True)):
        if stack.image is not None:
            last, given = real > 0, {PIXELS: ids[None]}
        elif stack.beside is None:
            last = real == real.max()  # of an encoder with a decoder, the decoder's
            given = arguments_of(stack.module, ids, real)
        else:
            last = real >= DECODER
            text, pixels = ids[last][None], np.asarray(batch.pixels[k])[None]
            given = arguments_beside_image(stack.module, stack.beside, text, np.ones_like(text), pixels)
        output = torch_outputs(stack.module, (), given)[stack.output]
        computed = at_tokens(output, int(last.sum()))[0]
        require_agreement(TorchFunction({}, stack.module), computed, ours[last][-len(computed) :], "this input")
