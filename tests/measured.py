"""Frames of a study's measurements, without its files."""

import json

import pandas as pd

from experiments.significant import significant
from experiments.study import Piece


def frames_of(measurements):
    """Run measurements, and return their frames."""
    frames, rows = {}, None
    while True:
        try:
            given = measurements.send(rows)
        except StopIteration:
            return {name: pd.DataFrame(of) for name, of in frames.items()}
        found = [_rows(piece) for piece in ([given] if isinstance(given, Piece) else given)]
        for piece, of in zip([given] if isinstance(given, Piece) else given, found, strict=True):
            frames.setdefault(piece.frame, []).extend(of)
        rows = found[0] if isinstance(given, Piece) else found


def _rows(piece):
    rows = piece.compute()
    plain = json.loads(json.dumps(significant([rows] if isinstance(rows, dict) else rows)))
    return [{**piece.keys, **row} for row in plain]
