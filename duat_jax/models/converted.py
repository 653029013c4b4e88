"""Checkpoints of any architecture that Hugging Face transformers has: its PyTorch code, run by JAX and marked."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from duat_jax.errors import BadCheckpoint, DuatError
from duat_jax.extras import requiring
from duat_jax.marking.automatic import auto
from duat_jax.models.checkpoint.dtypes import valid_dtype
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.settings import HEAD_KINDS
from duat_jax.models.config import Config
from duat_jax.models.converted_config import OTHERWISE, config_of, read_out_of
from duat_jax.models.layout import NO_LAYERS, UnitLayout, units_at
from duat_jax.models.transformer import Transformer
from duat_jax.pytorch.module import (
    TorchFunction,
    require_agreement,
    torch_and_torchax,
    torch_outputs,
    weights_of,
)
from duat_jax.transform import marks
from duat_jax.transform.interpret import evaluate
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.marks import stream
from duat_jax.transform.program import trace

AUTOMATIC = {
    "next token": "AutoModelForCausalLM",
    "masked token": "AutoModelForMaskedLM",
    "classes": "AutoModelForSequenceClassification",
    "hidden": "AutoModel",
}
"""The class of transformers that loads a checkpoint with a read-out."""
BY_CHOICE = "by choice"
"""The name under which transformers finds a sum over experts that is one of each token's choices after the other."""


@final
class ConvertedStack(nnx.Module):
    """The layers of a PyTorch model, from embeddings to the states that logits are read from, marked by `duat.auto`.

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
        self, x: Float[Array, "... tokens features"], mask: Bool[Array, "... tokens"] | None = None
    ) -> Float[Array, "... tokens _"]:
        """Return the states."""
        real = jnp.ones(x.shape[:-1], bool) if mask is None else jnp.broadcast_to(mask, x.shape[:-1])
        function = TorchFunction(self.weights, self.module)
        attention_mask = real.reshape(-1, real.shape[-1]).astype(int)

        def states(x: Array) -> Array:
            rows = x.reshape(-1, *x.shape[-2:])
            output = function(inputs_embeds=rows, attention_mask=attention_mask, **_arguments(self.module))
            return _at_tokens(output[self.output], rows.shape[1]).reshape(*x.shape[:-1], -1)

        return auto(states)(stream(x, "layer"))

    def until(
        self, units: UnitLayout, x: Float[Array, "tokens features"], mask: Bool[Array, "tokens"] | None
    ) -> Float[Array, "tokens _"]:
        """Return a residual stream, with the marks before it."""
        program, constants = trace(partial(self, mask=mask), x)
        question = ProgramQuestion(wanted=frozenset({units.site}), value=False, marked=True)
        return units.by_token(evaluate(program, constants, [x], question, {})[1][units.site])


def _at_tokens(output: Any, tokens: int) -> Any:
    """Return the output at every token; that of a whole text is the same at each."""
    return output if output.ndim == 3 else output[:, None].repeat(tokens, 1)


def _arguments(module: Any) -> dict[str, Any]:
    """Return what a model of transformers is asked, beside its inputs."""
    return {"use_cache": False} if hasattr(module.config.get_text_config(), "use_cache") else {}


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
            from PyTorch's.

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
    import torch

    config, whole = config_of(module, name), module
    kind, read_out = config.head.kind, read_out_of(module, config.head.kind)
    if kind == "classes" and read_out is not None:
        module = whole.base_model
    module.config._experts_implementation = _experts_by_choice()
    # Ids in the middle: the first are often padding and masks, whose positions some models don't count.
    sample = (config.vocab // 2 + torch.arange(min(8, config.positions))).remainder(config.vocab)[None]
    keywords = {"attention_mask": torch.ones_like(sample), **_arguments(module)}
    output = "logits" if module is whole and kind != "hidden" else "last_hidden_state"
    try:
        computed = torch_outputs(whole, (), {"input_ids": sample, **keywords})
    except Exception as error:
        raise BadCheckpoint(f"{name}: PyTorch can't compute it: {_line(error)}") from None
    result = "last_hidden_state" if kind == "hidden" else "logits"
    if result not in computed:
        known = ", ".join(sorted(end for end, kind in HEAD_KINDS.items() if kind != "hidden"))
        raise DuatError(f"{name}: a {type(whole).__name__} is none of {known}: give head='hidden'{OTHERWISE}")
    if read_out is not None and module is whole:
        # Its logits are the states from which they are read.
        read_out.forward = torch.nn.Identity().forward
        if config.head.cap is not None:
            module.config.get_text_config().final_logit_softcapping = None
    function = TorchFunction(weights_of(module), module)
    stack, table = ConvertedStack(function, output), _array(_embeddings(module.get_input_embeddings()))
    config = dataclasses.replace(config, marks=_units(stack, table, sample.shape[-1]))
    model = Transformer(config, rngs=None, stack=stack)
    embedding: Any = model.embedding
    embedding.token = nnx.Param(table)
    if read_out is not None:
        model.head.unembedding = nnx.Param(_array(read_out.weight))
        model.head.bias = None if read_out.bias is None else nnx.Param(_array(read_out.bias))
    elif kind == "classes":
        model.head.unembedding = nnx.Param(jnp.eye(config.head.outputs, dtype=embedding.token.dtype))
    ours = jax.jit(lambda model, ids: model(ids[0]))(model, jnp.asarray(sample.numpy()))
    require_agreement(function, computed[result][0], ours, "a sample")
    return model


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


def _units(stack: ConvertedStack, table: Array, tokens: int) -> tuple[UnitLayout, ...]:
    """Return how the units of every mark lie that has one axis of tokens, which is found by texts of two lengths."""
    lengths = tokens, tokens - 1
    programs = [trace(stack, table[:1].repeat(length, 0))[0] for length in lengths]
    layouts = []
    for site in programs[0].of_kind(marks.STREAM, marks.POINT, marks.ACTIVATION):
        if site not in programs[1].places:
            continue
        first, second = (program.place(site).shape for program in programs)
        axes = [axis for axis, sizes in enumerate(zip(first, second, strict=False)) if sizes == lengths]
        if len(axes) == 1 and not programs[0].place(site).loops:
            layouts.append(units_at(site, first, axes[0]))
    return tuple(layouts)


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
    for row, mask, ours in zip(*map(np.asarray, (batch.given, batch.real, states())), strict=True):
        tokens = int(mask.sum())
        text = row[None, :tokens].astype(np.int64)
        keywords = {"input_ids": text, "attention_mask": np.ones_like(text), **_arguments(stack.module)}
        expected = _at_tokens(torch_outputs(stack.module, (), keywords)[stack.output], tokens)
        require_agreement(TorchFunction({}, stack.module), expected[0], ours[:tokens], "this text")
