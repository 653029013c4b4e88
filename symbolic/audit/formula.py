"""Read the papers' LaTeX as expressions, so that the checks decide the printed formula itself."""

import re
from collections import Counter
from functools import lru_cache
from typing import Any

from sympy import Integer, MatrixExpr, Symbol, Transpose, Tuple, sqrt

from symbolic.audit.diamond_product import diamond
from symbolic.audit.letters import Name, Notation, Statement, index
from symbolic.audit.magnitude import Magnitude
from symbolic.errors import SymbolicError
from symbolic.expressions.activation import Activation
from symbolic.expressions.indexed_sum import IndexedSum
from symbolic.expressions.matrix import MatrixProduct, MatrixSum
from symbolic.expressions.operations import Kronecker, Vec

_TOKEN = re.compile(
    r"\\text\{[^{}]*\}|\\(?:left|right)\||\\operatorname\{\w+\}|\\[a-zA-Z]+|\\[^a-zA-Z]|\d+|UAT|MHA|FFN|[a-zA-Z]|\S"
)

_LAYOUT = re.compile(r"\\begin\{aligned\}|\\end\{aligned\}|\\\\|&|\\[;!,]|\\quad|\\(?:left|right)(?![a-z|])")

_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\to", r"\mapsto", r"\in"}

_SEPARATORS = (",", ";", ":", ".")

_OPENING = {"(": ")", "[": "]", r"\{": r"\}", r"\left|": r"\right|"}

_ALPHABETS = (r"\mathbf", r"\boldsymbol", r"\mathrm", r"\mathbb")

_ACCENTS = {r"\hat": "^", r"\mathring": "°", r"\widetilde": "~"}

_GREEK = {r"\alpha": "alpha", r"\beta": "beta", r"\theta": "theta", r"\varepsilon": "varepsilon", r"\Lambda": "Λ"}


class _Reader:
    """A reader of one formula by recursive descent."""

    def __init__(self, latex: str, notation: Notation, unprimed: tuple[str, ...]) -> None:
        self.latex, self.notation = latex, notation
        self.tokens = _TOKEN.findall(_LAYOUT.sub(" ", latex.replace(r"\rightarrow", r"\to")))
        self.place = 0
        self.unprimed = Counter(unprimed)

    @property
    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        token = self.next
        if not token or (expected and token not in expected):
            raise SymbolicError(
                f"{self.latex} can't be read: after {''.join(self.tokens[: self.place])} comes {token or 'nothing'},"
                f" expected {' or '.join(expected) or 'a closing bracket'}"
            )
        self.place += 1
        return token

    def statements(self) -> tuple[Statement, ...]:
        statements = []
        while self.next:
            if self.next in _SEPARATORS or self.next.startswith(r"\text{"):
                self.take()
            else:
                statements.append(self.statement())
        if left := sorted(self.unprimed.elements()):
            raise SymbolicError(f"{self.latex} has not the letters without a prime that are declared: {left}")
        return tuple(statements)

    def statement(self) -> Statement:
        sides, relations = [self.sum()], []
        while self.next in _RELATIONS:
            relations.append(self.take())
            sides.append(self.sum())
        return Statement(tuple(sides), tuple(relations))

    def sum(self) -> Any:
        total = self.signed(self.take("-")) if self.next == "-" else self.product()
        while self.next in ("+", "-"):
            term = self.signed(self.take())
            matrices = isinstance(total, MatrixExpr) or isinstance(term, MatrixExpr)
            total = MatrixSum(total, term) if matrices else total + term
        return total

    def signed(self, sign: str) -> Any:
        term = self.product()
        return _times(Integer(-1), term) if sign == "-" else term

    def product(self) -> Any:
        """Read factors between `⋄` and `⊗`, which bind less than a product without a sign."""
        factors, operators = [self.juxtaposed()], []
        while self.next in (r"\diamond", r"\otimes"):
            operators.append(self.take())
            factors.append(self.juxtaposed())
        while operators:
            at = len(operators) - 1 if self.notation.from_right else 0
            operation = _diamond if operators.pop(at) == r"\diamond" else Kronecker
            factors[at : at + 2] = [operation(*factors[at : at + 2])]
        return factors[0]

    def juxtaposed(self) -> Any:
        result = self.factor()
        while self._starts_a_factor():
            result = _times(result, self.factor())
            while self.next == "/":
                self.take()
                result = _times(result, 1 / self.factor())
        return result

    def _starts_a_factor(self) -> bool:
        token = self.next
        ends = {"", "+", "-", "|", "}", r"\diamond", r"\otimes", *_SEPARATORS, *_RELATIONS, *_OPENING.values()}
        return token == "/" or not (token in ends or token.startswith(r"\text{"))

    def factor(self) -> Any:
        token = self.next
        if token in _OPENING:
            return self.scripted(self.bracket())
        if token == "/":
            return Integer(1)
        if token.isdigit():
            return Integer(self.take())
        match token:
            case r"\sigma":
                self.take()
                return Activation(self.bracket())
            case r"\sum":
                return self.indexed_sum()
            case r"\frac" | r"\tfrac":
                self.take()
                top = self.braced()
                return _times(1 / self.braced(), top)
            case r"\sqrt":
                self.take()
                return sqrt(self.braced())
            case r"\ldots":
                self.take()
                return Symbol("...")
        if token.startswith(r"\operatorname"):
            return self.call(self.take()[14:-1])
        return self.named()

    def bracket(self) -> Any:
        opening = self.take(*_OPENING)
        inner = self.sum()
        self.take(_OPENING[opening])
        return Magnitude(inner) if opening == r"\left|" else inner

    def braced(self) -> Any:
        self.take("{")
        inner = self.sum()
        self.take("}")
        return inner

    def scripted(self, inner: Any) -> Any:
        """Read the `T` and the prime behind a bracket."""
        while self.next in ("'", "^"):
            if self.take() == "'":
                inner = Vec(inner)
            elif self.script() in (("T",), (r"\mathrm", "{", "T", "}")):
                inner = Transpose(inner).doit(deep=False)
            else:
                raise SymbolicError(f"{self.latex} can't be read: behind a bracket stands a T or a prime")
        return inner

    def script(self) -> tuple[str, ...]:
        if self.next != "{":
            return (self.take(),)
        self.take()
        depth = 1
        tokens: list[str] = []
        while True:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if not depth:
                return tuple(tokens)
            tokens.append(token)

    def letter(self) -> str:
        token = self.take()
        if token == r"\Delta":
            return "Δ" + self.letter()
        if token in _ALPHABETS or token in _ACCENTS:
            self.take("{")
            inner = self.letter()
            self.take("}")
            return inner + _ACCENTS.get(token, "")
        if token in _GREEK or re.fullmatch(r"\w+", token):
            return _GREEK.get(token, token)
        raise SymbolicError(f"{self.latex} can't be read: {token or 'its end'} is no letter")

    def named(self) -> Any:
        letter, lower, upper, primed, transposed = self.letter(), (), (), False, False
        while self.next in ("'", "_", "^"):
            mark = self.take()
            if mark == "'":
                primed = True
            elif mark == "_":
                lower = _indices("".join(self.script()))
            else:
                script = self.script()
                primed |= r"\prime" in script
                transposed |= "T" in script
                if script[0] == "(":
                    upper = _indices("".join(script[1:-1]))
        name = Name(letter, lower, upper, primed)
        if self.unprimed[str(name)]:
            self.unprimed[str(name)] -= 1
            name = name._replace(primed=True)
        if letter in self.notation.functions and self.next == "(" and not primed:
            return self.call(letter, *(() if not lower else (name,)))
        expression = self.notation.symbol(name)
        return Transpose(expression) if transposed else expression

    def call(self, function: str, *before: Any) -> Any:
        """Read arguments between commas or bars; `a = b` among them is a pair."""
        if function not in self.notation.functions:
            raise SymbolicError(
                f"{function} stands for nothing here: it is none of {', '.join(self.notation.functions)}"
            )
        self.take("(")
        arguments = list(before)
        while True:
            sides = self.statement().equated
            arguments.append(sides[0] if len(sides) == 1 else Tuple(*sides))
            if self.take(",", "|", ")") == ")":
                return self.notation.functions[function](*arguments)

    def indexed_sum(self) -> IndexedSum:
        self.take()
        self.take("_")
        below = "".join(self.script())
        if r"\in" in below:
            letter, members = below.split(r"\in")
            first, last = Integer(1), Symbol(re.sub(r"[\\{}]|Lambda", "", f"Λ{members}"), positive=True)
        else:
            letter, start = below.split("=")
            self.take("^")
            (first,), (last,) = _indices(start), _indices("".join(self.script()))
        return IndexedSum(self.product(), index(letter), first, last)


def _indices(text: str) -> tuple[Any, ...]:
    """Return indices such as `i+1,1` or `Qi`: numbers and symbols, capitals as strings."""
    indices: list[Any] = []
    for part in text.split(","):
        match = re.fullmatch(r"([A-Z]*)([a-z]?(?:[+-]?\d+)?|N_\{?\d\}?)", part)
        if match is None:
            raise SymbolicError(f"{part} is no index")
        capitals, rest = match.groups()
        if capitals == "N" or rest.startswith("N"):
            indices.append(Symbol(part.replace("{", "").replace("}", ""), integer=True, positive=True))
            continue
        if capitals:
            indices.append(capitals)
        if rest:
            letter, number = re.fullmatch(r"([a-z]?)(.*)", rest).groups()  # type: ignore[union-attr]
            indices.append((index(letter) if letter else Integer(0)) + Integer(number or 0))
    return tuple(indices)


def _times(left: Any, right: Any) -> Any:
    matrices = isinstance(left, MatrixExpr) or isinstance(right, MatrixExpr)
    return MatrixProduct(left, right) if matrices else left * right


def _diamond(left: MatrixExpr, right: MatrixExpr) -> MatrixExpr:
    """Return `left ⋄ right`; with the vector on the left it means the same as with the vector on the right."""
    vector_first = left.shape[1] == 1 and right.shape[1] != 1
    return diamond(right, left) if vector_first else diamond(left, right)


@lru_cache(maxsize=1 << 10)
def read(latex: str, notation: Notation, unprimed: tuple[str, ...] = ()) -> tuple[Statement, ...]:
    r"""Return the statements of a formula, between the words and commas that separate them.

    Example:
        >>> from sympy import symbols
        >>> from symbolic.audit.letters import table
        >>> from symbolic.expressions.parameter import Parameter
        >>> d = symbols("d", integer=True, positive=True)
        >>> names = {"W": Parameter("W", (), d, d), "x": Parameter("x", (), d, 1)}
        >>> (statement,) = read(r"\mathbf{W}^{T}[\mathbf{x}+\mathbf{x}]", table(names))
        >>> print(statement.sides[0])
        W.T (x + x)
    """
    return _Reader(latex, notation, unprimed).statements()
