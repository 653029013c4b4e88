"""Pruning by contributions of the closed form's terms, compared with published scores."""
