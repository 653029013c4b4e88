"""Pruning by the closed form's terms, against published scores."""
