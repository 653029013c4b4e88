"""The matrix-vector method: linear maps of a matrix as matrices on the vector of its entries."""
