"""The papers of Wang & Li, equation by equation: what is printed, whether it holds, and what would."""
