"""The command `duat derive`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.output import Answer

if TYPE_CHECKING:
    from symbolic.proof.derivation import Derivation


class DerivationFormat(StrEnum):
    """The output format of derivations."""

    unicode = "unicode"
    latex = "latex"
    document = "document"


class Symbols(StrEnum):
    """The notation for the parameters of the unrolled form."""

    ours = "ours"
    papers = "papers"


def _formula(derivation: "Derivation") -> str:
    """Return a derivation as a LaTeX formula, with its title, verdict and hypotheses as comments."""
    from symbolic.proof.derivation import sentence

    hypotheses = "\n".join(f"hypothesis: {sentence(hypothesis)}" for hypothesis in derivation.hypotheses)
    comments = f"{derivation.title}: {derivation.verdict}\n{hypotheses}\n{derivation.source}".splitlines()
    return "\n".join([*(f"% {comment}" for comment in comments if comment), derivation.latex()])


@command("duat derive --depth 2 --block pre-norm", "duat derive --proof --format document > proof.tex")
def derive(
    *,
    depth: Annotated[int | None, typer.Option(help="The unrolled form of this many layers.")] = None,
    proof: Annotated[bool, typer.Option("--proof", help="The closed form at every depth, by induction.")] = False,
    block: Annotated[
        str | None,
        typer.Option(help="paper, paper-residual, pre-norm, post-norm, parallel or convolution."),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            help="unroll, proof, block, two-layers, recursions, collapse, contributions, difference, linear, attention,"
            " attention-difference, normalisation, mlp, density, diamond, lemma, lora or pruning; recursions if absent."
        ),
    ] = None,
    format: Annotated[
        DerivationFormat, typer.Option(help="unicode text, LaTeX formulas, or a complete LaTeX document.")
    ] = DerivationFormat.unicode,
    symbols: Annotated[
        Symbols, typer.Option(help="Notation of the unrolled form: ours (P, q, B, c, C), or the papers' with a hat.")
    ] = Symbols.ours,
) -> Answer:
    """Derive the closed form step by step, every step checked, as text or LaTeX."""
    from symbolic.catalogue import derive as derivations
    from symbolic.errors import SymbolicError
    from symbolic.proof.legend import letters_in_text
    from symbolic.proof.typesetting import article
    from symbolic.theorems.notation import in_the_papers_letters

    requested = {"--proof": "proof"} if proof else {}
    requested |= {} if depth is None else {"--depth": "unroll"}
    requested |= {} if what is None else {"--what": what}
    if len(set(requested.values())) > 1:
        raise SymbolicError(f"{' and '.join(requested)} ask for different derivations: give one of them")
    otherwise = "recursions" if block is None else "block"
    name = next(iter(requested.values()), otherwise)
    derived = derivations(name, depth=depth, block=block, letters=format is DerivationFormat.document)
    if symbols is Symbols.papers:
        derived = tuple(map(in_the_papers_letters, derived))
    match format:
        case DerivationFormat.document:
            text = article(*derived)
        case DerivationFormat.latex:
            text = "\n\n".join(map(_formula, derived)) + "\n"
        case DerivationFormat.unicode:
            text = "\n\n".join([letters_in_text(*derived), *map(str, derived)]) + "\n"
    return Answer(text=text, holds=all(each.verified for each in derived))
