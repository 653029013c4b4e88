"""The three pages of results that the site shows: run `make .venv/.smollm2 && python -m experiments.live_pages`."""

from collections.abc import Iterator
from pathlib import Path

import duat_jax as duat
from duat_jax.display.result import Paged
from experiments import smollm2

FOLDER = Path(__file__).parent.parent / "docs" / "live"
CODE = "def get(self, key, default=None): return self.data.get(key,"


def results() -> Iterator[tuple[str, Paged]]:
    """Yield the result of each page, with the page's name."""
    model, tokenizer = duat.load(tokenizer=True)
    yield "explanation", duat.graph(model, CODE, " default", tokenizer=tokenizer)
    other, words = CODE.replace("default", "missing"), (" default", " missing")
    yield "contrast", duat.contrast(model, CODE, other, words[0], contrast=words[1], tokenizer=tokenizer)
    model, tokenizer = duat.load(smollm2.path(), tokenizer=True)
    yield "capital", duat.graph(model, "The capital of France is", " Paris", tokenizer=tokenizer)


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, result in results():
        result.html(FOLDER / f"{name}.html")
        print(f"{name}: {(FOLDER / f'{name}.html').stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
