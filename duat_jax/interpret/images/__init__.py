"""Split a number that a network computes on an image into maps over the image."""
