"""Make a table of the letters that occur in a derivation, with their meanings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sympy import Basic, Identity, Integer, MatrixBase, Symbol, ZeroMatrix, sstr

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import typeset
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.ordered_product import OrderedProduct
from symbolic.expressions.parameter import DOT, Held, Ones, Parameter, Variable, i, j
from symbolic.expressions.scalar import Entry
from symbolic.proof.derivation import Derivation
from symbolic.proof.meanings import INDICES, NUMBERS, OF_LAYERS, OF_TITLE, SIZE
from symbolic.proof.step import Step


class LegendEntry(NamedTuple):
    """A letter or a sign with its meaning.

    Args:
        latex: its LaTeX.
        text: it as plain text.
        shape: rows and columns of a matrix; empty for anything else.
        words: its meaning.
    """

    latex: str
    text: str
    shape: tuple[Any, ...]
    words: str


_DECORATED = {
    "Δ": LegendEntry(r"\Delta", "Δ", (), "the change of what stands behind it"),
    "\u0304": LegendEntry(r"\overline{\phantom{x}}", "◌\u0304", (), "the mean of what stands below it, at two inputs"),
    "\u0303": LegendEntry(
        r"\widetilde{\phantom{x}}", "◌\u0303", (), "what stands below it, at another input or for another network"
    ),
    "\u0302": LegendEntry(
        r"\widehat{\phantom{x}}", "◌\u0302", (), "the papers' letter for the parameter of the unrolled form"
    ),
}

_OPERATIONS = {
    Identity: LegendEntry(r"\mathbf{I}", "I", (), "the identity"),
    ZeroMatrix: LegendEntry(r"\mathbf{0}", "0", (), "zero"),
    Diagonal: LegendEntry(r"\operatorname{diag}", "diag", (), "the diagonal matrix with a vector on its diagonal"),
    Vec: LegendEntry(r"\operatorname{vec}", "vec", (), "the entries of a matrix as a vector, row by row"),
    Kronecker: LegendEntry(r"\otimes", "⊗", (), "the Kronecker product"),
    Hadamard: LegendEntry(r"\odot", "⊙", (), "the product entry by entry"),
}


def _bare(letter: str) -> tuple[str, set[str]]:
    """Return a letter without change, mean and tilde, and those marks."""
    marks = {mark for mark in _DECORATED if mark in letter}
    for mark in marks:
        letter = letter.replace(mark, "")
    if "~" in letter:
        return letter.replace("~", ""), {*marks, "\u0303"}
    return letter, marks


def _role(parameter: Parameter, letter: str) -> str:
    """Return the second index of `W'_{i,k}` and `b'_{i,k}`, which says what they are."""
    if letter in ("W'", "b'") and len(parameter.lower) > 1 and isinstance(parameter.lower[1], Integer):
        return str(parameter.lower[1])
    return ""


def kind_of(parameter: Parameter) -> str:
    """Return a description of a parameter in words, if nothing else is known of it."""
    if isinstance(parameter, Held):
        return "values that depend on the input, held at those on this one"
    return "data" if isinstance(parameter, Variable) else "constants"


def _parts(derivation: Derivation) -> Iterator[Any]:
    """Yield the parts of a derivation; of a parameter's indices the letters that count, of its shape the symbols."""
    stated = (each for each in derivation.hypotheses if not isinstance(each, str))
    sides = (side for step in (*stated, *derivation.given, *derivation.steps) for side in (step.left, step.right))
    waiting = [side for side in sides if isinstance(side, Basic | MatrixBase)][::-1]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Parameter):
            counting = (symbol for index in part.indices for symbol in index.free_symbols if symbol.name.islower())
            sizes = (symbol for size in part.shape for symbol in size.free_symbols)
            yield from sorted({*counting, *sizes}, key=str)
        elif isinstance(part, OrderedProduct):
            waiting += [part.at(part.first), part.at(part.last)]
        else:
            waiting += reversed(tuple(part) if isinstance(part, MatrixBase) else part.args)


def _explained(parameter: Parameter, letter: str, derivation: Derivation) -> tuple[Parameter, str]:
    """Return a letter with its meaning: those that are counted by layers for layer i."""
    of_title = OF_TITLE.get(derivation.title, {})
    rest = ",".join(map(str, parameter.lower[1:]))
    plain = letter.replace(DOT, "")
    names = (f"{plain}[{rest}]" if rest else plain, plain + _role(parameter, plain), plain)
    tables: tuple[Mapping[str, str], ...] = (derivation.words, of_title, OF_LAYERS)
    if parameter.of_layer:
        tables = (derivation.words,)
    elif plain != letter:  # the form's own, where a letter of the layer looks the same
        tables = (of_title, OF_LAYERS)
    table, words = next(
        ((table, table[name]) for table in tables for name in names if name in table), (None, kind_of(parameter))
    )
    lower, upper = parameter.lower, parameter.upper
    if lower and table is not of_title:
        lower, upper = ((j, *lower[1:]), (i,)) if upper else ((i, *lower[1:]), ())
    height, width = parameter.shape
    return Parameter(letter, lower, height, width, upper), words


def _counts(symbol: Symbol) -> bool:
    return bool(symbol.is_integer and not symbol.is_positive)


def _number(symbol: Symbol, derivation: Derivation) -> LegendEntry:
    """Return the row of a size, an index, a number, or an entry of an explicit matrix."""
    own = {name: words for name, words in derivation.words.items() if "_" in name}  # d_1, say, which is no entry of d
    of_title = OF_TITLE.get(derivation.title, {}) | own
    stem, entry, _ = (symbol.name, "", "") if symbol.name in of_title else symbol.name.partition("_")
    known = ({} if entry else INDICES[derivation.counts] if _counts(symbol) else NUMBERS) | of_title
    otherwise = "an index" if _counts(symbol) else SIZE if symbol.is_positive else "a number"
    words = known.get(stem, otherwise)
    return LegendEntry(typeset(Symbol(stem)), stem, (), f"{words}: an entry" if entry and stem in known else words)


def letters(derivations: Iterable[Derivation]) -> list[LegendEntry]:
    """Return every letter and sign that occurs with its meaning, each once."""
    parameters: dict[tuple[Parameter, str], None] = {}
    signs: list[LegendEntry] = []
    for derivation in derivations:
        for part in dict.fromkeys(_parts(derivation)):
            if isinstance(part, Ones) or (isinstance(part, Parameter) and part.letter == "1"):
                signs.append(LegendEntry(r"\mathbf{1}", "1", (), "the vector of ones"))
            elif isinstance(part, Parameter):
                letter, marks = _bare(part.letter)
                explained, words = _explained(part, letter, derivation)
                parameters[explained, words] = None
                signs += [_DECORATED[mark] for mark in sorted(marks)]
                signs += [_number(symbol, derivation) for symbol in (i, j) if symbol in explained.indices]
            elif isinstance(part, Activation):
                plain, slope = (Activation(part.argument, k, part.function, part.indices and (i,)) for k in (0, 1))
                any_one = "any function of one number, applied entry by entry"
                words = derivation.words.get(part.function, any_one + (", in layer i" if part.indices else ""))
                signs.append(LegendEntry(plain.latex_name, plain.text_name, (), words))
                signs += [LegendEntry(slope.latex_name, slope.text_name, (), "its derivative")] * part.order
            elif isinstance(part, Symbol):
                signs.append(_number(part, derivation))
            elif type(part) in _OPERATIONS:
                signs.append(_OPERATIONS[type(part)])
    counted = {_alike(each, words) for each, words in parameters if _counting(each)}
    entries = [
        LegendEntry(typeset(each), sstr(each), each.shape, words)
        for each, words in parameters
        if _counting(each) or _alike(each, words) not in counted  # the letter of every head stands for those of each
    ]
    return list(dict.fromkeys([*entries, *signs]))


def _counting(parameter: Parameter) -> bool:
    """Return whether an index of a parameter counts something else than layers, such as heads."""
    symbols = {symbol for index in parameter.lower for symbol in index.free_symbols} - {i, j}
    return any(symbol.name.islower() for symbol in symbols)


def _alike(parameter: Parameter, words: str) -> tuple[Any, ...]:
    return parameter.letter, len(parameter.lower), parameter.shape, words


def rows(derivations: Iterable[Derivation]) -> list[tuple[str, str, str]]:
    """Return LaTeX, shape and meaning of every letter that occurs, each once."""
    each = (
        (letter.latex, r" \times ".join(map(typeset, letter.shape)), letter.words) for letter in letters(derivations)
    )
    return list(dict.fromkeys(each))


def letters_in_text(*derivations: Derivation) -> str:
    """Return a table of exactly the letters that occur in derivations, as plain text.

    Example:
        >>> from symbolic.theorems.uat_sums import lemma_1
        >>> print(letters_in_text(lemma_1()).splitlines()[3])
        β      r × k  the matrix before the sum
    """
    cells = [(letter.text, " × ".join(map(str, letter.shape)), letter.words) for letter in letters(derivations)]
    first, second = (max((len(row[column]) for row in cells), default=0) for column in (0, 1))
    lines = [f"{text:<{first}}  {shape:<{second}}  {words}" for text, shape, words in dict.fromkeys(cells)]
    return "\n".join(["Letters", "───────", *lines])


def in_text(*derivations: Derivation) -> str:
    """Return derivations as plain text behind a table of their letters; each behind its own where letters differ.

    Example:
        >>> from symbolic.theorems.recurrence import one_decay, recurrence
        >>> in_text(recurrence(), one_decay()).count("Letters")
        2
    """
    known = {(letter.text, letter.shape, letter.words) for letter in letters(derivations)}
    alike = len({text for text, *_ in known}) == len(known)
    groups = [derivations] if alike else [(each,) for each in derivations]
    return "\n\n".join("\n\n".join([letters_in_text(*group), *map(str, group)]) for group in groups)


_CUSTOMARY = (Identity, ZeroMatrix, Kronecker, Vec)  # what vec does is said in a sentence


def _gives_next(step: Step) -> bool:
    """Return whether an equation gives the next layer's stream, and defines none."""
    letters = {part.letter for part in step.right.atoms(Parameter)}
    return getattr(step.left, "letter", "") in letters & {"x", "x'"}


def undefined_letters(derivation: Derivation) -> list[tuple[str, str, str]]:
    """Return LaTeX, shape and meaning of the letters that neither a definition of a derivation nor custom explains."""
    stated = (each for each in derivation.hypotheses if isinstance(each, Step))
    definitions = [step for step in (*stated, *derivation.given, *derivation.steps) if step.relation == ":="]
    lefts = [step.left.parent if isinstance(step.left, Entry) else step.left for step in definitions]
    named = [
        left
        for left, step in zip(lefts, definitions, strict=True)
        if isinstance(left, Parameter) and not _gives_next(step)
    ]
    marks = {mark for left in named for mark in _bare(left.letter)[1]}
    defined = {typeset(_explained(p, p.letter, derivation)[0]) for p in named if not _bare(p.letter)[1]}
    signs = (*(_DECORATED[mark] for mark in marks), *(_OPERATIONS[kind] for kind in _CUSTOMARY))
    known = {*defined, "i", "j", "d", "n", *(sign.latex for sign in signs)}
    return [row for row in rows([derivation]) if row[0] not in known and row[2] != SIZE]
