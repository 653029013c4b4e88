"""The command `duat derive`."""

import re
from enum import StrEnum
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.output import Answer


class DerivationFormat(StrEnum):
    """The output format of derivations."""

    unicode = "unicode"
    latex = "latex"
    document = "document"


class Symbols(StrEnum):
    """The notation for the parameters of the unrolled form."""

    ours = "ours"
    papers = "papers"


def _points(width: str) -> float:
    r"""Return a width in points, such as LaTeX prints for `\the\columnwidth`."""
    from symbolic.errors import SymbolicError
    from symbolic.proof.displays import NARROWEST

    number = width.removesuffix("pt")
    if not re.fullmatch(r"\d+(\.\d+)?", number) or float(number) < NARROWEST:
        raise SymbolicError(
            f"--width is {width!r}: give points from {NARROWEST:g}pt on, such as 246pt; LaTeX prints those of a paper"
            r" for \the\columnwidth"
        )
    return float(number)


@command("duat derive --depth 2 --block pre-norm", "duat derive --proof --format latex --width 246pt > proof.tex")
def derive(
    *,
    depth: Annotated[int | None, typer.Option(help="The unrolled form of this many layers.")] = None,
    proof: Annotated[bool, typer.Option("--proof", help="The closed form at every depth, by induction.")] = False,
    block: Annotated[
        str | None,
        typer.Option(
            help="paper, paper-residual, pre-norm, post-norm, parallel or convolution; with a gated MLP pre-norm-gated"
            " and so on."
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            help="unroll, proof, block, two-layers, recursions, collapse, contributions, difference, linear, attention,"
            " attention-difference, normalisation, mlp, density, diamond, lemma, lora, pruning, streams, memory or"
            " recurrence; recursions if absent."
        ),
    ] = None,
    streams: Annotated[int | None, typer.Option(help="Number of streams, for --what streams; 2 if absent.")] = None,
    terms: Annotated[
        int | None, typer.Option(help="Number of terms of a layer, for --what streams; 2 if absent.")
    ] = None,
    format: Annotated[
        DerivationFormat,
        typer.Option(help="unicode text, LaTeX theorems to be read by \\input, or a complete LaTeX document."),
    ] = DerivationFormat.unicode,
    width: Annotated[
        str | None,
        typer.Option(
            help="Width of a line of the LaTeX, in points; 345pt if absent, the width of article in one column."
        ),
    ] = None,
    symbols: Annotated[
        Symbols, typer.Option(help="Notation of the unrolled form: ours (P, q, B, c, C), or the papers' with a hat.")
    ] = Symbols.ours,
) -> Answer:
    """Derive the closed form step by step, every step checked, as text or LaTeX."""
    from symbolic.catalogue import derive as derivations
    from symbolic.errors import SymbolicError
    from symbolic.proof.displays import LINE
    from symbolic.proof.legend import in_text
    from symbolic.proof.typesetting import article, fragment
    from symbolic.theorems.notation import in_the_papers_letters

    requested = {"--proof": "proof"} if proof else {}
    requested |= {} if depth is None else {"--depth": "unroll"}
    requested |= {f"--{name}": "streams" for name, n in (("streams", streams), ("terms", terms)) if n is not None}
    requested |= {} if what is None else {"--what": what}
    if len(set(requested.values())) > 1:
        raise SymbolicError(f"{' and '.join(requested)} ask for different derivations: give one of them")
    plain = format is DerivationFormat.unicode
    if plain and width is not None:
        raise SymbolicError("--width is for LaTeX: add --format latex or --format document, or leave the width out")
    line = LINE if width is None else _points(width)
    otherwise = "recursions" if block is None else "block"
    name = next(iter(requested.values()), otherwise)
    derived = derivations(name, depth=depth, block=block, letters=not plain, streams=streams, terms=terms)
    if symbols is Symbols.papers:
        ours, derived = derived, tuple(map(in_the_papers_letters, derived))
        if derived == ours:
            raise SymbolicError(f"--symbols papers changes no letter of {name}: leave --symbols out")
    match format:
        case DerivationFormat.document:
            text = article(*derived, line=line)
        case DerivationFormat.latex:
            text = fragment(*derived, line=line)
        case DerivationFormat.unicode:
            text = in_text(*derived) + "\n"
    return Answer(text=text, holds=all(each.verified for each in derived))
