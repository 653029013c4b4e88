"""The unrolled form at a concrete depth, by substitution alone."""

from sympy import ZeroMatrix

from symbolic.equality.collect import collect
from symbolic.equality.definition import Definition
from symbolic.equality.normal_form import Normaliser, normal_form
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import Step, equality, let
from symbolic.theorems.residual_stack import ResidualStack, check_depth

_IN_FULL = 250  # characters up to which the form is also written out without names


def unroll(
    depth: int,
    stack: ResidualStack | None = None,
    layer: Definition | None = None,
    parameters: tuple[Definition, ...] = (),
    title: str = "The unrolled form",
) -> Derivation:
    """Derive the unrolled form at a concrete depth from substitution alone, with its shared parts named.

    In every layer the named form of the layer before is substituted in Eq. 20, the result is sorted by `x'_0`, and
    what is found gets the next names. The equation `x'_i = P_i x'_0 + q_i + UAT^R_i` is then compared with the whole
    network, one layer substituted in the next without any name.

    Args:
        depth: number of layers.
        stack: the symbols; sizes `d` and `n` if absent.
        layer: what a layer computes, for the network that it is compared with; Eq. 20 if absent.
        parameters: what `W'_{i,k}` and `b'_{i,k}` stand for, if the layer is a block of another kind.
        title: title of the derivation, to which the depth is added.

    Raises:
        SymbolicError: if the depth isn't a positive integer.

    Example:
        >>> print(unroll(2).steps[9].left, ":=", unroll(2).steps[9].right)
        q₂ := W′₂,₁ q₁ + b′₂,₃

    Source: Wang & Li, Eq. 20–25 and 33.
    """
    depth, stack = check_depth(depth), stack or ResidualStack()
    x0, layers, names = stack.x(0), [], []
    for k in range(1, depth + 1):
        found = collect(stack.general_term(k, x0 if k == 1 else stack.form(k - 1)), x0)
        (term,) = found.terms
        carried = ZeroMatrix(stack.width, 1) if k == 1 else stack.W(k, 1) * stack.UAT(k - 1)
        new = [
            Definition(stack.P(k), found.path),
            Definition(stack.q(k), normal_form(found.offset - carried).expression()),
            Definition(stack.B(k), term.inner),
            Definition(stack.c(k), term.bias),
            Definition(stack.UAT(k), carried + term.outer * stack.activation(k)),
        ]
        names += new
        layers.append(new)
    network, named_form = Normaliser([layer or stack.equation_20]), Normaliser([*names, *parameters])
    steps = []
    for k, new in enumerate(layers, 1):
        steps.append(let(stack.x(k), stack.general_term(k), "Eq. 20"))
        steps += [let(name.left, name.right, "named") for name in new]
        verified = network.form(stack.x(k)) == named_form.form(stack.form(k))
        steps.append(Step(stack.x(k), stack.form(k), "equals the network, layer substituted in layer", verified))
    # The form without names grows by a factor in every layer: only a short one is worth a look.
    if depth <= 3 and len(str(whole := network.form(stack.x(depth)).expression())) <= _IN_FULL:
        steps.append(equality(stack.x(depth), whole, "in full", [layer or stack.equation_20]))
    plural = (
        "layers are one affine map of the input plus {} terms."
        if depth > 1
        else "layer is one affine map of the input plus {} term."
    )
    remark = f"{depth} {plural.format(depth)}"
    return Derivation(f"{title} at depth {depth}", tuple(steps), remark)
