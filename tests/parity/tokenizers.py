"""Token ids of transformers' `AutoTokenizer` for every layout and setting of `tests/tokenizer_layouts.py`."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizer_layouts import KEPT, LAYOUTS, PAIR, TEXTS, checkpoints, packed
from transformers import AutoTokenizer


def ids(folder: Path) -> list[list[int]] | None:
    """Return the token ids of each text and of the pair, or `None` if the reference has no such tokenizer.

    Args:
        folder: a checkpoint's directory.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return [tokenizer(text)["input_ids"] for text in TEXTS] + [tokenizer(*PAIR)["input_ids"]]
    except (TypeError, ValueError, AttributeError, OSError):
        return None


def all_ids(layout: str) -> Iterator[tuple[str, list[list[int]] | None]]:
    """Yield the token ids of each setting of a layout by its name.

    Args:
        layout: the layout's name.
    """
    with TemporaryDirectory() as folder:
        for name, path in checkpoints(Path(folder), LAYOUTS[layout]):
            yield name, ids(path)


def write_ids() -> None:
    """Write the token ids of every layout, a line each."""
    kept = (json.dumps({name: packed(dict(all_ids(name)))}, ensure_ascii=False)[1:-1] for name in LAYOUTS)
    KEPT.write_text("{\n" + ",\n".join(kept) + "\n}\n")
