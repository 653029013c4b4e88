"""Whole numbers that don't depend on what is traced stay known to a module's code, which may choose its way by them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np


def _known(tensor: Any) -> bool:
    """Return whether a tensor of torchax holds whole numbers or truth values, or one number of these, untraced."""
    array = tensor.source_jax() if hasattr(tensor, "source_jax") else tensor.jax()
    inexact = jnp.issubdtype(array.dtype, jnp.inexact) and not getattr(tensor, "of_known_numbers", False)
    return not isinstance(array, jax.core.Tracer) and not inexact


@contextmanager
def known_numbers(environment: Any) -> Iterator[None]:
    """Compute at once what a module computes of whole numbers alone, and give its code their values."""
    import torch
    import torchax

    tensors = (torchax.tensor.Tensor, torchax.view.View)
    dispatch, to_list = environment.dispatch, torch.Tensor.tolist

    def elsewhere(each: Any) -> bool:
        return isinstance(each, torch.Tensor) and not isinstance(each, tensors)

    def operation(function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        leaves, structure = torch.utils._pytree.tree_flatten((args, kwargs))
        if any(isinstance(each, tensors) for each in leaves):  # with constants of the module's code, perhaps
            with jax.ensure_compile_time_eval():
                leaves = [environment.to_xla(each) if elsewhere(each) else each for each in leaves]
            args, kwargs = torch.utils._pytree.tree_unflatten(leaves, structure)
        known = all(_known(each) for each in leaves if isinstance(each, tensors))
        with jax.ensure_compile_time_eval() if known else ExitStack():
            result = dispatch(function, types, args, kwargs)
        if known and isinstance(result, tensors) and not result.ndim:
            result.of_known_numbers = True
        return result

    def numbers(tensor: Any) -> Any:
        if not isinstance(tensor, tensors):
            return to_list(tensor)
        with jax.ensure_compile_time_eval():
            return np.asarray(tensor.jax()).tolist()

    with patch.object(environment, "dispatch", operation), patch.object(torch.Tensor, "tolist", numbers):
        yield
