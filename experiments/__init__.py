"""Experiments on the papers' claims, one folder each; not part of the installed package."""
