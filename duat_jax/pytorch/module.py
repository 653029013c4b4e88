"""A PyTorch module as a JAX function: its own code runs, on arrays of JAX.

The one file that meets PyTorch's dispatch: torchax says what each of PyTorch's operations is in JAX.
"""

import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from duat_jax.errors import DuatError
from duat_jax.extras import requiring
from duat_jax.operators.shapes import require_fits, shapes_of
from duat_jax.pytorch.corrections import corrections
from duat_jax.pytorch.known_numbers import known_numbers

if TYPE_CHECKING:
    import torch

AGREE = {"float64": 1e-6, "float32": 1e-4}
"""The largest difference that rounding makes between two libraries, relative to the largest number of an output.

PyTorch code that is given float64 often computes a norm or positions in float32.
"""
UNKNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
"""Errors of code that asks for numbers which aren't known in a trace."""


def torch_and_torchax() -> tuple[Any, Any]:
    """Return the two libraries."""
    with requiring("torch", "a PyTorch module"):
        import torch
        import torchax
    return torch, torchax


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class TorchFunction:
    """A PyTorch module as a pure JAX function of its arguments; a pytree of the module's weights.

    Args:
        weights: parameters and buffers by name; shared ones once.
        module: the module, whose own code is run.
    """

    weights: dict[str, jax.Array]
    module: "torch.nn.Module" = field(metadata={"static": True})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's outputs: arrays in dictionaries and tuples, without what is no array.

        Args:
            args: the module's arguments, arrays in the place of tensors.
            kwargs: the same by name.

        Raises:
            DuatError: naming the operations that torchax doesn't have.
        """
        torch, torchax = torch_and_torchax()
        environment = torchax.default_env()
        with ExitStack() as stack:
            for context in (
                # Sizes that are compared by numbers aren't known in a trace; what is computed is compared with PyTorch.
                patch.dict(os.environ, TRANSFORMERS_DISABLE_TORCH_CHECK="1"),
                warnings.catch_warnings(),
                jax.default_matmul_precision("highest"),
                jax.numpy_dtype_promotion("standard"),
                torch.no_grad(),
                _scopes(self.module),
                # Code that looks at a tensor's numbers to save work doesn't while it is written down.
                patch.multiple(torch.compiler, _is_compiling_flag=True, _is_exporting_flag=True),
                environment,
                known_numbers(environment),
                corrections(environment),
            ):
                stack.enter_context(context)
            # Whole numbers of 64 bits have 32 where JAX has no others.
            warnings.filterwarnings("ignore", message="Explicitly requested dtype")
            weights, *given = environment.j2t_iso((self.weights, args, kwargs))
            weights = _of_every_module(self.module, weights)
            try:
                output = torch.func.functional_call(self.module, weights, *given, tie_weights=False)
                return _arrays(output, environment.t2j_iso)
            except torchax.tensor.OperatorNotFound:
                pass
            except UNKNOWN as error:
                where = f"{type(self.module).__name__} chooses its way by a tensor's numbers{_line_of(error)}"
                raise DuatError(f"{where}: it can't be traced") from None
        names = ", ".join(_missing(self.module, args, kwargs))
        raise DuatError(f"torchax {torchax.__version__} has no {names}, which the module computes")

    def with_weights(self, weights: Mapping[str, jax.Array]) -> "TorchFunction":
        """Return the function with other arrays in the place of some weights, so that it is explained over these.

        Args:
            weights: arrays by the weights' names, of their shapes and dtypes.

        Returns:
            The function; the others of its weights are the same arrays.

        Raises:
            DuatError: for a name that the module doesn't have, and for another shape or dtype.

        Example:
            >>> import pytest
            >>> torch, _ = pytest.importorskip("torch"), pytest.importorskip("torchax")
            >>> function = from_torch(torch.nn.Linear(3, 2).eval(), [torch.ones(3)])
            >>> function.with_weights({"weight": jnp.zeros((2, 3)), "bias": jnp.ones(2)})(jnp.ones(3)).tolist()
            [1.0, 1.0]
        """
        name = type(self.module).__name__
        if unknown := [key for key in weights if key not in self.weights]:
            raise DuatError(f"{name} has no weight {unknown[0]!r}: its weights are {', '.join(self.weights)}")
        require_fits(dict(weights), {key: shapes_of(self.weights[key]) for key in weights}, name)
        return replace(self, weights={**self.weights, **weights})


def _line_of(error: Exception) -> str:
    """Return the place in a module's own code at which an error was raised."""
    libraries = ("/torch/", "/torchax/", "/jax/", "/duat_jax/")
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not any(map(frame.filename.count, libraries))
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _missing(module: "torch.nn.Module", args: Any, kwargs: Any) -> list[str]:
    """Return the names of all operations that a module computes on zeros and torchax doesn't have."""
    torch, torchax = torch_and_torchax()
    mode: Any = torch.utils._python_dispatch.TorchDispatchMode
    names = set()

    class MissingOperations(mode):
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            try:
                torchax.default_env()._get_op_or_decomp(operation)
            except torchax.tensor.OperatorNotFound:
                names.add(f"{operation}")
            return operation(*args, **(kwargs or {}))

    zeros = jax.tree.map(
        lambda each: np.zeros(each.shape, each.dtype) if hasattr(each, "shape") else each, (args, kwargs)
    )
    with (
        corrections(torchax.default_env()),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        MissingOperations(),
    ):
        torch_outputs(module, *zeros)
    return sorted(names)


def _arrays(output: Any, convert: Any) -> Any:
    """Return the arrays of a module's output."""
    if isinstance(output, Mapping):
        arrays = {name: _arrays(value, convert) for name, value in output.items()}
        return {name: value for name, value in arrays.items() if value is not None}
    if isinstance(output, tuple | list):
        return tuple(value for each in output if (value := _arrays(each, convert)) is not None)
    return convert(output) if hasattr(output, "detach") else None


def has_decoder(module: "torch.nn.Module") -> bool:
    """Return whether a module is an encoder with a decoder of Hugging Face transformers."""
    return bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))


def _has_towers(module: "torch.nn.Module") -> bool:
    """Return whether a module has layers for an image and layers for a text."""
    settings = getattr(module, "config", None)
    return hasattr(settings, "vision_config") and hasattr(settings, "text_config")


def _names(module: "torch.nn.Module") -> dict[Any, str]:
    """Return the scope of each module inside another one: `layers.3` for one of a list, else its own name."""
    # What stands around all lists of layers, as `model` does, and a module without weights have none.  The layers of
    # an encoder and of its decoder are counted on.
    import torch

    modules = dict(module.named_modules())
    lists = [name for name, each in modules.items() if isinstance(each, torch.nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    counted = outermost if len(outermost) == 1 or has_decoder(module) or _has_towers(module) else []
    counted = sorted(counted, key=lambda name: "vision" not in name)
    before = dict(zip(counted, accumulate((len(modules[name]) for name in counted), initial=0), strict=False))
    names: dict[Any, str] = {}
    for name, each in modules.items():
        around, _, last = name.rpartition(".")
        if around in lists:
            kind = around.rpartition(".")[2]
            names[each] = f"layers.{before[around] + int(last)}" if around in before else f"{kind}.{last}"
        elif next(each.parameters(), None) is not None and not (
            outermost and all(other.startswith(f"{name}.") for other in outermost)
        ):
            names[each] = last
    return names


def _of_every_module(module: "torch.nn.Module", weights: dict[str, Any]) -> dict[str, Any]:
    """Return weights by all their names, a shared one by those of every module that has it."""
    # PyTorch does the same, but exchanges the tensors of a module with two names twice, and so leaves ours in it.
    names = {each: name for name, each in [*module.named_parameters(), *module.named_buffers()]}
    shared = {
        f"{prefix}.{key}".lstrip("."): names[each]
        for prefix, inner in module.named_modules()
        for key, each in [*inner._parameters.items(), *inner._buffers.items()]
        if each is not None
    }
    return {name: weights[first] for name, first in shared.items() if first in weights}


@contextmanager
def _scopes(module: "torch.nn.Module") -> Iterator[None]:
    """Compute every module's operations in a scope of its name, as `jax.named_scope` gives it."""
    import torch

    names = _names(module)
    opened: list[Any] = []

    def enter(inner: Any, _: Any) -> None:
        opened.append(jax.named_scope(names[inner]) if names.get(inner) else ExitStack())
        opened[-1].__enter__()

    def leave(*_: Any) -> None:
        opened.pop().__exit__(None, None, None)

    hooks = torch.nn.modules.module
    handles = (
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def weights_of(module: "torch.nn.Module") -> dict[str, jax.Array]:
    """Return a module's parameters and buffers as arrays, which share its memory where JAX can."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: jnp.asarray(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}


def from_torch(module: "torch.nn.Module", example: Sequence[Any] | Mapping[str, Any]) -> TorchFunction:
    """Return a PyTorch module as a JAX function, whose outputs are compared with PyTorch's on an example.

    The module's own code runs, whenever the function is traced, on arrays of JAX; every operation stands in a scope
    of its module's name.  `duat.auto`, `duat.secant` and JAX's transformations take the function.

    Args:
        module: the module, in the mode for inference: `module.eval()`.
        example: arguments, by position or by name: tensors, arrays, or what isn't traced.

    Returns:
        The function; its `weights` are a pytree, its outputs arrays in dictionaries and tuples.

    Raises:
        DuatError: if PyTorch isn't installed; for a module in training; naming an operation that has no counterpart;
            for a cache of Transformers among the arguments; where outputs differ from PyTorch's, with both numbers.

    Example:
        >>> import pytest
        >>> torch, _ = pytest.importorskip("torch"), pytest.importorskip("torchax")
        >>> function = from_torch(torch.nn.Linear(3, 2).eval(), [torch.ones(3)])
        >>> function(jnp.ones(3)).shape
        (2,)

    Source: Wang & Li, Section 3.2, for code of another library.
    """
    torch_and_torchax()
    if module.training:
        raise DuatError(f"{type(module).__name__} is in training: call .eval() on it first")
    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (tuple(example), {})
    function = TorchFunction(weights_of(module), module)
    leaves, structure = jax.tree.flatten(jax.tree.map(_array, (args, kwargs)))
    if caches := [type(leaf).__name__ for leaf in leaves if hasattr(leaf, "get_seq_length")]:
        raise DuatError(
            f"an argument is a {caches[0]}, which isn't an array: give a module that takes keys and values as arrays"
            " and makes the cache of them, such as PEFT's model of a prefix"
        )
    traced = [isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]

    @jax.jit  # as it is asked later; and one program is compiled sooner than one of each operation
    def outputs(function: TorchFunction, arrays: list[jax.Array]) -> Any:
        given = iter(arrays)
        args, kwargs = jax.tree.unflatten(
            structure, [next(given) if is_traced else leaf for leaf, is_traced in zip(leaves, traced, strict=True)]
        )
        return function(*args, **kwargs)

    arrays = [leaf for leaf, is_traced in zip(leaves, traced, strict=True) if is_traced]
    require_agreement(function, torch_outputs(module, args, kwargs), outputs(function, arrays))
    return function


def _array(value: Any) -> Any:
    return jnp.asarray(value.detach().cpu().numpy()) if hasattr(value, "detach") else value


def torch_outputs(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what PyTorch itself computes, as arrays of NumPy."""
    import torch

    def tensor(value: Any) -> Any:
        return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray | jax.Array) else value

    with torch.no_grad():
        output = module(*map(tensor, args), **{name: tensor(value) for name, value in kwargs.items()})
    return _arrays(output, lambda each: each.detach().cpu().numpy())


def require_agreement(function: TorchFunction, expected: Any, computed: Any, what: str = "the example") -> None:
    """Raise where outputs differ from PyTorch's by more than rounding."""
    structures: list[Any] = [jax.tree.structure(expected), jax.tree.structure(computed)]
    if structures[0] != structures[1]:
        raise DuatError(f"{type(function.module).__name__}: on {what} its outputs have another structure in JAX")
    for (path, theirs), ours in zip(
        jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(computed), strict=True
    ):
        name = f"{type(function.module).__name__}: on {what} its output{jax.tree_util.keystr(path)}"
        dtype = jax.dtypes.canonicalize_dtype(theirs.dtype)
        if (theirs.shape, dtype) != (ours.shape, ours.dtype):
            kinds = [f"{each} of shape {list(like.shape)}" for each, like in ((ours.dtype, ours), (dtype, theirs))]
            raise DuatError(f"{name} is {kinds[0]} in JAX and {kinds[1]} in PyTorch")
        if not theirs.size or not np.issubdtype(theirs.dtype, np.floating):
            continue
        away = np.abs(np.asarray(ours, np.float64) - theirs)
        away = np.where(np.asarray(ours) == theirs, 0, away)  # infinite ones too
        largest = np.abs(np.where(np.isfinite(theirs), theirs, 0)).max(initial=0.0)
        bound = AGREE.get(str(ours.dtype), 1e-2) * largest + np.finfo(theirs.dtype).tiny  # JAX may flush what is below
        if not away.max() <= bound:  # NaN agrees with nothing
            k = np.unravel_index(np.nanargmax(away) if not np.isnan(away).all() else 0, away.shape)
            raise DuatError(f"{name} is {ours[k]} in JAX and {theirs[k]} in PyTorch, at {list(map(int, k))}")
