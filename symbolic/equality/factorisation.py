"""Take common left factors out of a sum of products, as in a formula written by hand."""

from sympy import MatrixExpr

from symbolic.equality.form import NormalForm
from symbolic.equality.normal_form import normal_form
from symbolic.equality.word import Word
from symbolic.expressions.matrix import MatrixSum


def _factored(form: NormalForm) -> MatrixExpr:
    groups: dict[object, list[Word]] = {}
    for word in form.words:
        groups.setdefault(word.atoms[0] if word.atoms else None, []).append(word)
    parts = []
    for first, words in groups.items():
        if first is None or len(words) == 1:
            parts.append(NormalForm(form.shape, [(word, form.words[word]) for word in words]).expression())
            continue
        outer = words[0].atoms[0]
        shape = (outer.shape[1], form.shape[1])
        inner = NormalForm(shape, [(Word(word.atoms[1:], shape, word.scalars), form.words[word]) for word in words])
        parts.append(outer.expression * _factored(inner))
    return MatrixSum(*parts) if parts else form.expression()


def factored(expression: MatrixExpr) -> MatrixExpr:
    """Return an expression multiplied out, and with common left factors taken out again.

    Args:
        expression: a matrix expression.

    Example:
        >>> from sympy import symbols
        >>> from symbolic.expressions.parameter import Parameter
        >>> d = symbols("d", integer=True, positive=True)
        >>> A, B, x = Parameter("A", (), d, d), Parameter("B", (), d, d), Parameter("x", (), d, 1)
        >>> print(factored(A * B * x + A * x))
        A (B x + x)
    """
    return _factored(normal_form(expression))
