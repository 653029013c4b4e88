"""Training of the language model that ships inside the package."""
