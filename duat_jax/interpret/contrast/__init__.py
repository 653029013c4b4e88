"""Split the difference of a number between two inputs over tokens, heads and neurons."""
