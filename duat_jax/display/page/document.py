"""The file of a page: one document of HTML with its style, its module and its numbers; it asks nothing of a network."""

import base64
import gzip
import hashlib
from html import escape
from importlib.resources import files

import msgspec

from duat_jax.display.page.view import View

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {policy}; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"><p>The numbers are being read. If this sentence stays, the browser is older than 2023, or runs no
scripts.</p></main>
<script type="application/json" id="numbers">"{numbers}"</script>
<script type="module">{module}</script>
</body>
</html>
"""


def document(view: View) -> str:
    """Return a page as HTML.

    Its numbers are JSON, compressed by gzip, in base64: there is no character of a text in it that HTML could read.

    Args:
        view: what the page shows.
    """
    style, module = (files(__package__) / "page.css").read_text(encoding="utf-8"), module_of_page()
    # The same numbers give the same file: no time of writing.
    compressed = gzip.compress(msgspec.json.encode(view), mtime=0)
    policy = "; ".join(f"{kind}-src '{_digest(text)}'" for kind, text in (("script", module), ("style", style)))
    return PAGE.format(
        policy=policy,
        title=escape(f"{view.target} – duat"),
        style=style,
        module=module,
        numbers=base64.b64encode(compressed).decode(),
    )


MODULES = "elements.js", "picture.js", "graph.js", "page.js"
"""The files of the module, each before those that import it."""


def module_of_page() -> str:
    """Return all files of the page's module as one, without their imports of each other."""
    texts = [(files(__package__) / name).read_text(encoding="utf-8") for name in MODULES]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith(("import ", "// @ts-check"))]
    return "\n".join(lines) + "\n"


FRAME = """<iframe sandbox="allow-scripts allow-downloads" srcdoc="{page}" title="{title}" style="{style}"></iframe>
<details><summary>The same as a table</summary>{table}</details>"""
STYLE = "width:100%;height:42rem;border:0;resize:vertical"


def frame(page: str, table: str) -> str:
    """Return a page in a frame, for a notebook; where frames aren't shown, the table is.

    Args:
        page: the page.
        table: the same result as a table, as HTML.

    Example:
        >>> frame("<p>a</p>", "<table></table>").count("<p>")
        0
    """
    return FRAME.format(page=escape(page), table=table, title="a result, interactive", style=STYLE)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
