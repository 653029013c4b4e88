"""The Dense module of a sentence encoder: its `config.json` and its weights, as sentence-transformers writes them."""

from pathlib import Path
from typing import Any

import numpy as np

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted, raise_problems
from duat_jax.models.checkpoint.safetensors_files import WEIGHTS, Safetensors
from duat_jax.models.dense import IDENTITY, Dense

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": IDENTITY,
    **{f"torch.nn.modules.activation.{name}": name.lower() for name in ("Tanh", "ReLU", "GELU", "SiLU")},
}
"""The names of activation functions."""

VECTOR = "sentence_embedding"
"""The name of the text's vector among what modules give each other."""


def read_dense(folder: Path) -> Dense:
    """Return a Dense module."""
    file = folder / "config.json"
    values: Any = read_json(file)
    if not isinstance(values, dict):
        raise BadCheckpoint(f"{file}: must be an object of fields, not {quoted(values)}")
    inputs, outputs, bias = values.get("in_features"), values.get("out_features"), values.get("bias", True)
    activation = values.get("activation_function", "torch.nn.modules.activation.Tanh")
    names = "in_features", "out_features", "bias", "activation_function", "module_input_name", "module_output_name"
    raise_problems(
        file,
        [
            *(f"the field {quoted(name)} isn't known" for name in values if name not in names),
            *(
                f"{name} = {quoted(values[name])} isn't supported, only {VECTOR} is"
                for name in names[4:]
                if values.get(name) not in (None, VECTOR)
            ),
            *(
                f"{name} must be a whole number from 1, not {quoted(size)}"
                for name, size in zip(names, (inputs, outputs), strict=False)
                if type(size) is not int or size < 1
            ),
            *([] if type(bias) is bool else [f"bias must be true or false, not {quoted(bias)}"]),
            *(
                []
                if isinstance(activation, str) and activation in ACTIVATIONS
                else [f"activation_function = {quoted(activation)} isn't supported, only {', '.join(ACTIVATIONS)} are"]
            ),
        ],
    )
    return _with_weights(folder, (outputs, inputs), bias, ACTIVATIONS[activation])


def _with_weights(folder: Path, shape: tuple[Any, Any], bias: bool, activation: str) -> Dense:
    """Read a module's matrix and bias."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise BadCheckpoint(
            f"{folder} has no {WEIGHTS}, which holds the module's weights: save the model as safetensors"
        )
    stored = Safetensors(path, [path])
    wanted = {"linear.weight": [*shape]} | ({"linear.bias": [*shape[:1]]} if bias else {})
    shapes = {name: stored.shape(name) for name in stored.names()}
    if shapes != wanted:
        raise BadCheckpoint(f"{path}: must hold {wanted}, as config.json states, not {shapes}")
    arrays = {name: stored.read(name, np.dtype(np.float64)) for name in wanted}
    return Dense(arrays["linear.weight"], arrays.get("linear.bias"), activation)
