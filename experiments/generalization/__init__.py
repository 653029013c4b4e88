"""The study of functions that a prompt gives: chosen from many, or shown by demonstrations."""
