"""The unrolled form at a concrete depth by substitution alone, and the recursions of its parameters at every depth."""

from sympy import ZeroMatrix

from symbolic.collected import collect
from symbolic.definitions import Definition
from symbolic.derivation import Derivation, Step, definition, equality
from symbolic.normal_form import Normaliser, equal, normal_form
from symbolic.operations import Activation, IndexedSum
from symbolic.stack import Stack, check_depth, i, j

_IN_FULL = 250  # characters up to which the form is also written out without names


def unroll(
    depth: int,
    stack: Stack | None = None,
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
    depth, stack = check_depth(depth), stack or Stack()
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
        steps.append(definition(stack.x(k), stack.general_term(k), "Eq. 20"))
        steps += [definition(name.left, name.right, "named") for name in new]
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


def two_layers(stack: Stack | None = None) -> Derivation:
    """Derive the forms of one and of two layers as the papers do it by hand, every line checked.

    Args:
        stack: the symbols.

    Source: Wang & Li, Eq. 21–25.
    """
    s = stack or Stack()
    x0, eq20 = s.x(0), [s.equation_20]
    first = s.W(1, 1) * x0 + s.b(1, 3)
    s1 = Activation(s.W(1, 2) * x0 + s.b(1, 2))
    x1 = first + s.W(1, 3) * s1
    rules = [*eq20, *s.recursions]
    steps = (
        equality(s.x(1), x1, "Eq. 21", eq20),
        equality(s.x(2), s.general_term(2), "Eq. 22, first line", eq20),
        equality(s.x(2), s.general_term(2, x1), "Eq. 21 substituted", eq20),
        equality(
            s.x(2),
            s.W(2, 1) * first
            + s.b(2, 3)
            + s.W(2, 1) * s.W(1, 3) * s1
            + s.W(2, 3) * Activation(s.W(2, 2) * first + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1),
            "multiplied out",
            eq20,
        ),
        *(
            equality(name, value, "let", s.recursions)
            for name, value in (
                (s.P(2), s.W(2, 1) * s.W(1, 1)),
                (s.q(2), s.W(2, 1) * s.b(1, 3) + s.b(2, 3)),
                (s.C(1, 2), s.W(2, 1) * s.W(1, 3)),
                (s.B(2), s.W(2, 2) * s.W(1, 1)),
                (s.c(2), s.W(2, 2) * s.b(1, 3) + s.b(2, 2) + s.W(2, 2) * s.W(1, 3) * s1),
            )
        ),
        equality(
            s.x(2),
            s.P(2) * x0 + s.q(2) + s.C(1, 2) * s.activation(1) + s.C(2, 2) * s.activation(2),
            "Eq. 23",
            rules,
        ),
        equality(s.x(1), s.form(1), "Eq. 24", rules),
        equality(s.x(2), s.form(2), "Eq. 25", rules),
    )
    return Derivation("One layer and two layers", steps)


def recursions(stack: Stack | None = None, depth: int = 3) -> Derivation:
    """Derive the recursions: the form of layer i put in Eq. 20 and sorted by `x'_0`, for a symbolic i.

    Args:
        stack: the symbols.
        depth: where all recursions together are also compared with the substituted network.

    Raises:
        SymbolicError: if the depth isn't a positive integer.

    Source: Wang & Li, Eq. 12 and 34, with two indices.
    """
    s, depth = stack or Stack(), check_depth(depth)
    next_layer = s.general_term(i + 1, s.form(i))
    found = collect(next_layer, s.x(0))
    (term,) = found.terms
    derived = {
        s.P(i + 1): (found.path, "updated W'_{i+1,1}"),
        s.q(i + 1): (found.offset - s.W(i + 1, 1) * s.UAT(i), "updated b'_{i+1,3}"),
        s.B(i + 1): (term.inner, "updated W'_{i+1,2}"),
        s.c(i + 1): (term.bias, "updated b'_{i+1,2}, with all earlier terms"),
    }
    sorted_form = found.path * s.x(0) + found.offset + term.outer * Activation(term.inner * s.x(0) + term.bias)
    known = (Definition(s.x(i), s.form(i)), s.equation_20)
    rules = s.recursions
    born = s.W(i + 1, 3) * s.activation(i + 1)
    carried = IndexedSum(s.C(j, i + 1) * s.activation(j), j, 1, i)
    whole = normal_form(s.x(depth), [s.equation_20]) == normal_form(s.form(depth), rules)
    steps = (
        Step(s.x(i + 1), next_layer, "Eq. 20, with the form of layer i in it", equal(s.x(i + 1), next_layer, known)),
        Step(None, sorted_form, "sorted by x'_0", equal(next_layer, sorted_form)),
        *(
            Step(rule.left, rule.right, derived[rule.left][1], equal(rule.right, derived[rule.left][0]))
            for rule in rules
            if rule.left in derived
        ),
        definition(s.C(i, i), s.W(i, 3), "W'_{i,3} as it is born"),
        definition(s.C(j, i + 1), s.W(i + 1, 1) * s.C(j, i), "W'_{j,3} carried one layer on, for j ≤ i"),
        equality(s.W(i + 1, 1) * s.UAT(i), carried, "so the earlier terms are carried", rules),
        equality(s.UAT(i + 1), s.W(i + 1, 1) * s.UAT(i) + born, "and one is born", rules),
        Step(s.x(depth), s.form(depth), f"against Eq. 20 substituted {depth} times", whole),
    )
    return Derivation("The recursions, for every depth", steps)
