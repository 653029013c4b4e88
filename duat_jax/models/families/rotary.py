"""Rotary positions, read from a checkpoint's configuration."""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.nn.position import Rotary, Stretched, Switched, rotary_frequencies

KINDS = {kind: kind for kind in ("default", "linear", "dynamic", "llama3", "yarn", "longrope")}
"""The kinds of scaling, by the names that configurations give them."""


MOST_TURNED = 2**16
"""The largest number of a head's features that are rotated, so that an absurd number takes no memory."""


class Positions(NamedTuple):
    """Rotary positions, and the longest text.

    Args:
        rotary: the rotation of queries and keys.
        longest: the longest text in tokens.
    """

    rotary: Rotary
    longest: int


def read_rotary(
    settings: Settings,
    head_features: int,
    *,
    base: float = 10_000.0,
    base_field: str = "rope_theta",
    partial: float | None = None,
    kinds: Mapping[str, str] = KINDS,
    original: int | None = None,
    parameters: Settings | None = None,
    rounded: bool = False,
    interleaved: bool = False,
) -> Positions:
    """Read the rotary positions of a checkpoint.

    The newer `rope_parameters` and the older `rope_theta` with `rope_scaling` are both read; a field outside of the
    former is the default for an absent one inside.

    Args:
        settings: its `config.json`.
        head_features: width of one head.
        base: the value of an absent `rope_theta`.
        base_field: the name of `rope_theta` outside of `rope_parameters`.
        partial: the value of an absent `partial_rotary_factor`; absent where heads are always turned whole.
        kinds: the kinds of scaling that the family has, names in `KINDS`, by the names that configurations give them.
        original: the value of an absent `original_max_position_embeddings` outside of `rope_parameters`.
        parameters: the fields of `rope_parameters`, where each kind of layers has its own; the whole if absent.
        rounded: whether the last of an odd number of turned features forms a pair with the one that follows it.
        interleaved: whether neighbouring features are pairs, as in `Rotary`.
    """
    if parameters is None:
        settings.rename("rope_scaling", "rope_parameters")
        parameters = settings.group("rope_parameters")
    scaling = parameters or Settings({})
    positions = settings.integer("max_position_embeddings")
    base = scaling.number("rope_theta", settings.number(base_field, base))
    if partial is None:
        for place in (settings, scaling):
            place.expect("partial_rotary_factor", 1.0)
        partial = 1.0
    partial = scaling.number("partial_rotary_factor", settings.number("partial_rotary_factor", partial))
    scaling.rename("type", "rope_type")
    name = kinds[scaling.choice("rope_type", kinds, "default")]
    turned = int(head_features * min(partial, 1.0))
    pairs = turned + turned % 2 <= head_features and (rounded or (turned and turned % 2 == 0))
    if not pairs or turned > MOST_TURNED or partial > 1:
        settings.problems.append(
            f"rotary positions turn {turned} of a head's {head_features} features: not a number of pairs up to"
            f" {MOST_TURNED} features"
        )
        turned = 2
    if turned % 2 and name == "yarn":
        settings.problems.append(
            f"rope_type = 'yarn' isn't supported where an odd number of features, {turned}, is turned"
        )
    if base <= 1:
        settings.problems.append(f"{base_field} = {base} must be more than one: pairs turn ever slower")
        base = 10_000.0
    usual = rotary_frequencies(turned, base)
    rotary, longest = Rotary(usual), positions
    if name in ("linear", "dynamic"):
        factor = scaling.number("factor", 1.0)
        longest = int(positions * max(factor, 1.0))
        slowed = Rotary(tuple(f / factor for f in usual))
        rotary = slowed if name == "linear" else Rotary(usual, longer=Stretched(positions, factor, turned))
    elif name != "default":
        inside = scaling.integer("original_max_position_embeddings", positions)
        original = settings.integer("original_max_position_embeddings", original or inside)
        if name == "llama3":
            rotary = _by_wave_length(scaling, usual, original)
        elif name == "yarn":
            rotary = _by_parts(scaling, usual, original, positions, base)
        else:
            rotary = _switched(scaling, usual, original, positions)
    return Positions(dataclasses.replace(rotary, interleaved=interleaved), longest)


def parameters_of(settings: Settings, kind: str) -> Settings:
    """Return the fields of `rope_parameters` for one kind of layers, where each kind has its own."""
    return _of_one_kind((settings.group("rope_parameters") or Settings({})).group(kind) or Settings({}))


def of_full_attention(settings: Settings, head_features: int, *, base: float) -> Positions:
    """Read the rotary positions of layers with full attention, where each kind of layers has its own."""
    # An older scaling, outside of `rope_parameters`, is theirs alone.
    older = settings.group("rope_scaling")
    parameters = parameters_of(settings, "full_attention") if older is None else _of_one_kind(older)
    return read_rotary(settings, head_features, base=base, parameters=parameters)


def _of_one_kind(parameters: Settings) -> Settings:
    """Refuse a meaningful field that the reference implementation doesn't read for one kind of layers."""
    parameters.expect("truncate", True)
    return parameters


def _by_wave_length(scaling: Settings, usual: tuple[float, ...], original: int) -> Rotary:
    """Llama 3: divide the frequencies of pairs with waves longer than the original context, blending between."""
    factor, low, high = (
        scaling.number(name, default)
        for name, default in (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
    )

    def scaled(f: float) -> float:
        turns = original * f / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= low)
        return (1 - share) * f / factor + share * f

    return Rotary(tuple(map(scaled, usual)))


def _by_parts(scaling: Settings, usual: tuple[float, ...], original: int, positions: int, base: float) -> Rotary:
    """YaRN: divide the frequencies of pairs that turn rarely within the original context, blending between."""
    factor = scaling.number("factor", positions / original)

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    weights = [scaling.number(name, 0.0) if scaling.has(name) else 0.0 for name in ("mscale", "mscale_all_dim")]
    usual_magnitude = magnitude(weights[0]) / magnitude(weights[1]) if all(weights) else magnitude(1.0)
    strength = scaling.number("attention_factor", usual_magnitude)

    def place(turns: float) -> float:
        """Return the pair that turns a number of times."""
        return len(usual) * math.log(original / (turns * 2 * math.pi)) / math.log(base)

    ends = place(scaling.number("beta_fast", 32.0)), place(scaling.number("beta_slow", 1.0))
    if scaling.boolean("truncate", True):
        ends = math.floor(ends[0]), math.ceil(ends[1])
    first, last = max(ends[0], 0), min(ends[1], 2 * len(usual) - 1)
    width = last - first if last != first else 0.001

    def scaled(pair: int, f: float) -> float:
        slowed = min(max((pair - first) / width, 0.0), 1.0)
        return slowed * f / factor + (1 - slowed) * f

    return Rotary(tuple(scaled(i, f) for i, f in enumerate(usual)), magnitude=strength)


def _switched(scaling: Settings, usual: tuple[float, ...], original: int, positions: int) -> Rotary:
    """LongRoPE: divide the frequency of each pair by its own factor, another one in longer texts."""
    factor = scaling.number("factor", positions / original)
    usual_magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    strength = scaling.number("attention_factor", usual_magnitude)
    short, long = (
        tuple(f / slowed for f, slowed in zip(usual, scaling.numbers(name, len(usual)), strict=True))
        for name in ("short_factor", "long_factor")
    )
    return Rotary(short, magnitude=strength, longer=Switched(original, long))
