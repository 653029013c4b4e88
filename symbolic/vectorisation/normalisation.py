"""Derive normalisation with its scale held as a matrix on `vec(x)`."""

from sympy import Identity, symbols

from symbolic.equality.definition import Definition
from symbolic.expressions.diagonal import Diagonal
from symbolic.expressions.kronecker import Kronecker
from symbolic.expressions.parameter import Parameter, Variable
from symbolic.expressions.vec import Vec
from symbolic.proof.derivation import Derivation
from symbolic.proof.step import equality, let


def normalisation_derivation() -> Derivation:
    """Derive LayerNorm and RMSNorm with the scale held as one matrix and one vector on `vec(x)`, for all sizes.

    Example:
        >>> normalisation_derivation().verified
        True
    """
    n, m = symbols("N M", integer=True, positive=True)
    x, scale, gain, shift = (
        Variable("x", (), n, m),
        Parameter("r", (), n, 1),
        Parameter("gamma", (), m, 1),
        Parameter("beta", (), m, 1),
    )
    ones_m, ones_n = Parameter("1", ("M",), m, 1), Parameter("1", ("N",), n, 1)
    centre = Parameter("Z", (), m, m)
    mean = Definition(centre, Identity(m) - (1 / m) * ones_m * ones_m.T)
    centred = x - (1 / m) * (x * ones_m) * ones_m.T
    layer = Diagonal(scale) * centred * Diagonal(gain) + ones_n * shift.T
    rms = Diagonal(scale) * x * Diagonal(gain)
    matrix = Kronecker(Diagonal(scale), (centre * Diagonal(gain)).T)
    steps = (
        let(centre, mean.right, "subtracts the mean over features"),
        equality(
            layer,
            Diagonal(scale) * x * centre * Diagonal(gain) + ones_n * shift.T,
            "LayerNorm, its scales r = 1/s held",
            (mean,),
        ),
        equality(Vec(layer), matrix * Vec(x) + Kronecker(ones_n, shift), "D' and d' of LayerNorm", (mean,)),
        equality(Vec(rms), Kronecker(Diagonal(scale), Diagonal(gain)) * Vec(x), "D' of RMSNorm"),
    )
    held = "The scale r of every token is held: it is treated as a constant, at its value on this input."
    return Derivation("Normalisation with its scale held", steps, premises=(held,))
