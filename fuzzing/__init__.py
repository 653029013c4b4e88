"""Random input for what reads files and arguments: only the package's own errors may come out."""
