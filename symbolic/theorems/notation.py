"""Write derivations in the papers' letters, which are the same for a layer's own parameter and for the updated one."""

from symbolic.expressions.parameter import Parameter
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step

_PAPERS_LETTERS = {"P": ("W", 1), "q": ("b", 3), "B": ("W", 2), "c": ("b", 2), "C": ("W", 3)}

_HAT = "\u0302"


def in_the_papers_letters(derivation: Derivation) -> Derivation:
    r"""Return a derivation with the papers' letters for the parameters of the unrolled form, with a hat.

    Example:
        >>> from symbolic.expressions.latex import typeset
        >>> from symbolic.theorems.closed_form import prove
        >>> print(typeset(in_the_papers_letters(prove()).steps[1].right))
        \widehat{\mathbf{W}}'_{i,1} \mathbf{x}'_{0} + \widehat{\mathbf{b}}'_{i,3} + \mathrm{UAT}^{R}_{i}
    """
    # `P_i` is the updated `W'_{i,1}`, `q_i` is `b'_{i,3}`, `B_j` is `W'_{j,2}`, `c_j` is `b'_{j,2}`, and `C_j^{(i)}` is
    # `W'_{j,3}` carried to layer `i`.

    of_layers = derivation.counts == "layer" and any(isinstance(each, Step) for each in derivation.premises)
    sides = (side for step in derivation.given for side in (step.left, step.right))
    streams = any(p.letter == "P" and len(p.lower) > 1 for side in sides for p in side.atoms(Parameter))
    if streams or not of_layers:  # the papers have one stream; on no stack a letter c is another one
        return derivation

    def renamed(parameter: Parameter) -> Parameter:
        if parameter.of_layer or parameter.letter not in _PAPERS_LETTERS:
            return parameter
        letter, role = _PAPERS_LETTERS[parameter.letter]
        lower, (rows, columns) = (*parameter.lower[:1], role, *parameter.lower[1:]), parameter.shape
        return Parameter(f"{letter}{_HAT}'", lower, rows, columns, parameter.upper)

    return derivation.with_parameters(renamed)
