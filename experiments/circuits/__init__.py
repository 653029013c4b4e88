"""Circuits of SmolLM2 and the embedded model, by every attribution method."""
