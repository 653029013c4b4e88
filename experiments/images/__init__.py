"""Closed forms of small networks that classify handwritten digits."""
