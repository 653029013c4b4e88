"""A live page: questions to a model, answered by a local server or in a notebook."""
