"""The reference implementation: tiny random checkpoints, and what it computes with them in float32 and in true float64.

Hugging Face `transformers` rounds to float32 inside, whatever the dtype of the weights: normalisations, rotary
frequencies, softmax, routers. `exact` lifts those casts: within it `torch.float32` is float64.
"""

import contextlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import transformers
from transformers import AutoConfig, PreTrainedModel

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)  # the arrays are tiny

SIZE = 0.3
"""Standard deviation of the random parameters."""


class Outputs(NamedTuple):
    """What the reference computes for one text or image.

    Args:
        value: logits or last hidden states, `[tokens, outputs]`, or a classifier's, `[outputs]`.
        streams: what goes into the first layer and what comes out of every layer, `[layers + 1, tokens, features]`.
    """

    value: np.ndarray
    streams: np.ndarray


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Lift the casts to float32: within it `torch.float32`, `torch.float` and `Tensor.float` are float64."""
    before = torch.get_default_dtype()
    with (
        mock.patch.multiple(torch, float32=torch.float64, float=torch.float64, FloatTensor=torch.DoubleTensor),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _random(name: str, parameter: torch.Tensor) -> torch.Tensor:
    """Return random values that depend on the name and the shape alone, so that two cases share what they can."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    centre = float(parameter.ndim == 1 and bool((parameter == 1).all()))  # norms that multiply begin at one
    return centre + SIZE * torch.randn(parameter.shape, generator=generator)


def _model(directory: Path, architecture: str, **arguments: Any) -> PreTrainedModel:
    config = AutoConfig.from_pretrained(directory, attn_implementation="eager", experts_implementation="eager")
    return getattr(transformers, architecture)._from_config(config, **arguments).eval()


def make(directory: Path, architecture: str, settings: dict[str, Any]) -> PreTrainedModel:
    """Write a random checkpoint with the given `config.json`, and return its model in float32.

    Args:
        directory: where it is written.
        architecture: the reference's class.
        settings: the fields of `config.json`, as they are to be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = json.dumps({**settings, "architectures": [architecture]}, indent=2)
    (directory / "config.json").write_text(written)
    model = _model(directory, architecture)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_random(name, parameter))
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    (directory / "config.json").rename(directory / "saved.json")
    (directory / "config.json").write_text(written)
    return model


def in_float64(model: PreTrainedModel, directory: Path) -> PreTrainedModel:
    """Return the same model in float64, made and to be run within `exact`.

    Args:
        model: the model in float32.
        directory: that of its checkpoint.
    """
    double = _model(directory, type(model).__name__, dtype=torch.float64)
    double.load_state_dict(model.state_dict())
    return double


def run(model: PreTrainedModel, layer: str, inputs: np.ndarray, segments: np.ndarray | None = None) -> Outputs:
    """Run the reference on one text or image.

    Args:
        model: the reference's model.
        layer: the name of its layers' class.
        inputs: token ids, `[tokens]`, or an image, `[channels, height, width]`.
        segments: of each token the segment, `[tokens]`; all of segment 0 if absent.
    """
    streams: list[torch.Tensor] = []

    def enter(module: torch.nn.Module, arguments: tuple, keywords: dict) -> None:
        if not streams:
            streams.append(arguments[0] if arguments else keywords["hidden_states"])

    def leave(module: torch.nn.Module, arguments: tuple, result: Any) -> None:
        streams.append(result[0] if isinstance(result, tuple) else result)

    layers = [module for module in model.modules() if type(module).__name__ == layer]
    hooks = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in layers]
    hooks += [module.register_forward_hook(leave) for module in layers]
    dtype = next(model.parameters()).dtype
    given = torch.as_tensor(inputs)[None]
    arguments = {"input_ids": given} if given.dtype == torch.int64 else {"pixel_values": given.to(dtype)}
    if segments is not None:
        arguments["token_type_ids"] = torch.as_tensor(segments)[None]
    with torch.no_grad():
        result = model(**arguments)
    for hook in hooks:
        hook.remove()
    value = result.logits if hasattr(result, "logits") else result.last_hidden_state
    return Outputs(value[0].numpy(), torch.stack([stream.reshape(-1, stream.shape[-1]) for stream in streams]).numpy())
