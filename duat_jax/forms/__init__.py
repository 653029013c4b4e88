"""Forms that are exact at one input: residual term, decomposition, closed form, affine form."""
