"""Claim: the page of 64 tokens by 30 layers is there within 1 s, of 512 within 3 s, and moves at 60 frames a second.

Run `make install && python -m benchmarks.page` on two quiet cores, with Chromium.

The pages are graphs with random numbers in the shape of SmolLM2-135M. *Visible* is from opening the file to the first
frame with the picture, *frames* are those of a second in which the pointer moves over its squares.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duat_jax.forms.completeness import Completeness
from duat_jax.interpret.explain.result import Explanation
from duat_jax.interpret.graph.result import Graph
from duat_jax.interpret.moves import SOURCES, Moves
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Key, Marked
from experiments.environment import environment
from experiments.markdown import Fields

if TYPE_CHECKING:
    from playwright.sync_api import Page

LAYERS, NEURONS, HEADS, REPEATS = 30, 1536, 9, 5
RESULTS = Path(__file__).parent / "results" / "page.json"
FRAMES = """() => new Promise((done) => {
  const [times, cells] = [[], [...document.querySelectorAll('.square')]];
  const step = (time) => {
    times.push(time);
    cells[(times.length * 7) % cells.length].dispatchEvent(new PointerEvent('pointerenter', { screenX: times.length }));
    if (time - times[0] < 1000) requestAnimationFrame(step); else done(times.slice(1).map((t, i) => t - times[i]));
  };
  requestAnimationFrame(step);
})"""
VISIBLE = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"""


def random_graph(tokens: int) -> Graph:
    """Return a graph with random numbers.

    Args:
        tokens: the length of its text.
    """
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    keys = [Key((f"layers.{layer}",), "mlp", 0) for layer in range(LAYERS)]
    one = np.float32(1.0)
    completeness = Completeness(one, one, np.float32(0), np.float32(1e-5), one)
    explanation = Explanation(
        family="llama",
        tokens=tuple(f" word{i}" for i in range(tokens)),
        target=TargetDescription("a logit", "Logit"),
        predictions=(),
        embedding=draw(tokens),
        coefficients=Marked({key: draw(tokens, NEURONS) for key in keys}),
        activations=Marked({key: draw(tokens, NEURONS) for key in keys}),
        biases=Marked({}),
        collapse=draw(tokens),
        collapse_bias=0.0,
        completeness=completeness,
        collapse_completeness=completeness,
    )
    sources = min(SOURCES, tokens)
    edges = np.repeat(np.arange(tokens), sources)
    moves = {
        Key(key.scope, "attention.mixed", 0): Moves(
            random.integers(0, tokens, len(edges)), edges, draw(len(edges), HEADS), draw(tokens, HEADS)
        )
        for key in keys
    }
    streams = [draw(LAYERS + 1, tokens) for _ in range(4)]
    return Graph(explanation, (), *streams, Marked(moves), 0.0, (), (), (), completeness)


def measured(page: "Page", file: Path) -> dict[str, float]:
    """Return the seconds until a page is there, the median and the slowest frame, and the seconds that a cell takes.

    Args:
        page: an empty page of a browser.
        file: the file.
    """
    page.goto(file.as_uri())
    page.wait_for_selector(".square")
    visible = page.evaluate(VISIBLE) / 1000
    frames = page.evaluate(FRAMES)
    began = time.perf_counter()
    page.locator(".square").nth(50).click()
    page.wait_for_selector(".cell h2")
    opened = time.perf_counter() - began
    return {"visible": visible, "frame": float(np.median(frames)), "slowest": max(frames), "cell": opened}


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    found: dict[str, str] = {}
    for tokens, page in results["pages"].items():
        found[f"{tokens} size"] = f"{page['bytes'] / 1e6:.1f} MB"
        found[f"{tokens} visible"], found[f"{tokens} cell"] = (
            f"{np.median(page[n]):.1f} s" for n in ("visible", "cell")
        )
        found[f"{tokens} frame"] = f"{1000 / np.median(page['frame']):.0f}"
    return found


def main() -> None:
    """Measure pages of several lengths, and keep the results."""
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {}
    with sync_playwright() as programs, tempfile.TemporaryDirectory() as folder:
        browser = programs.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for tokens in (64, 512, 2000):
            file = Path(folder) / f"{tokens}.html"
            began = time.perf_counter()
            random_graph(tokens).html(file)
            written = time.perf_counter() - began
            runs = []
            for _ in range(REPEATS):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                runs.append(measured(page, file))
                page.close()
            found[str(tokens)] = {
                "bytes": file.stat().st_size,
                "seconds to write": written,
                **{name: sorted(run[name] for run in runs) for name in runs[0]},
            }
            medians = {name: round(float(np.median([run[name] for run in runs])), 3) for name in runs[0]}
            print(f"{tokens} tokens: {file.stat().st_size / 1e6:.2f} MB, {medians}")
        browser.close()
    RESULTS.write_text(json.dumps({"environment": environment(), "pages": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
