"""Read the tables of what the papers print, with the words on each claim and its smallest correction."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

_TABLES = Path(__file__).parent / "printed"

_BARE = re.compile(r"\\[A-Za-z]+|\\.|[_^](?:\{[^{}]*\}|.)|\{[^{}]*\}|UAT|σ|[WxbPqBCcszyhHVQKX]")


def bold(text: str) -> str:
    r"""Return a formula with its matrices and vectors in bold, as the papers set them.

    Example:
        >>> print(bold(r"x'_{i}=W'_{i,1}x'_{0}\text{ with }UAT_{i}"))
        \mathbf{x}'_{i}=\mathbf{W}'_{i,1}\mathbf{x}'_{0}\text{ with }\mathrm{UAT}^{R}_{i}
    """

    def typeset(match: re.Match) -> str:
        token = match.group()
        known = {"σ": r"\sigma", "UAT": r"\mathrm{UAT}^{R}"}
        return known.get(token, rf"\mathbf{{{token}}}" if token.isalpha() else token)

    return _BARE.sub(typeset, text)


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return one row of a table with its formulas as LaTeX, and its words in one line."""

    def formula(text: str) -> str:
        whole = "".join(text.splitlines())
        return whole if row.get("plain") else bold(whole)

    def words(text: str) -> str:
        return " ".join(text.split())

    correct = row.get("correct", "")
    return {
        "equation": row["equation"],
        "printed": formula(row["printed"]),
        "kind": row.get("kind", "proved"),
        "unprimed": tuple(row.get("unprimed", ())),
        "readings": tuple(map(words, row.get("readings", ()))),
        "remark": words(row.get("remark", "")),
        "correct": formula(correct)
        if isinstance(correct, str)
        else tuple(tuple(map(formula, pair)) for pair in correct),
    }


@cache
def rows() -> dict[tuple[str, str], dict[str, Any]]:
    r"""Return the fields of every claim by version and equation, in the order in which they are printed.

    Example:
        >>> print(rows()["000", "24"]["printed"][:36])
        \mathrm{UAT}^{R}_{1}=\mathbf{W}'_{1,
    """
    tables = (tomllib.loads(file.read_text("utf-8")) for file in sorted(_TABLES.glob("*.toml")))
    return {
        (table["source"], row["equation"]): {"source": table["source"], **_fields(row)}
        for table in tables
        for row in table["claim"]
    }
