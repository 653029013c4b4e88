"""Kinds of baselines: references that are made of an input, each an object, so that a string is always a text."""

from dataclasses import dataclass
from typing import Any, final

from duat_jax.deprecation import warn
from duat_jax.errors import INSIDE, InvalidInput


@dataclass(frozen=True)
class Baseline:
    """A reference that is made of the input itself."""


@final
@dataclass(frozen=True)
class Mask(Baseline):
    """The tokenizer's mask token in every token's place but those of special tokens.

    Example:
        >>> Mask()
        Mask()
    """


@final
@dataclass(frozen=True)
class Pad(Baseline):
    """The tokenizer's padding token in every token's place but those of special tokens.

    Example:
        >>> Pad()
        Pad()
    """


@final
@dataclass(frozen=True)
class Mean(Baseline):
    """The vocabulary's mean embedding in every token's place but those of special tokens; of an image, its mean.

    Example:
        >>> import duat_jax as duat
        >>> model = duat.load()
        >>> duat.contrast(model, "return self", Mean()).references[0].name
        "the vocabulary's mean"
    """


@final
@dataclass(frozen=True)
class Blur(Baseline):
    """The image, blurred by a Gaussian as wide as a patch.

    Example:
        >>> Blur()
        Blur()
    """


KINDS: dict[str, type[Baseline]] = {"mask": Mask, "pad": Pad, "mean": Mean, "blur": Blur}
"""Kinds of baselines by their names on the command line."""


def name_of(baseline: Baseline) -> str:
    """Return a baseline's name in `KINDS`."""
    for name, kind in KINDS.items():
        if isinstance(baseline, kind):
            return name
    raise InvalidInput(f"{baseline} is no baseline of a known kind: give Mask(), Pad(), Mean() or Blur()")


def named_baseline(name: Any) -> Any:
    """Return the baseline that an old name stands for, with a warning; anything else as it is."""
    if not isinstance(name, str) or name not in KINDS:
        return name
    kind = KINDS[name]
    warn(f"the baseline {name!r}", f"duat.baselines.{kind.__name__}()", INSIDE)
    return kind()
