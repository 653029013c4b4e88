"""Random input: of readers only the package's own errors may come out, and no verdict may be a wrong hold."""
