"""What is exact at one input: the residual term, the decomposition, the closed form, the affine form."""
