"""What is explained: one number that a model computes, as a read-out of its residual stream."""
