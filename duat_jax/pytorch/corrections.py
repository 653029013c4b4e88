"""Operations of PyTorch that torchax lacks, or computes wrongly beside the versions of JAX that are supported here."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp


def _cummax(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
    """Return the largest entries so far and their last places."""
    places = jnp.indices(x.shape)[dim]

    def larger(first: Any, two: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(two[0] >= first[0], b, a), first, two)

    return jax.lax.associative_scan(larger, (x, places), axis=dim)


def _by_name(torch: Any, operators: Any) -> dict[Any, Any]:
    """Return functions whose arguments have other names in torchax than in PyTorch."""
    names: dict[Any, dict[str, str]] = {
        torch.arange: {},
        torch.nn.functional.linear: {"input": "self", "weight": "weights"},
        torch.nn.functional.pad: {"input": "tensor"},
    }

    def call(function: Any, compute: Any, *args: Any, **kwargs: Any) -> Any:
        start = {"start": 0} if function is torch.arange and not args else {}
        return compute(*args, **start | {names[function].get(name, name): each for name, each in kwargs.items()})

    return {function: partial(call, function, operators[function].func) for function in names}


@contextmanager
def corrections(environment: Any) -> Iterator[None]:
    """Have operations computed rightly."""
    import torch
    from torchax.ops import jax_reimplement, ops_registry
    from torchax.tensor import Tensor

    aten = torch.ops.aten
    functions = {
        aten._is_all_true.default: jnp.all,
        aten.cummax.default: _cummax,
        aten.logcumsumexp.default: lambda x, dim: jax.lax.cumlogsumexp(x, dim % x.ndim),
        **_by_name(torch, environment._ops),
    }
    operators = {
        operation: ops_registry.Operator(
            operation, function, is_jax_function=True, is_user_defined=True, needs_env=False, is_view_op=False
        )
        for operation, function in functions.items()
    }
    # Since JAX 0.10 a kernel stands beside its width.
    kernels = {name: each[-1] if isinstance(each, tuple) else each for name, each in jax_reimplement._kernels.items()}
    with (
        patch.dict(environment._ops, operators),
        patch.object(jax_reimplement, "_kernels", kernels),
        patch.object(Tensor, "type_as", lambda tensor, other: tensor.to(other.dtype)),
    ):
        yield
