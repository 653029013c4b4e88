"""The old order of the arguments of `duat.diff`, which took two models first."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from duat_jax.deprecation import warn
from duat_jax.models.transformer import Transformer
from duat_jax.weights.result import ModelDiff


def accepts_two_models(diff: Callable[..., ModelDiff]) -> Callable[..., ModelDiff]:
    """Return a `diff` that still takes `diff(before, after, inputs, target)`, and warns."""

    @wraps(diff)
    def call(*args: Any, **kwargs: Any) -> ModelDiff:
        if "after" not in kwargs and not (len(args) > 1 and isinstance(args[1], Transformer)):
            return diff(*args, **kwargs)
        given = dict(zip(("before", "after", "inputs", "target"), args, strict=False)) | kwargs
        warn("duat.diff(before, after, inputs)", "duat.diff(after, inputs, reference=before)")
        return diff(given.pop("after"), reference=given.pop("before"), **given)

    return call
