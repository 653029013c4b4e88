"""Break the LaTeX of a formula into lines of a width in points, between summands and factors."""

import re
from string import ascii_letters
from typing import NamedTuple

_TIMES = (r"\otimes", r"\odot", r"\cdot", r"\diamond", r"\times")
_RELATIONS = ("=", "<", ">", r"\le", r"\ge", r"\approx", r"\to")
_FUNCTIONS = re.compile(r"\\(?:sigma'*|sum|prod|Delta|operatorname\{.*\})(?:[_^].*)?(?:\\!)?$", re.DOTALL)
_SPACES = {r"\,": 1.7, r"\;": 2.8, r"\!": 0.0, r"\ ": 3.4, r"\quad": 10.0, r"\qquad": 20.0, r"\cdots": 15.0}
_NORMAL, _BOLD = (  # points: the widths of letters in Computer Modern, a small and a capital Greek one behind them
    dict(zip(f"{ascii_letters}αΩ", map(float, widths.split()), strict=True))
    for widths in (
        "5.3 4.3 4.3 5.2 4.7 6.0 5.1 5.8 3.4 4.7 5.5 3.2 8.8 6.0 4.8 5.0 4.8 4.8 4.7 3.6 5.7 5.2 7.4 5.7 5.3 5.1"
        " 7.5 8.1 7.9 8.6 8.0 7.8 7.9 9.1 5.2 6.5 9.2 6.8 10.8 9.1 7.9 7.8 7.9 7.7 6.7 7.2 7.9 8.1 10.8 9.1 8.0 7.5"
        " 6.2 8.3",
        "5.6 6.4 5.1 6.4 5.3 4.6 5.9 6.4 3.2 3.5 6.1 3.2 9.6 6.4 5.7 6.4 6.1 4.7 4.5 4.5 6.4 6.2 8.5 6.1 6.2 5.1"
        " 8.7 8.2 8.3 8.8 7.6 7.2 9.0 9.0 4.4 5.9 9.0 6.9 10.9 9.0 8.6 7.9 8.6 8.6 6.4 8.0 8.8 8.9 12.0 8.7 9.0 7.0"
        " 7.2 8.9",
    )
)
_DIGIT, _SCRIPT, _PRIME, _BEHIND, _CLOSER = 5.0, 0.81, 2.8, 0.5, 1.7
_OPERATOR, _RELATION, _SUM, _COLUMN = 12.3, 13.4, 14.5, 10.0
_INDENT, _BRACKET, _FIXED, _MARGIN = 10.0, 5.7, 4.6, 1.02


class _Piece(NamedTuple):
    """A part of a formula that stays together."""

    latex: str
    kind: str  # open, close, sign, times or atom
    width: float  # in points
    depth: int  # the number of brackets that it stands in
    cost: float | None  # of a line that begins with it; None where none may


def _group(text: str, start: int) -> int:
    """Return where the brace group, command or character that begins somewhere ends."""
    if text[start] == "\\":
        command = re.compile(r"\\(?:[a-zA-Z]+|.)").match(text, start)
        return command.end() if command else start + 1
    if text[start] != "{":
        return start + 1
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if not depth:
            return place + 1
    return len(text)


def _scripts(text: str, end: int) -> int:
    """Return where the primes, indices and exponents behind a place end."""
    while end < len(text):
        if text[end] == "'":
            end += 1
        elif text[end] in "_^":
            end = _group(text, end + 1)
        else:
            break
    return end


def _element(text: str, start: int) -> int:
    """Return where the element that begins somewhere ends, with its arguments and indices."""
    if text.startswith(r"\begin{", start):
        name = text[start + 7 : text.index("}", start)]
        return _scripts(text, text.index(rf"\end{{{name}}}", start) + len(name) + 6)
    if delimiter := re.compile(r"\\(?:left|right|bigl|bigr)\s*(?:\\.|.)").match(text, start):
        return _scripts(text, delimiter.end()) if delimiter[0][1] in "rb" else delimiter.end()
    end = _group(text, start)
    if text[start] == "\\":
        while end < len(text) and text[end] == "{":
            end = _group(text, end)
    elif text[start].isdigit():
        end = re.compile(r"\d+").match(text, start).end()  # type: ignore[union-attr]
    end = _scripts(text, end)
    return end + 2 if text.startswith(r"\!", end) else end


def _elements(text: str) -> list[str]:
    """Return the elements of a formula in order."""
    elements, place = [], 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        end = _element(text, place)
        elements.append(text[place:end])
        place = end
    return elements


def _letters(text: str, table: dict[str, float] = _NORMAL) -> float:
    return sum(3.0 if c in ".,;:'|!" else table.get(c, _DIGIT) for c in text)


def _arguments(element: str) -> tuple[str, list[str], str]:
    """Return the command that an element begins with, its arguments, and its indices."""
    end = _group(element, 0)
    name, arguments = element[:end], []
    while end < len(element) and element[end] == "{":
        close = _group(element, end)
        arguments.append(element[end + 1 : close - 1])
        end = close
    return name, arguments, element[end:]


def _script_width(scripts: str) -> float:
    lower = upper = 0.0
    place = 0
    while place < len(scripts):
        if scripts[place] == "'":
            upper += _PRIME
            place += 1
        elif scripts[place] in "_^":
            end = _group(scripts, place + 1)
            inside = _SCRIPT * width(scripts[place + 1 : end].strip("{}") or " ", in_script=True) + _BEHIND
            lower, upper = (lower + inside, upper) if scripts[place] == "_" else (lower, upper + inside)
            place = end
        else:
            place += 1
    return max(lower, upper)


def _environment(element: str) -> float:
    body = re.sub(r"\\(?:begin|end)\{\w+\}(?:\{[a-z]*\})?", "", element)
    rows = [row.split("&") for row in re.split(r"\\\\(?:\[.*?\])?", body)]
    columns = max(map(len, rows))
    widest = (max(width(row[n]) if n < len(row) else 0.0 for row in rows) for n in range(columns))
    return sum(widest) + _COLUMN * columns + _BRACKET


def _element_width(element: str, in_script: bool) -> float:
    if element.endswith(r"\!"):
        return _element_width(element.removesuffix(r"\!"), in_script) - _CLOSER
    if element.startswith(r"\begin{"):
        return _environment(element)
    if element[0] == "{":
        end = _group(element, 0)
        return width(element[1 : end - 1], in_script) + _script_width(element[end:])
    if element[0] != "\\":
        end = len(re.match(r"\d+|.", element, re.DOTALL)[0])  # type: ignore[index]
        letter = element[:end]
        if letter in "+-=<>":
            return 7.8 if in_script else _OPERATOR if letter in "+-" else _RELATION
        return (_FIXED if letter in "()[]" else _letters(letter)) + _script_width(element[end:])
    name, arguments, scripts = _arguments(element)
    inner = arguments[0] if arguments else ""
    match name:
        case r"\mathbf" | r"\boldsymbol" | r"\mathrm" | r"\text" | r"\operatorname" | r"\mathbb":
            plain = re.sub(r"\\[A-Z][a-z]+", "Ω", re.sub(r"\\[a-z]+", "α", inner))
            own = _letters(plain, _BOLD if name in (r"\mathbf", r"\boldsymbol") else _NORMAL) + 1.7 * (name[1] == "o")
        case r"\frac" | r"\dfrac" | r"\tfrac":
            own = max(width(part, in_script) for part in arguments) + 2.4
        case r"\sum" | r"\prod":
            below = [width(part.strip("{}"), True) for part in re.findall(r"[_^](\{[^{}]*\}|.)", scripts)]
            return max([_SUM, *(_SCRIPT * part for part in below)]) + 3.4
        case r"\left" | r"\right" | r"\bigl" | r"\bigr":
            return (_FIXED if name[1] == "b" else _BRACKET) + _script_width(element[len(name) + 1 :])
        case _ if name in _TIMES or name in _RELATIONS:
            return _OPERATOR if name in _TIMES else _RELATION
        case r"\textstyle":
            return 0.0
        case _ if name in _SPACES:
            return _SPACES[name]
        case _:
            own = width(inner, in_script) if arguments else _NORMAL["Ω" if name[1:2].isupper() else "α"]
    return own + _script_width(scripts)


def width(latex: str, in_script: bool = False) -> float:
    r"""Return about how wide a formula is in display style, in points at a type size of 10: rather more than it is.

    Example:
        >>> 30 < width(r"\mathbf{W}'_{i + 1,1}") < 45
        True
    """
    return sum(_element_width(element, in_script) for element in _elements(latex))


def fits(latex: str, room: float) -> bool:
    """Return whether a formula fits into a number of points."""
    return _MARGIN * width(latex) <= room


def _pieces(latex: str) -> list[_Piece]:
    """Return a formula in pieces, each with what a line costs that begins with it."""
    pieces: list[_Piece] = []
    depth = 0
    for element in _elements(latex):
        head = element.split("{")[0]
        before = pieces[-1] if pieces else None
        kind = "atom"
        if re.match(r"\\left|\\bigl|[(\[]", element):
            kind = "open"
        elif re.match(r"\\right|\\bigr|[)\]]", element):
            kind, depth = "close", depth - 1
        elif element in "+-":
            kind = "sign"
        elif head in _TIMES:
            kind = "times"
        cost: float | None = None
        if before is not None and before.kind in ("atom", "close") and not _FUNCTIONS.match(before.latex):
            cost = {"sign": 0.0, "times": 0.9, "atom": 1.1, "open": 1.1}.get(kind)
        cost = None if cost is None or head in _RELATIONS or re.match(r"[,;:]|\\[,;! ]", element) else cost + depth
        pieces.append(_Piece(element, kind, _element_width(element, False), depth, cost))
        depth += kind == "open"
    return pieces


def _first_line(pieces: list[_Piece], room: float) -> int:
    """Return how many pieces the first line takes: it is well filled, and ends outside of brackets where it can."""
    total, best, least = 0.0, 0, float("inf")
    for n, piece in enumerate(pieces):
        if n and piece.cost is not None:
            waste = piece.cost + 2.0 * max(0.0, 1 - total / room)
            if waste <= least:
                best, least = n, waste
        total += piece.width
        if total > room and best:
            return best
    return best or len(pieces)


def breakable(latex: str) -> str:
    r"""Return a formula with brackets of a fixed size, between which a line can end.

    Example:
        >>> print(breakable(r"\sigma\!\left(\mathbf{A} + \mathbf{B}\right)"))
        \sigma\bigl(\mathbf{A} + \mathbf{B}\bigr)
    """
    fixed = latex.replace(r"\left", r"\bigl").replace(r"\right", r"\bigr")
    return re.sub(r"\\!\s*\\bigl", r"\\bigl", fixed)  # the space before a bracket that grows is none before this one


def broken(latex: str, room: float) -> list[str]:
    r"""Return a formula in lines, each with the indentation that its first brackets ask for.

    Example:
        >>> for line in broken(r"\mathbf{P} \left(\mathbf{A} + \mathbf{B}\right) + \mathbf{C}", 40):
        ...     print(line)
        \mathbf{P} \bigl( \mathbf{A}
        \quad + \mathbf{B} \bigr)
        + \mathbf{C}
    """
    # A line begins with a sign, or with a dot where a product is broken; brackets that end on another line are of a
    # fixed size.
    pieces = _pieces(latex)
    if _MARGIN * sum(piece.width for piece in pieces) <= room:
        return [latex]
    rows: list[list[_Piece]] = []
    while pieces:
        left = (room - (_INDENT * min(pieces[0].depth, 4) if rows else 0.0)) / _MARGIN
        count = len(pieces) if sum(piece.width for piece in pieces) <= left else _first_line(pieces, left)
        rows.append(pieces[:count])
        pieces = pieces[count:]
    return _written(rows)


def _written(rows: list[list[_Piece]]) -> list[str]:
    """Return rows of pieces as LaTeX, with brackets of a fixed size where both aren't in one row."""
    waiting: list[tuple[int, int]] = []
    torn: set[tuple[int, int]] = set()
    for r, row in enumerate(rows):
        for n, piece in enumerate(row):
            if piece.kind == "open":
                waiting.append((r, n))
            elif piece.kind == "close" and waiting:
                opening = waiting.pop()
                torn |= {opening, (r, n)} if opening[0] != r else set()
    lines = []
    for r, row in enumerate(rows):
        texts = [breakable(piece.latex) if (r, n) in torn else piece.latex for n, piece in enumerate(row)]
        dot = [r"\cdot"] if r and row[0].kind in ("atom", "open") else []
        indent = [r"\quad" * min(row[0].depth, 4)] if r and row[0].depth else []
        lines.append(re.sub(r"\\! \\bigl", r" \\bigl", " ".join([*indent, *dot, *texts])))
    return lines
