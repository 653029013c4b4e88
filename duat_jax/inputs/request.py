"""Validation of a request: inputs and targets, checked before anything is computed."""

from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.errors import InvalidInput
from duat_jax.inputs.model_inputs import Inputs, checked_input, is_many, is_sequence
from duat_jax.inputs.targets import targets_of
from duat_jax.models.config import Config
from duat_jax.models.targets.base import Target

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Request(NamedTuple):
    """A validated request: inputs, and the targets of each.

    Args:
        inputs: each text or image.
        targets: of each, its targets, with positions counted from its beginning.
        many_inputs: whether they came as a list.
        many_targets: whether targets came as a list.
    """

    inputs: tuple[Inputs, ...]
    targets: tuple[tuple[Target, ...], ...]
    many_inputs: bool
    many_targets: bool


def check(
    config: Config,
    inputs: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> Request:
    """Validate inputs and targets.

    Example:
        >>> from duat_jax.models.loader import load_config
        >>> question = check(load_config(), [5, 6, 7], 8)
        >>> question.inputs[0].given, question.targets[0][0].position
        (array([5, 6, 7]), 2)
    """
    problems: list[str] = []
    kind = "text" if config.image is None else "image"
    many_inputs, many_targets = is_many(config, inputs), is_sequence(target)
    names = [f"{kind} {i}" for i in range(len(inputs))] if many_inputs else [f"the {kind}"]
    checked = {
        name: checked_input(config, each, name, problems, tokenizer)
        for each, name in zip(inputs if many_inputs else [inputs], names, strict=True)
    }
    wanted = list(target) if many_targets else [target]
    targets = targets_of(config, checked, wanted, contrast, against, position, tokenizer, problems)
    if problems:
        raise InvalidInput("; ".join(dict.fromkeys(problems)))
    return Request(tuple(checked.values()), targets, many_inputs, many_targets)


def check_one(
    config: Config,
    inputs: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> tuple[Inputs, Target]:
    """Validate one input and one target."""
    if is_many(config, inputs) or is_sequence(target):
        raise InvalidInput("one input and one target are taken: call it once for each")
    request = check(config, inputs, target, contrast, against, position, tokenizer)
    return request.inputs[0], request.targets[0][0]
