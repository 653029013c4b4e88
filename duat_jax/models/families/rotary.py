"""How a checkpoint's configuration says which angles queries and keys are turned by."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from duat_jax.models.checkpoint.settings import Settings
from duat_jax.nn.position import Rotary, Stretched, Switched, rotary_frequencies

KINDS = {kind: kind for kind in ("default", "linear", "dynamic", "llama3", "yarn", "longrope")}
"""The kinds of scaling, by the names that configurations give them."""


MOST_TURNED = 2**16
"""The largest number of a head's features that are turned, so that an absurd one takes no memory."""


class Positions(NamedTuple):
    """Rotary positions, and how far they reach.

    Args:
        rotary: what turns queries and keys.
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
) -> Positions:
    """Return the rotary positions of a checkpoint.

    The newer `rope_parameters` and the older `rope_theta` with `rope_scaling` are both read; a field outside of the
    former is what is meant where it says nothing.

    Args:
        settings: its `config.json`.
        head_features: width of one head.
        base: what an absent `rope_theta` means.
        base_field: what `rope_theta` is called outside of `rope_parameters`.
        partial: what an absent `partial_rotary_factor` means; absent where heads are always turned whole.
        kinds: the kinds of scaling that the family has, names in `KINDS`, by the names that configurations give them.
        original: what an absent `original_max_position_embeddings` means outside of `rope_parameters`.
        parameters: the fields of `rope_parameters`, where each kind of layers has its own; the whole if absent.
        rounded: whether the last of an odd number of turned features forms a pair with the one that follows it.
    """
    if parameters is None:
        settings.rename("rope_scaling", "rope_parameters")
        parameters = settings.group("rope_parameters")
    found = parameters or Settings({})
    positions = settings.integer("max_position_embeddings")
    base = found.number("rope_theta", settings.number(base_field, base))
    if partial is None:
        for place in (settings, found):
            place.expect("partial_rotary_factor", 1.0)
        partial = 1.0
    partial = found.number("partial_rotary_factor", settings.number("partial_rotary_factor", partial))
    found.rename("type", "rope_type")
    name = kinds[found.choice("rope_type", kinds, "default")]
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
    if name == "default":
        return Positions(Rotary(usual), positions)
    if name in ("linear", "dynamic"):
        factor = found.number("factor", 1.0)
        rotary = (
            Rotary(tuple(f / factor for f in usual))
            if name == "linear"
            else Rotary(usual, longer=Stretched(positions, factor, turned))
        )
        return Positions(rotary, int(positions * max(factor, 1.0)))
    inside = found.integer("original_max_position_embeddings", positions)
    original = settings.integer("original_max_position_embeddings", original or inside)
    if name == "llama3":
        return Positions(_by_wave_length(found, usual, original), positions)
    if name == "yarn":
        return Positions(_by_parts(found, usual, original, positions, base), positions)
    return Positions(_switched(found, usual, original, positions), positions)


def parameters_of(settings: Settings, kind: str) -> Settings:
    """Return what `rope_parameters` says of one kind of layers, where each has parameters of its own.

    Args:
        settings: the checkpoint's `config.json`.
        kind: which kind.
    """
    return _of_one_kind((settings.group("rope_parameters") or Settings({})).group(kind) or Settings({}))


def of_full_attention(settings: Settings, head_features: int, *, base: float) -> Positions:
    """Return the rotary positions of layers with full attention, where each kind of layers has its own.

    An older scaling, outside of `rope_parameters`, is theirs alone.

    Args:
        settings: the checkpoint's `config.json`.
        head_features: width of one head.
        base: what an absent `rope_theta` means.
    """
    older = settings.group("rope_scaling")
    parameters = parameters_of(settings, "full_attention") if older is None else _of_one_kind(older)
    return read_rotary(settings, head_features, base=base, parameters=parameters)


def _of_one_kind(parameters: Settings) -> Settings:
    """Refuse what the reference doesn't read in the parameters of one kind of layers, though it has a meaning."""
    parameters.expect("truncate", True)
    return parameters


def _by_wave_length(found: Settings, usual: tuple[float, ...], original: int) -> Rotary:
    """Slow pairs, whose wave is longer than the original context, are slowed down; those between are in part."""
    factor, low, high = (
        found.number(name, default)
        for name, default in (("factor", 8.0), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0))
    )

    def scaled(f: float) -> float:
        turns = original * f / (2 * math.pi)
        share = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= low)
        return (1 - share) * f / factor + share * f

    return Rotary(tuple(map(scaled, usual)))


def _by_parts(found: Settings, usual: tuple[float, ...], original: int, positions: int, base: float) -> Rotary:
    """YaRN: pairs that turn often within the original context stay, those that turn little are slowed down."""
    factor = found.number("factor", positions / original)

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    weights = [found.number(name, 0.0) if found.has(name) else 0.0 for name in ("mscale", "mscale_all_dim")]
    usual_magnitude = magnitude(weights[0]) / magnitude(weights[1]) if all(weights) else magnitude(1.0)
    strength = found.number("attention_factor", usual_magnitude)

    def place(turns: float) -> float:
        """Return which pair turns this often."""
        return len(usual) * math.log(original / (turns * 2 * math.pi)) / math.log(base)

    ends = place(found.number("beta_fast", 32.0)), place(found.number("beta_slow", 1.0))
    if found.boolean("truncate", True):
        ends = math.floor(ends[0]), math.ceil(ends[1])
    first, last = max(ends[0], 0), min(ends[1], 2 * len(usual) - 1)
    width = last - first if last != first else 0.001

    def scaled(pair: int, f: float) -> float:
        slowed = min(max((pair - first) / width, 0.0), 1.0)
        return slowed * f / factor + (1 - slowed) * f

    return Rotary(tuple(scaled(i, f) for i, f in enumerate(usual)), magnitude=strength)


def _switched(found: Settings, usual: tuple[float, ...], original: int, positions: int) -> Rotary:
    """LongRoPE: each pair is slowed down by a factor of its own, by another in texts beyond the original context."""
    factor = found.number("factor", positions / original)
    usual_magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    strength = found.number("attention_factor", usual_magnitude)
    short, long = (
        tuple(f / slowed for f, slowed in zip(usual, found.numbers(name, len(usual)), strict=True))
        for name in ("short_factor", "long_factor")
    )
    return Rotary(short, magnitude=strength, longer=Switched(original, long))
