"""Anyone's layer: its residual terms, its proof and its closed form, from one expression of the stream."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sympy import Basic, MatrixExpr

from symbolic.blocks.reading import read
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import equal, normal_form
from symbolic.errors import ShapeMismatch, SymbolicError
from symbolic.expressions.parameter import Held, Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.proof.typesetting import document, section
from symbolic.theorems.closed_form import prove
from symbolic.theorems.collapse import collapse
from symbolic.theorems.contributions import contributions
from symbolic.theorems.recursions import recursions
from symbolic.theorems.residual_stack import ResidualStack, i
from symbolic.theorems.unrolled import unroll

_TAKEN = ("P", "q", "B", "c", "C", "UAT", "W'", "b'", "x'")


def _parameters(expression: Any) -> set[Parameter]:
    return expression.atoms(Parameter) if isinstance(expression, Basic) else set()


def _letters(expression: MatrixExpr) -> set[str]:
    return {parameter.letter for parameter in _parameters(expression)}


def _check(expression: object, x: Parameter) -> MatrixExpr:
    if not isinstance(expression, MatrixExpr):
        raise SymbolicError(f"the layer is {expression!r}: give a function from the stream to a matrix expression")
    if expression.shape != x.shape:
        raise ShapeMismatch(
            f"the stream is {x.shape[0]} × {x.shape[1]} and the layer makes it {expression.shape[0]} ×"
            f" {expression.shape[1]}: every layer of a stack has a stream of one shape; give the block that shape"
        )
    taken = sorted({p.letter for p in expression.atoms(Parameter) if p != x and p.letter in _TAKEN})
    if taken:
        raise SymbolicError(
            f"{', '.join(taken)}: the closed form has these letters ({', '.join(_TAKEN)}); give your matrices others"
        )
    return expression


def _vectorised(expression: MatrixExpr, x: Parameter, vector: Parameter) -> MatrixExpr:
    """Return a layer of a matrix as an expression of `vec(x)`."""
    whole = normal_form(Vec(expression)).expression().xreplace({Vec(x): vector})
    if whole.has(x):
        raise SymbolicError(
            f"{expression} can't be written on vec({x}): its stream is transposed, or stands in what has to be held"
        )
    return whole


class Block:
    """One layer, written as an expression of the stream: its residual terms read off, proved and unrolled.

    Every parameter is a layer's own, and gets the layer's index; what moves with the input (patterns, scales, gates) is
    held at its value, as a parameter.

    Args:
        layer: a function from the stream to what the layer makes of it.
        shape: rows and columns of the stream: `(d, 1)` for a vector, `(N, M)` for tokens and features.
        name: what to call it.
        shared: letters of parameters that all layers have in common, such as an encoder's memory.

    Raises:
        ShapeMismatch: if the layer changes the stream's shape, or its matrices don't fit.
        SymbolicError: if the layer isn't affine in the stream and its activations: what has to be held is named.

    Example:
        >>> from symbolic import Block, activation, matrix
        >>> A, F, G = matrix("A", 4, 4), matrix("F", 8, 4), matrix("G", 4, 8)
        >>> block = Block(lambda x: x + A * x + G * activation(F * x), shape=(4, 1))
        >>> print(block.residual_terms().verdict)
        1 of 1 checks hold, with 6 definitions
        >>> print(block.prove().verdict)
        8 of 8 checks hold, with 1 hypothesis

    Source: Wang & Li, Eq. 20 and 28–34.
    """

    def __init__(
        self,
        layer: Callable[[Any], MatrixExpr],
        shape: tuple[Any, Any] | None = None,
        name: str = "block",
        shared: tuple[str, ...] = (),
    ) -> None:
        """Read the layer."""
        rows, columns = shape or (ResidualStack().width, 1)
        x = Parameter("x'", (i,), rows, 1) if columns == 1 else Variable("x", (i,), rows, columns)
        written = _check(layer(x), x)
        indexed = {
            p: type(p)(p.letter, (i + 1, *p.lower), *p.shape, p.upper)
            for p in written.atoms(Parameter)
            if p != x and p.letter not in shared
        }
        written = written.xreplace(indexed)
        vector = x if columns == 1 else Parameter("x'", (i,), rows * columns, 1)
        whole = written if columns == 1 else _vectorised(written, x, vector)
        self.name, self.stream, self.written = name, x, written
        self.stack, self.parameters = read(whole, vector)
        self.layer = Definition(self.stack.x(i + 1), whole, (i,))

    @property
    def held(self) -> tuple[Held, ...]:
        """The parameters of one layer that move with the input and are held at their values on it."""
        return tuple(sorted(self.written.atoms(Held), key=str))

    @property
    def weights(self) -> tuple[Parameter, ...]:
        """The parameters of one layer that stand still."""
        return tuple(sorted(self.written.atoms(Parameter) - {self.stream} - set(self.held), key=str))

    def residual_terms(self) -> Derivation:
        """Return `W'_{i+1,k}` and `b'_{i+1,k}`, read off, with the check that Eq. 20 with them is the layer."""
        s, k = self.stack, i + 1
        next_stream = self.stream.xreplace({i: k})
        steps = [let(next_stream, self.written, "one layer")]
        if next_stream != s.x(k):
            whole = self.layer.right.xreplace({s.x(i): Vec(self.stream)})
            steps.append(Step(s.x(k), self.layer.right, "on x' = vec(x)", equal(Vec(self.written), whole)))
        steps += [let(entry.left, entry.right, "read off") for entry in self.parameters]
        steps.append(equality(s.x(k), s.general_term(k), "Eq. 20", (self.layer, *self.parameters)))
        held = ", ".join(map(str, self.held))
        remark = f"Held at their values on this input: {held}." if held else ""
        return Derivation(f"The residual terms of the {self.name}", tuple(steps), remark)

    def _instance(self, derivation: Derivation, title: str) -> Derivation:
        """Return a derivation with this block's parameters put in where the general ones stand."""
        table = {entry.left: entry.right for entry in self.parameters}
        ours = {p.letter for step in derivation.steps for side in (step.left, step.right) for p in _parameters(side)}
        both = sorted((ours & _letters(self.written)) - {self.stream.letter})
        if both:
            raise SymbolicError(
                f"{', '.join(both)}: {title[0].lower()}{title[1:]} has these letters; give yours others"
            )

        def put(side: Any) -> Any:
            return side.xreplace(table) if isinstance(side, MatrixExpr) else side

        steps = tuple(replace(step, left=put(step.left), right=put(step.right)) for step in derivation.steps)
        return replace(derivation, title=title, steps=steps)

    def recursions(self) -> Derivation:
        """Return the recursions of the closed form's parameters, with this block's own put in."""
        return self._instance(recursions(self.stack), f"The recursions of the {self.name}")

    def prove(self) -> Derivation:
        """Prove `x'_i = P_i x'_0 + q_i + UAT^R_i` for every depth, by induction, for this very block."""
        proof = prove(self.stack, layer=self.layer, parameters=self.parameters)
        return self._instance(proof, f"The closed form at every depth, for the {self.name}")

    def unroll(self, depth: int) -> Derivation:
        """Return the closed form at a depth, compared with the network of such blocks.

        Args:
            depth: number of layers.
        """
        return unroll(depth, self.stack, self.layer, self.parameters, f"The unrolled form of the {self.name}")

    def collapse(self) -> Derivation:
        """Return the collapse to one affine map, with this block's parameters put in."""
        return self._instance(collapse(self.stack), f"The collapse of the {self.name}")

    def contributions(self) -> Derivation:
        """Return the split of a read-out into contributions, with this block's parameters put in."""
        return self._instance(contributions(self.stack), f"The contributions of the {self.name}")

    def document(self) -> str:
        """Return a LaTeX file that stands alone: the block, its parameters, the recursions, the proof."""
        return document(map(section, (self.residual_terms(), self.recursions(), self.prove())))

    def __str__(self) -> str:
        return str(self.residual_terms())

    def _repr_latex_(self) -> str:
        return self.residual_terms()._repr_latex_()
