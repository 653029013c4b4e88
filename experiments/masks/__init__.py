"""The study of secants over masks."""
