"""Linear maps without their matrices, and their algebra."""
