"""The description of a model that a live page begins with."""

import msgspec

from duat_jax.display.page.view import FORMAT
from duat_jax.models.config import Config

EXAMPLES = {
    "embedded": "def get(self, key, default=None): return self.data.get(key,",
    "next token": "The capital of France is",
    "masked token": "The capital of France is [MASK].",
}
"""The text that stands there at first, for the embedded model or by the kind of read-out."""


class About(msgspec.Struct):
    """The description of a model on a live page.

    Args:
        model: its name.
        kind: the kind of its read-out.
        text: the text that stands there at first.
        longest: the largest number of tokens of a text.
        layers: the number of its layers.
        changes: an example of a change.
        format: the version of the page's data.
    """

    model: str
    kind: str
    text: str
    longest: int
    layers: int
    changes: str
    format: int


def about(config: Config, name: str, longest: int, text: str | None = None) -> About:
    """Return the description of a model.

    Args:
        config: the model's parts.
        name: its name.
        longest: the largest number of tokens of a text.
        text: the text that stands there at first; an example if absent.
    """
    kind, last = config.head.kind, config.layers - 1
    return About(
        model=f"{name}: {config.family}, {config.layers} layers",
        kind=kind,
        text=EXAMPLES.get(name, EXAMPLES.get(kind, "")) if text is None else text,
        longest=min(longest, config.positions),
        layers=config.layers,
        changes=f"head {last}:0 set 0, neurons {last}:17,20@-1 scale 2, token 1 set mean or edge {last}:0 0>1 set 0",
        format=FORMAT,
    )
