"""Elements of tables: tokens, signed numbers, predictions, the line of completeness."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from duat_jax.forms.completeness import FAILS, HOLDS, Completeness
from duat_jax.inputs.labels import Prediction


def token_label(token: str) -> str:
    """Return a token with its white space visible.

    Args:
        token: its text.
    """
    visible = token.replace("\n", "⏎").replace("\t", "⇥")
    return "·" * (len(visible) - len(visible.lstrip(" "))) + visible.lstrip(" ")


def number(value: float) -> Text:
    """Return a part, coloured by its sign.

    Args:
        value: the part.
    """
    return Text(f"{value:+.4f}", style="red" if value < 0 else "green")


def new_table() -> Table:
    """Return an empty table without lines."""
    return Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")


def predictions_line(predictions: tuple[Prediction, ...]) -> str:
    """Return predictions with their probabilities, in one line.

    Args:
        predictions: the most probable outputs.
    """
    return "   ".join(f"{token_label(token)!r} {probability:.1%}" for token, probability in predictions)


def completeness_line(completeness: Completeness, label: str = "value") -> Text:
    """Return value, sum, error, tolerance and verdict in one line, and a note on a failure in a second one.

    Args:
        completeness: of one number.
        label: what the number is called.
    """
    verdict = completeness.verdict
    return Text.assemble(
        (f"{label} ", "bold"),
        f"{float(completeness.value):.7g}",
        ("   sum of all parts ", "bold"),
        f"{float(completeness.sum):.7g}",
        ("   error ", "bold"),
        (f"{float(completeness.error):+.1e}", "green" if verdict == HOLDS else "bold red"),
        f"  {'>' if verdict == FAILS else '≤'} tolerance {float(completeness.tolerance):.1e} ({completeness.dtype}): ",
        (verdict, "bold green" if verdict == HOLDS else "bold red"),
        *([] if completeness.note is None else [f"\n{completeness.note}"]),
    )


def note_lines(notes: Iterable[str]) -> list[Text]:
    """Return notes on a result, each in a line of its own.

    Args:
        notes: sentences.
    """
    return [Text(note, style="yellow") for note in notes]
