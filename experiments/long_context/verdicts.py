"""The verdicts of docs/findings/long-context.md on what SmolLM2 reads, uses and needs, by stated bounds."""

from typing import Any

import numpy as np
from jaxtyping import Float

from duat_jax.evaluation.statistics import IntervalEstimate, students_mean
from experiments.long_context.reading import MEASURES, equal_shares
from experiments.markdown import table

Pieces = dict[str, Any]
"""The measurements of every text and length, by the piece's name."""

EIGHTH, SHUFFLED = "after an eighth", "after an eighth, shuffled text"
"""The 16 replaced tokens after an eighth of the text, and the same in text whose tokens are shuffled."""
SHORT, MIDDLE, LONG = 512, 2048, 8192
"""Lengths that verdicts compare."""
FAR = 6
"""The bin of distances from 1,024 on."""
LAST = 64
"""The last tokens of a text whose loss is compared between all lengths."""
TENTH, LITTLE = 0.1, 0.05
"""The share from which on far tokens are read, and the gain in nats below which it is little."""
CONFIRMED, REFUTED, UNDECIDED, DEPENDS = "confirmed", "refuted", "undecided", "depends on the measure"


def texts_of(pieces: Pieces, tokens: int, controls: bool = False) -> list[Any]:
    """Return the measurements of one length, one of each text."""
    end = f", {tokens}, controls" if controls else f", {tokens}"
    return [found for name, found in pieces.items() if name.endswith(end)]


def far_shares(reads: list[Any], measure: str) -> Float[np.ndarray, "texts layers"]:
    """Return the share of tokens 1,024 or more away in what is read, without the first token."""
    rest = np.array([read["rest"][measure] for read in reads])
    return rest[..., FAR:].sum(-1) / rest.sum(-1)


def _mean_share(reads: list[Any], measure: str) -> Float[np.ndarray, "texts"]:
    """Return the share of far tokens in the sum of all layers' shares."""
    rest = np.array([np.mean(read["rest"][measure], 0) for read in reads])
    return rest[:, FAR:].sum(1) / rest.sum(1)


def far_differences(pieces: Pieces, tokens: int) -> tuple[Float[np.ndarray, "texts"], Float[np.ndarray, "texts"]]:
    """Return the divergence 1,024 to 4,095 tokens behind the span in natural text, more than in shuffled; and there."""
    natural, shuffled = (
        np.array([text["replaced"][span]["divergence"][FAR - 1] for text in texts_of(pieces, tokens, controls)])
        for span, controls in ((EIGHTH, False), (SHUFFLED, True))
    )
    return natural - shuffled, shuffled


def gains(pieces: Pieces, short: int, long: int, last: int) -> Float[np.ndarray, "texts"]:
    """Return how much lower the loss of a text's last tokens is with a longer text before them."""
    losses = [[np.mean(text["losses"][-last:]) for text in texts_of(pieces, tokens)] for tokens in (short, long)]
    return np.array(losses[0]) - np.array(losses[1])


def decided(confirmed: bool, refuted: bool) -> str:
    """Return the verdict; a difference below the bound of the opposite view counts as none."""
    return REFUTED if refuted else CONFIRMED if confirmed else UNDECIDED


def _per_cent(share: IntervalEstimate) -> str:
    return f"{IntervalEstimate(*(100 * number for number in share)).written(1)} %"


def _thousandths(values: np.ndarray) -> str:
    return f"{students_mean(1000 * values).written(2, '+')}; {(values > 0).sum()} of {len(values)} above zero"


def _read(pieces: Pieces) -> list[str]:
    reads = {
        "the model": [text["read"] for text in texts_of(pieces, LONG)],
        "untrained": [text["read"] for text in texts_of(pieces, LONG, controls=True)],
        "shuffled text": [text["read, shuffled text"] for text in texts_of(pieces, LONG, controls=True)],
        "equal shares": [equal_shares(LONG)._asdict()],
    }
    shares = {measure: students_mean(_mean_share(reads["the model"], measure)) for measure in MEASURES}
    of_measures = [decided(share.low >= TENTH, share.high < TENTH) for share in shares.values()]
    decision = of_measures[0]
    if decision != UNDECIDED and len(set(of_measures)) > 1:
        decision = DEPENDS
    numbers = "; ".join(f"{measure}: {_per_cent(share)}" for measure, share in shares.items())
    layers = 100 * far_shares(reads["the model"], MEASURES[0]).mean(0)
    beside = [
        f"{name} {100 * _mean_share(of, MEASURES[0]).mean():.1f} %" for name, of in reads.items() if name != "the model"
    ]
    return ["read", decision, numbers, f"layers from {layers.min():.1f} to {layers.max():.1f} %; {'; '.join(beside)}"]


def _used(pieces: Pieces) -> list[str]:
    difference, shuffled = far_differences(pieces, MIDDLE)
    interval = students_mean(difference)
    decision = decided(
        interval.low > 0 and bool((difference > 0).all()), interval.high < TENTH * float(shuffled.mean())
    )
    continued = _thousandths(far_differences(pieces, LONG)[0])
    beside = f"in shuffled text {1000 * shuffled.mean():.2f}; with {LONG:,} tokens {continued}"
    return ["used, more than frequencies are", decision, _thousandths(difference), beside]


def _needed(pieces: Pieces) -> list[list[str]]:
    gain = gains(pieces, MIDDLE, LONG, MIDDLE // 2)
    last = gains(pieces, MIDDLE, LONG, LAST)
    interval = students_mean(gain)
    beyond = gains(pieces, SHORT, LONG, LAST)
    bound = students_mean(beyond)
    needed = decided(interval.low > 0 and bool((gain > 0).all()), interval.high < 0)
    return [
        ["needed", needed, _thousandths(gain), f"the last {LAST} tokens alone: {_thousandths(last)}"],
        [
            f"little gained from {SHORT} tokens on (the opposite view)",
            decided(bound.high < LITTLE, bound.low >= LITTLE),
            _thousandths(beyond),
            f"the bound: {1000 * LITTLE:.0f}",
        ],
    ]


def verdicts(pieces: Pieces) -> list[str]:
    """Return the table of verdicts, with differences in thousandths of a nat."""
    rows = [_read(pieces), _used(pieces), *_needed(pieces)]
    return table(["far tokens are", "verdict", "by", "beside it"], rows)
