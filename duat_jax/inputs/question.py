"""A question: inputs and targets, validated once, before anything is computed."""

from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.errors import InvalidInput
from duat_jax.inputs.model_inputs import Inputs, checked_input, is_many, is_sequence, kind_of_input
from duat_jax.inputs.targets import targets_of
from duat_jax.models.targets.base import Target
from duat_jax.models.tokenizer import tokenizer_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Question(NamedTuple):
    """A validated question: inputs, and the targets of each.

    Args:
        inputs: each text or image.
        targets: of each, its targets, with positions counted from its beginning.
        many_inputs: whether they came as a list.
        many_targets: whether targets came as a list.
        tokenizer: makes tokens readable; without it they are called by their numbers.
    """

    inputs: tuple[Inputs, ...]
    targets: tuple[tuple[Target, ...], ...]
    many_inputs: bool
    many_targets: bool
    tokenizer: "Tokenizer | None"

    @property
    def input(self) -> Inputs:
        """The only input."""
        return self.inputs[0]

    @property
    def target(self) -> Target:
        """The only target."""
        return self.targets[0][0]

    @property
    def tokens(self) -> int:
        """The number of tokens of the longest input."""
        return max(len(each.real) for each in self.inputs)


def ask(
    model: Any,
    inputs: Any,
    target: Any = None,
    contrast: Any = None,
    against: Any = None,
    position: Any = None,
    tokenizer: "Tokenizer | None" = None,
) -> Question:
    """Validate inputs and targets, and raise `InvalidInput` with everything that is wrong at once.

    Example:
        >>> import duat_jax as duat
        >>> question = ask(duat.load(), [5, 6, 7], 8)
        >>> question.input.given, question.target.position
        (array([5, 6, 7]), 2)
    """
    config, tokenizer = model.config, tokenizer_of(model, tokenizer, inputs, against)
    problems: list[str] = []
    kind = kind_of_input(config)
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
    return Question(tuple(checked.values()), targets, many_inputs, many_targets, tokenizer)


def ask_once(model: Any, inputs: Any, target: Any = None, *arguments: Any, **named: Any) -> Question:
    """Validate one input and one target; the arguments are those of `ask`."""
    if is_many(model.config, inputs) or is_sequence(target):
        raise InvalidInput("one input and one target are taken: call it once for each")
    return ask(model, inputs, target, *arguments, **named)
