"""Matrix expressions: parameters, sums and products that keep their order, σ, diag, vec, ⊗, ⊙, indexed sums."""
