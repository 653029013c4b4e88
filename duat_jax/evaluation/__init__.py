"""Evaluation of attributions: circuits, deletion and insertion of tokens, statistics."""
