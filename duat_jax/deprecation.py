"""Old names of public functions, arguments and fields: each warns and names the new one, for one release."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from duat_jax.errors import PACKAGE, warn_caller

P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result", bound=type)

MOVED = {
    "edits": ("Edit", "Heads", "Neurons", "Stream"),
    "models": ("Config", "Transformer"),
    "operators": (
        *("Estimate", "LinearMap", "SingularTriplets", "diagonal", "estimated_diagonal", "estimated_frobenius"),
        *("frobenius", "singular_triplets", "token_norms"),
    ),
    "results": (
        *("AttentionScore", "ClosedForm", "Collapse", "Completeness", "Contrast", "DecodedTriplet", "Decomposition"),
        *("Dynamics", "Explanation", "ImageMaps", "Intervention", "Marked", "Recording", "Score", "ScoreSide"),
        "Secant",
    ),
    "targets": ("Direction", "Logit", "LogProbability", "Similarity", "Target"),
}
"""Names that were in `duat_jax` itself, by the namespace in which they are now."""

NEW_NAMES = {
    **{name: f"{namespace}.{name}" for namespace, names in MOVED.items() for name in names},
    "BadText": "InvalidInput",
    "Class": "targets.ClassLogit",
    "Text": "TokenizedText",
    "attends": "explain_attention",
    "edits.Between": "edits.SteeringVector",
    "edits.Moved": "edits.HeadMove",
    "edits.On": "edits.FromInput",
    "in_context.Question": "in_context.FewShotQuestion",
    "lora.Settings": "lora.TrainingSettings",
    "records": "schemas",
}
"""Old names in `duat_jax` and its namespaces, and what they are called now."""

WRAPPERS = tuple(
    str(PACKAGE / name)
    for name in ("errors.py", "deprecation.py", "namespaces.py", "records.py", "__init__.py", "weights/old_order.py")
)
"""The beginnings of the names of files that stand between an old name and the line that used it."""


def new_name(old: str) -> str:
    """Return what an old name in `duat_jax` or one of its namespaces is called now, with a warning."""
    if old not in NEW_NAMES:
        namespace, _, name = f"duat_jax.{old}".rpartition(".")
        raise AttributeError(f"module {namespace!r} has no attribute {name!r}")
    warn(f"duat_jax.{old}", f"duat_jax.{NEW_NAMES[old]}")
    return NEW_NAMES[old]


def warn(old: str, new: str, within: tuple[str, ...] = WRAPPERS) -> None:
    """Warn that a name will be gone with the next release."""
    warn_caller(f"{old} is called {new} now; the old name goes with the next release", FutureWarning, within)


def renamed_arguments(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator with which a function still accepts the old names of its arguments.

    Example:
        >>> @renamed_arguments(given="inputs")
        ... def count(inputs):
        ...     return len(inputs)
        >>> count(inputs=[5, 6])
        2
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in new_names.items():
                # Where both are given the function names the argument that it doesn't know.
                if old in kwargs and new not in kwargs:
                    warn(f"the argument {old!r}", repr(new))
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def renamed_fields(**new_names: str) -> Callable[[Result], Result]:
    """Return a decorator with which a result can still be read by the old names of its fields."""

    def decorate(result: Result) -> Result:
        for old, new in new_names.items():

            def read(self: Any, old: str = old, new: str = new) -> Any:
                warn(f"the field {old!r}", repr(new))
                return getattr(self, new)

            setattr(result, old, property(read, doc=f"The old name of `{new}`."))
        return result

    return decorate


def carries_tokenizer(load: Callable[P, R]) -> Callable[P, R]:
    """Return `load` with its old argument `tokenizer=True`, by which it returns the model's tokenizer too."""

    @functools.wraps(load)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        both = kwargs.pop("tokenizer", False)
        model: Any = load(*args, **kwargs)
        if not both:
            return model
        warn("load(…, tokenizer=True)", "model.tokenizer, which every loaded model has,")
        return model, model.tokenizer

    return call


def tokenizer_was_second(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that still accepts the tokenizer as its second argument."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        named: Any = kwargs
        if len(args) > 1 and hasattr(args[1], "encode_batch"):
            warn(f"{function.__name__}(model, tokenizer, …)", f"{function.__name__}(model, …, tokenizer=…)")
            model, named["tokenizer"], *rest = args
            return function(model, *rest, **named)  # type: ignore[arg-type]
        return function(*args, **named)

    return call
