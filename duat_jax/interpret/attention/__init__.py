"""Split a head's attention score over pairs of sources."""
