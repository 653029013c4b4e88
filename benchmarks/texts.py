"""Text for the measurements, the same everywhere: sources, a manual, and sentences that no model has read."""

import re
from pathlib import Path
from pydoc_data.topics import topics

from training.corpus import sources, split

PAGES = Path(__file__).parent.parent


def trained_sources() -> list[str]:
    """Return the files of Python's standard library on which the embedded model was trained."""
    return list(split(sources())[0].values())


def held_out_sources() -> list[str]:
    """Return the files of Python's standard library on which the embedded model was not trained."""
    return list(split(sources())[1].values())


def manual() -> list[str]:
    """Return the chapters of Python's reference manual, in English; a language model may have read them."""
    return [topics[name] for name in sorted(topics)]


def own_sentences() -> list[str]:
    """Return the sentences of this project's own pages, which are newer than the models that read them here."""
    found: dict[str, None] = {}
    for page in (PAGES / "README.md", *sorted((PAGES / "docs").glob("*.md"))):
        text = re.sub(r"```.*?```|^(?:\||#|!|<|---|\s{4}).*?$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*_]", r"\1", text)
        for paragraph in re.split(r"\n\s*\n|\n[-\d.]+ ", text):
            for sentence in re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())):
                if 8 <= len(sentence.split()) <= 30 and re.match(r"[A-Z].*\.$", sentence):
                    found[sentence] = None
    return list(found)
