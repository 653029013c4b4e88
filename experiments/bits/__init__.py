"""A budget of bits: the matrices of a rounded model that are kept finer, chosen by several scores."""
