"""The description of a model that a live page begins with."""

from importlib.metadata import version

import msgspec

from duat_jax.display.page.data import FORMAT
from duat_jax.models.config import Config

EXAMPLES = {
    "embedded": (
        "def get(self, key, default=None): return self.data.get(key,",
        "def get(self, key, missing=None): return self.data.get(key,",
    ),
    "next token": ("The capital of France is", "The capital of Italy is"),
    "masked token": ("The capital of France is [MASK].", "The capital of Italy is [MASK]."),
}
"""The text that stands there at first and one to contrast it with, of the embedded model or by the kind of read-out."""


EMBEDDED = "The small model of Python code that comes with the package"


class About(msgspec.Struct):
    """The description of a model on a live page.

    Args:
        model: its name.
        kind: the kind of its read-out.
        text: the text that stands there at first.
        other: an example of another text, to contrast it with; empty for none.
        pairs: whether a decoder's text is read too.
        longest: the largest number of tokens of a text.
        layers: the number of its layers.
        edits: examples of edits, as they are written and in words.
        provenance: how answers are made, by name.
        format: the version of the page's data.
    """

    model: str
    kind: str
    text: str
    other: str
    pairs: bool
    longest: int
    layers: int
    edits: list[tuple[str, str]]
    provenance: list[tuple[str, str]]
    format: int


def about(config: Config, name: str, longest: int, text: str | None = None) -> About:
    """Return the description of a model."""
    kind, last = config.head.kind, config.layers - 1
    model = f"{EMBEDDED if name == 'embedded' else name}: {config.family}, {config.layers} layers"
    first, other = EXAMPLES.get(name, EXAMPLES.get(kind, ("", ""))) if text is None else (text, "")
    return About(
        model=model,
        kind=kind,
        text=first,
        other=other,
        pairs=config.decoder_start is not None,
        longest=min(longest, config.positions),
        layers=config.layers,
        edits=[
            (f"head {last}:0 set 0", f"head 0 of layer {last} is off at every token"),
            (f"neurons {last}:17,20@-1 scale 2", "two neurons at the last token, doubled"),
            (f"edge {last}:0 0>1 set 0", f"head 0 of layer {last} carries nothing from token 0 to token 1"),
            ("token 1 set mean", "the vocabulary's mean embedding in the place of token 1"),
            (f"stream {last}@-1 set 0", f"nothing is left of the last token after {last} layers"),
            (f"head {last}:0@-1 set reference", "what the head brings to the last token on the other text (patching)"),
        ],
        provenance=[("model", model), ("version", f"duat-jax {version('duat-jax')}")],
        format=FORMAT,
    )
