"""The matrix-vector method: what acts on a matrix as a matrix on the vector of its entries."""
