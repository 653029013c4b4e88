"""Verdicts on a training that was followed, by the rules of the page."""

import numpy as np

from duat_jax.evaluation.statistics import IntervalEstimate
from experiments.emergence.moving import WEIGHTS
from experiments.emergence.seeds import RULES, Found, Seed, hurting, over_seeds, raising, with_seeds
from experiments.emergence.training import DRAWN, HELD_OUT, REPETITION, TRAINED_ON, UNCHANGED, WITHOUT

LEAST = 0.2
"""The smallest fall of repetition that is judged, in nats."""
CONFIRMED, REFUTED, UNDECIDED, NONE = "confirmed", "refuted", "undecided", "no verdict"

Row = list[str]
"""A claim, its verdict, and the numbers behind it."""


def verdicts(seeds: list[Seed], again: dict[str, Found]) -> list[Row]:
    """Return the verdict on every claim."""
    induction = [_abrupt(seeds), _by_attention(seeds), _by_what_stands_before(seeds[0], again)]
    if min(seed.fall(REPETITION) for seed in seeds) < LEAST:
        induction = [[claim, NONE, by] for claim, _, by in induction]
    return [*induction, _half_help(seeds), _parts_that_hurt(seeds, again), _dynamic(seeds), _static_first(seeds)]


def side(estimate: IntervalEstimate, bound: float, *, below: bool = False) -> str:
    """Return the verdict on a claim that a number lies on one side of a bound."""
    above, under = (REFUTED, CONFIRMED) if below else (CONFIRMED, REFUTED)
    return above if estimate.low > bound else under if estimate.high < bound else UNDECIDED


def remaining(seed: Seed, again: Found) -> float:
    """Return the share of repetition's fall that another training has."""
    return float((seed.values(REPETITION)[0] - again[REPETITION]) / seed.fall(REPETITION))


def _abrupt(seeds: list[Seed]) -> Row:
    width, late = over_seeds(seeds, Seed.width), max(seed.late_share for seed in seeds)
    verdict = "abrupt" if width.high < np.log(0.5) else "gradual" if width.low > 0 else UNDECIDED
    times = IntervalEstimate(*(float(np.exp(number)) for number in width)).written(2)
    each = ", ".join(f"{np.exp(seed.width()):.2f}" for seed in seeds)
    by = f"{times} times the steps ({each}); {late:.2f} of the fall in the last quarter"
    return ["abrupt", UNDECIDED if late > 0.1 else verdict, by]


def _by_attention(seeds: list[Seed]) -> Row:
    rules = {rule: RULES[rule] for rule in ("parts", "simpson")}
    shares = {rule: over_seeds(seeds, Seed.share, REPETITION, rule, "attention") for rule in rules}
    leads = {rule: over_seeds(seeds, Seed.lead_of_attention, rule) for rule in rules}
    verdict = UNDECIDED
    if all(shares[rule].low > 0.5 and leads[rule].low > 0 for rule in rules):
        verdict = CONFIRMED
    elif all(share.high < 0.5 for share in shares.values()):
        verdict = REFUTED
    by = [f"{words}: {shares[rule].written(2)}, lead {leads[rule].written(2, '+')}" for rule, words in rules.items()]
    return ["by attention", verdict, "; ".join(by)]


def _by_what_stands_before(seed: Seed, again: dict[str, Found]) -> Row:
    without, drawn = (remaining(seed, again[kind]) for kind in (WITHOUT, DRAWN))
    verdict = REFUTED if without > 0.75 else CONFIRMED if without < 0.5 and drawn > 0.75 else UNDECIDED
    by = f"{without:.2f} of the fall remains, without drawn tokens {drawn:.2f}"
    return ["by what stands before (one seed)", verdict, by]


def _half_help(seeds: list[Seed]) -> Row:
    half = over_seeds(seeds, Seed.mean_helping, TRAINED_ON)
    verdict = CONFIRMED if half.low > 0.5 and half.high < 0.55 else UNDECIDED
    if half.high < 0.5 or half.low > 0.55:
        verdict = REFUTED
    return ["barely half help", verdict, with_seeds(seeds, Seed.mean_helping, TRAINED_ON)]


def _parts_that_hurt(seeds: list[Seed], again: dict[str, Found]) -> Row:
    segments = [seed.segments for seed in seeds]
    if (part := hurting(segments)) is None:
        of_rules = [f"by {words} {', '.join(raising(segments, [rule])) or 'none'}" for rule, words in RULES.items()]
        return ["parts that hurt", "not confirmed", "; ".join(["by all three none", *of_rules])]
    bound = 2 * float(np.std([seed.values(TRAINED_ON)[-1] for seed in seeds], ddof=1))
    lower, of_held_out = (
        float(seeds[0].values(name)[-1] - again[UNCHANGED + part][name]) for name in (TRAINED_ON, HELD_OUT)
    )
    harm = "does harm" if lower > bound else "isn't shown to do harm"
    by = f"loss lower by {lower:+.4f}, two standard deviations {bound:.4f}; that of held-out text {of_held_out:+.4f}"
    return ["parts that hurt", CONFIRMED, f"{part}, unchanged: {by}: {harm}"]


def _dynamic(seeds: list[Seed]) -> Row:
    asked = Seed.undone, WEIGHTS, -1
    return ["dynamic", side(over_seeds(seeds, *asked), 0.5), with_seeds(seeds, *asked)]


def _static_first(seeds: list[Seed]) -> Row:
    claim = "static first (the opposite view)"
    if any(seed.below_pairs is None for seed in seeds):
        return [claim, UNDECIDED, "no state below the loss of pairs in a seed"]
    share = over_seeds(seeds, Seed.undone_at_pairs)
    return [claim, side(share, 0.1, below=True), with_seeds(seeds, Seed.undone_at_pairs)]
