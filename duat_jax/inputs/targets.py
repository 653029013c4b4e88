"""Targets of a request: made of its arguments, and validated on each of its inputs."""

from typing import TYPE_CHECKING, Any

import numpy as np

from duat_jax.inputs.model_inputs import Inputs
from duat_jax.models.config import Config
from duat_jax.models.layout import ENCODER
from duat_jax.models.targets.base import FITTING, Target
from duat_jax.models.targets.classes import ClassLogit
from duat_jax.models.targets.logit import Logit
from duat_jax.models.targets.similarity import Similarity
from duat_jax.models.validation import Places

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHOWN_MASKS = 8
"""The largest number of masks that a message names."""

MASKS = ("[MASK]", "<mask>")
"""Names of the mask token in tokenizers."""


def targets_of(
    config: Config,
    inputs: dict[str, Inputs],
    wanted: list[Any],
    contrast: Any,
    against: Any,
    position: Any,
    tokenizer: "Tokenizer | None",
    problems: list[str],
) -> tuple[tuple[Target, ...], ...]:
    """Return of each input its targets, with positions counted from its beginning."""
    if not wanted:
        problems.append("there is no target: give at least one")
    targets = _targets(config, wanted, contrast, against, position, problems)
    mask = _mask(config, tokenizer)
    return tuple(
        tuple(
            _checked(target, config, _places(config, each, name, mask)._replace(tokenizer=tokenizer), name, problems)
            for target in targets
        )
        for name, each in inputs.items()
    )


def _targets(
    config: Config, wanted: list, contrast: Any, against: Any, position: Any, problems: list[str]
) -> list[Target]:
    """Return every target as an object: a token or class stands for its logit, none for an encoder's similarity."""
    kind = config.head.kind
    plain = [each for each in wanted if not isinstance(each, Target)]
    if len(plain) < len(wanted) and any(each is not None for each in (contrast, against, position)):
        problems.append("contrast, against and position belong in the target object: leave them out beside one")
    unfit = {
        "classes": position is not None or against is not None,
        "hidden": contrast is not None
        or position is not None
        or against is None
        or any(each is not None for each in plain),
    }
    if plain and unfit.get(kind, against is not None):
        problems.append(f"a {config.family} model {FITTING[kind]}")

    def target_of(each: Any) -> Target | None:
        if isinstance(each, Target):
            return each
        if kind == "classes":
            return ClassLogit(each, contrast)
        if kind != "hidden":
            return Logit(each, contrast, position)
        return None if against is None else Similarity(against)

    return [target for target in map(target_of, wanted) if target is not None]


def _checked(target: Target, config: Config, places: Places, name: str, problems: list[str]) -> Target:
    if missing := target.missing(config):
        problems.append(missing)
        return target
    # A wrong target is a problem once, but a position may be outside of some texts only.
    of_target: list[str] = []
    checked = target.checked(config, places, of_target)
    problems += [problem.replace("the text's", f"{name}'s") for problem in of_target]
    return checked


def _mask(config: Config, tokenizer: "Tokenizer | None") -> tuple[int, str] | None:
    """Return the mask token of a masked language model, and its name."""
    if config.head.kind != "masked token" or tokenizer is None:
        return None
    known = ((tokenizer.token_to_id(name), name) for name in MASKS)
    return next(((token, name) for token, name in known if token is not None), None)


def _places(config: Config, text: Inputs, name: str, mask: tuple[int, str] | None) -> Places:
    """Return where a text can be read; a masked language model is read at the only mask."""
    tokens = len(text.real)
    if config.head.kind != "masked token":
        return Places(tokens, -1, encoder=int((text.real == ENCODER).sum()) if config.streams else 0)
    if mask is None:
        return Places(tokens, "which token is the mask isn't known without its tokenizer: give a position")
    places = np.flatnonzero(text.given == mask[0])
    if len(places) == 1:
        return Places(tokens, int(places[0]))
    if not len(places):
        return Places(tokens, f"{name} has no {mask[1]}: write one where a token is to be said, or give a position")
    some = ", ".join(map(str, places[:SHOWN_MASKS])) + (", …" if len(places) > SHOWN_MASKS else "")
    return Places(tokens, f"{name} has {len(places)} {mask[1]}, at {some}: give the position of one")
