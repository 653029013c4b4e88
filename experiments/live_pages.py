"""The three pages of results that the site shows, a picture of one, and the README's picture.

Run `make install && python -m experiments.live_pages`, with Chromium.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt

import duat_jax as duat
from duat_jax.display.result import Displayed
from experiments import smollm2

FOLDER = Path(__file__).parent.parent / "docs" / "live"
CODE = "def get(self, key, default=None): return self.data.get(key,"


def results() -> Iterator[tuple[str, Displayed]]:
    """Yield the result of each page, with the page's name."""
    model = duat.load()
    tokenizer = model.tokenizer
    yield "explanation", duat.graph(model, CODE, " default", tokenizer=tokenizer)
    other, words = CODE.replace("default", "missing"), (" default", " missing")
    yield "contrast", duat.contrast(model, CODE, other, words[0], contrast=words[1], tokenizer=tokenizer)
    model = duat.load(smollm2.path())
    tokenizer = model.tokenizer
    yield "capital", duat.graph(model, "The capital of France is", " Paris", tokenizer=tokenizer)


def draw() -> None:
    """Draw the page of the contrast with a cell open, as a browser shows it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as programs:
        browser = programs.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 700}, color_scheme="light")
        page.goto(f"{(FOLDER / 'contrast.html').as_uri()}#row=6&token=19&columns=10")
        page.wait_for_selector(".cell h2")
        page.screenshot(path=FOLDER.parent / "page.png", full_page=True)
        browser.close()


def draw_difference() -> None:
    """Draw the difference between two texts, layer by layer, narrow enough for a phone."""
    model = duat.load(smollm2.path())
    france, italy = "The capital of France is", "The capital of Italy is"
    why = duat.contrast(model, france, italy, " Paris", contrast=" Rome")
    figure, axes = plt.subplots(figsize=(5, 6.4), layout="constrained")
    why.plot(axes)
    axes.set_yticks(axes.get_yticks()[::2], [label.get_text() for label in axes.get_yticklabels()[::2]])
    axes.set_title("")
    figure.suptitle(
        f"A: {france} → Paris\nB: {italy} → Rome\n"
        f"logit of Paris minus that of Rome, A − B: {why.difference:+.1f};\n"
        "in each row: where this difference is after the layer",
        fontsize=10,
    )
    figure.savefig(FOLDER.parent / "difference.png", dpi=150)


def main() -> None:
    """Write the pages, and draw the pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, result in results():
        result.html(FOLDER / f"{name}.html", examples=None if name == "capital" else duat.survey.examples())
        print(f"{name}: {(FOLDER / f'{name}.html').stat().st_size / 1e3:.0f} kB")
    draw()
    draw_difference()


if __name__ == "__main__":
    main()
