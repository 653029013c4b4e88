"""Texts of the measurements: sources of programs, and a manual."""

from pydoc_data.topics import topics

from training.corpus import sources, split, unseen


def trained_sources() -> list[str]:
    """Return the files of Python's standard library on which the embedded model was trained."""
    return list(split(sources())[0].values())


def held_out_sources() -> list[str]:
    """Return the files of Python's standard library of which less than a tenth was in the training data."""
    return list(unseen(*split(sources())).values())


def manual() -> list[str]:
    """Return the chapters of Python's reference manual; a language model may have been trained on them."""
    return [topics[name] for name in sorted(topics)]
