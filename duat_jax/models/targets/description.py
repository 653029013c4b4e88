"""The description of a target on one input: in words, and by what it reads."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from duat_jax.kinds import kept_as


@kept_as("named output")
class NamedOutput(NamedTuple):
    """An output of a model.

    Args:
        id: its number: the id of a token, or the index of a class.
        text: the token's text, or the class's name.
    """

    id: int
    text: str


@kept_as("target")
@dataclass(frozen=True)
class TargetDescription:
    """The target of a result, which prints as a sentence.

    Args:
        headline: the target in words, such as `"logit of ' cat' at token 3, ' the'"`.
        kind: the name of its class in `duat.targets`, such as `"Logit"`.
        output: the token or class that is read; absent of a target that reads none.
        contrast: the token or class that is subtracted, if any.
        against: the text that a similarity compares with; absent of every other target.
        position: the index of the token at which it is read, if it is read at one.
        stream: the number of layers before the residual stream that is read; absent of the model's output.
    """

    headline: str
    kind: str
    output: NamedOutput | None = None
    contrast: NamedOutput | None = None
    against: str | None = None
    position: int | None = None
    stream: int | None = None

    @property
    def output_id(self) -> int | None:
        """The number of the output that is read; absent of a target that reads none."""
        return None if self.output is None else self.output.id

    def __str__(self) -> str:
        return self.headline

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain data, for JSON."""
        named = {name: None if (n := getattr(self, name)) is None else n._asdict() for name in ("output", "contrast")}
        return asdict(self) | named
