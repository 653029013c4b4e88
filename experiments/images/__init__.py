"""Small networks that read handwritten digits."""
