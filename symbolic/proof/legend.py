"""Make a table of the letters that occur in a derivation, with their meanings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sympy import Basic, Identity, Integer, MatrixBase, Symbol, ZeroMatrix, sstr

from symbolic.expressions.activation import Activation
from symbolic.expressions.latex import typeset
from symbolic.expressions.operations import Diagonal, Hadamard, Kronecker, Vec
from symbolic.expressions.ordered_product import OrderedProduct
from symbolic.expressions.parameter import DOT, Held, Ones, Parameter, Variable, i, j
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step

_OF_LAYERS = {
    "x'": "the residual stream after layer i, as a vector (x'_0 is the input)",
    "W'1": "the matrix on the linear path of layer i",
    "W'2": "the matrix inside the activation of layer i",
    "W'3": "the matrix that multiplies the activation of layer i",
    "W'4": "the matrix from the activation of one term of layer i to a later term of it",
    "b'1": "the bias on the linear path of layer i",
    "b'2": "the bias inside the activation of layer i",
    "b'3": "the bias on the linear path of layer i",
    "P": "the matrix that multiplies the input in the closed form of layer i",
    "q": "the bias in the closed form of layer i",
    "B": "the matrix that multiplies the input inside the activation of layer i",
    "c": "the bias inside the activation of layer i; it contains the terms of all earlier layers",
    "C": "the matrix that multiplies the activation of layer j in the closed form of layer i",
    "UAT": "the sum of the terms of layers 1 to i (UAT: universal approximation theorem; R: residual)",
    "s": "the slopes of the activation of layer i, held",
    "t": "the offsets of the activation of layer i, held",
    "J": "layer i as a matrix, its slopes held",
    "Wbar": "the network up to layer i as one matrix",
    "bbar": "the bias of the network up to layer i",
    "u": "the read-out, pulled back to layer i",
    "y": "the number that the read-out reads after layer i",
    "z": "the pre-activation of layer i",
    "h": "the activation of layer i",
    "Phi": "the matrix that takes a change after layer j to its effect after layer i",
    "Psi": "the matrix that takes a change before layer i to its effect after it",
    "kappa": "the slopes of the secants of the activation of layer i",
    "mu": "the effect of the changed parameters of layer i",
}

_OF_TITLE = {
    "The MLP on vec(x)": {
        "x": "tokens and their features",
        "W": "matrices of the MLP on features: 1 inside the activation, 2 outside",
        "b": "biases of the MLP on features: 1 inside the activation, 2 outside",
        "R": "matrices of the MLP on rows: 1 inside the activation, 2 outside",
        "c": "biases of the MLP on rows: 1 inside the activation, 2 outside",
        "g'": "a gate",
        "s'": "what is gated",
        "P": "the number of neurons of a token",
    },
    "Linear maps as matrices on vec(x)": {
        "R": "the matrix of a linear map on rows",
        "W": "the matrix of a linear map on features",
        "x": "tokens and their features",
        "P": "the number of features that the map returns",
    },
    "Attention as one matrix on vec(x)": {
        "x": "tokens and their features",
        "H": "the pattern of a head, held",
        "H^": "the heads side by side",
        "S": "the matrix that picks the features of a head",
        "W": "the matrices for queries, keys, values and output, by their index",
        "V": "the matrix for the values of a head",
        "W'": "attention, its values and its output as matrices on vec(x), by their index",
        "k": "a head",
        "h": "the number of heads",
        "m": "the number of features of a head",
    },
    "Attention between two inputs": {
        "x": "tokens and their features",
        "H": "the pattern of a head",
        "Q": "queries",
        "K": "keys",
        "W": "the matrices for values and output, as one",
        "s": "the scores of one query",
        "l": "a row of the pattern, in logarithms",
        "p": "a row of the pattern",
        "r": "the sum of a row",
        "z": "the logarithm of the sum of exponentials",
        "L": "the logarithmic means of a row at both inputs",
        "w": "one over their sum",
        "S": "the matrix of the softmax's secant",
        "m": "the number of features of a head",
    },
    "Normalisation with its scale held": {
        "x": "tokens and their features",
        "Z": "the matrix that subtracts the mean over features",
        "r": "the scales of the tokens, held",
        "gamma": "the gain",
        "beta": "the offset",
    },
    "Densities of the matrices on vec(x)": {
        "rho": "the share of entries that aren't zero",
        "k": "the width of a kernel",
    },
    "A memory beside the text": {
        "y": "the memory as its slots and their features",
        "D": "the pattern of a head of cross-attention, held",
        "V": "the matrix for the values of a head",
        "O": "the matrix for the output of a head",
        "N": "the number of tokens of the text",
        "S": "the number of slots of the memory",
        "M": "the number of features of the text",
        "L": "the number of features of the memory",
        "m": "the number of features of a head",
        "H": "the number of heads",
        "h": "a head",
        "k": "a number of layers, in sums",
    },
    "A recurrence over tokens": {
        "p": "the length of the state",
        "M": "the length of a token",
    },
    "Layers of recurrences": {"p": "the length of the state of a layer"},
    "Linear attention with one decay": {"p": "the length of a direction of the state"},
    "The diamond product": {"W": "matrices", "x": "a vector", "d": "the length of the vector"},
    "Lemma 1: a matrix times a UAT sum is a UAT sum": {
        "x": "the input",
        "W": "the weights of a term",
        "b": "the bias of a term",
        "alpha": "what a term is multiplied by",
        "alpha*": "what a term is multiplied by, times the matrix",
        "beta": "the matrix before the sum",
        "j": "a term",
        "N": "the number of terms",
        "n": "the length of the input",
        "m": "the length of an activation",
        "k": "the length of the sum",
        "r": "the length of the sum, multiplied by the matrix",
    },
    "LoRA, carried through every layer": {
        "W": "a weight",
        "x": "what it is applied to",
        "L": "an adapter's left factor",
        "R": "an adapter's right factor",
        "s": "an activation",
        "r": "the rank of an adapter",
    },
    "What pruning costs": {
        "s": "the activation of the term that is removed",
        "S_1": "the sum of the kept terms",
        "S_2": "the sum of the dropped terms",
        "f": "the function that is approximated",
        "varepsilon": "a bound of the error",
    },
}

_NUMBERS = {
    "d": "the length of the stream as a vector",
    "n": "the length of an activation as a vector",
    "N": "the number of tokens",
    "M": "the number of features",
}

_INDICES = {
    "layer": {"i": "a layer", "j": "a layer, in sums and where a term was born"},
    "token": {"i": "a token", "j": "a token, in sums and where it is written", "k": "a number of tokens"},
}


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
    noun = "vector" if parameter.shape[1] == 1 else "matrix"
    if isinstance(parameter, Held):
        return f"a {noun} that depends on the input, held at its value on this one"
    return f"data, a {noun}" if isinstance(parameter, Variable) else f"a constant {noun}"


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
    of_title = _OF_TITLE.get(derivation.title, {})
    rest = ",".join(map(str, parameter.lower[1:]))
    plain = letter.replace(DOT, "")
    names = (f"{plain}[{rest}]" if rest else plain, plain + _role(parameter, plain), plain)
    tables: tuple[Mapping[str, str], ...] = (derivation.words, of_title, _OF_LAYERS)
    if parameter.of_layer:
        tables = (derivation.words,)
    elif plain != letter:  # the form's own, where a letter of the layer looks the same
        tables = (of_title, _OF_LAYERS)
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
    of_title = _OF_TITLE.get(derivation.title, {}) | own
    stem, entry, _ = (symbol.name, "", "") if symbol.name in of_title else symbol.name.partition("_")
    known = ({} if entry else _INDICES[derivation.counts] if _counts(symbol) else _NUMBERS) | of_title
    otherwise = "an index" if _counts(symbol) else "a size" if symbol.is_positive else "a number"
    words = known.get(stem, otherwise)
    return LegendEntry(typeset(Symbol(stem)), stem, (), f"{words}: an entry" if entry and stem in known else words)


def letters(derivations: Iterable[Derivation]) -> list[LegendEntry]:
    """Return every letter and sign that occurs with its meaning, each once."""
    parameters: dict[tuple[str, tuple[Any, ...], str], LegendEntry] = {}
    signs: list[LegendEntry] = []
    for derivation in derivations:
        for part in dict.fromkeys(_parts(derivation)):
            if isinstance(part, Ones) or (isinstance(part, Parameter) and part.letter == "1"):
                signs.append(LegendEntry(r"\mathbf{1}", "1", (), "the vector of ones"))
            elif isinstance(part, Parameter):
                letter, marks = _bare(part.letter)
                explained, words = _explained(part, letter, derivation)
                shape, text = explained.shape, sstr(explained)
                known_by = letter if explained.lower[:1] in ((i,), (j,)) else text
                parameters.setdefault((known_by, shape, words), LegendEntry(typeset(explained), text, shape, words))
                signs += [_DECORATED[mark] for mark in sorted(marks)]
                signs += [_number(symbol, derivation) for symbol in (i, j) if symbol in explained.indices]
            elif isinstance(part, Activation):
                plain, slope = (Activation(part.argument, k, part.function, part.indices and (i,)) for k in (0, 1))
                of_layer = "the activation function of layer i" if part.indices else "an activation function"
                words = derivation.words.get(part.function, f"{of_layer}, entry by entry")
                signs.append(LegendEntry(plain.latex_name, plain.text_name, (), words))
                signs += [LegendEntry(slope.latex_name, slope.text_name, (), "its derivative")] * part.order
            elif isinstance(part, Symbol):
                signs.append(_number(part, derivation))
            elif type(part) in _OPERATIONS:
                signs.append(_OPERATIONS[type(part)])
    return list(dict.fromkeys([*parameters.values(), *signs]))


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


_STREAMS = ("x", "x'")  # an equation gives the next layer's, and defines none


def undefined_letters(derivation: Derivation) -> list[tuple[str, str, str]]:
    """Return LaTeX, shape and meaning of the letters that neither a definition of a derivation nor custom explains."""
    stated = (each for each in derivation.hypotheses if isinstance(each, Step))
    lefts = [step.left for step in (*stated, *derivation.given, *derivation.steps) if step.relation == ":="]
    named = [left for left in lefts if isinstance(left, Parameter) and not _bare(left.letter)[1]]
    defined = {typeset(_explained(p, p.letter, derivation)[0]) for p in named if p.letter not in _STREAMS}
    known = {*defined, "i", "j", "d", "n", *(_OPERATIONS[kind].latex for kind in (Identity, ZeroMatrix))}
    return [row for row in rows([derivation]) if row[0] not in known]
