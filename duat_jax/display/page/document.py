"""The file of a page: one document of HTML with its style, its module and its numbers; it asks nothing of a network."""

import base64
import gzip
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import msgspec

from duat_jax.display.page.data import FORMAT
from duat_jax.errors import InvalidInput

HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{hash}'; img-src data: blob:{more}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

PAGE = """\
<main id="page"><p>The numbers are being read. If this sentence stays, the browser is older than 2023, or runs no
scripts.</p></main>
<script type="application/json" id="numbers">"{numbers}"</script>
<script type="module">{module}</script>"""


def html_of(title: str, body: str, style: str, more: str = "") -> str:
    """Return a document of HTML that asks nothing of a network but what is added to its policy."""
    return HTML.format(title=escape(title), body=body, style=style, hash=digest(style), more=more)


def document(views: Sequence[dict[str, Any]], provenance: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a page as HTML, with how it was made: what is given, the version and the date."""
    title = f"{views[0]['headline'] or views[0]['target']} – duat" if views else "duat"
    made = {**provenance, "version": f"duat-jax {version('duat-jax')}", "date": _date()}
    return _filled(title, {"views": list(views), "provenance": list(made.items()), "format": FORMAT}, "")


def _date() -> str:
    """Return today's date, or that which builds that are to be repeated set."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", str(time.time()))
    try:
        return datetime.fromtimestamp(float(seconds), UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise InvalidInput(
            f"SOURCE_DATE_EPOCH, the date of a page, is {seconds!r}: set it to the seconds since 1970, or unset it"
        ) from None


def live_document(about: msgspec.Struct) -> str:
    """Return a page whose questions a server answers."""
    return _filled("duat", about, "; connect-src 'self'")


def _filled(title: str, content: Any, policy: str) -> str:
    """Return a page with its content as JSON, compressed by gzip, in base64, of which HTML can read no character."""
    module = module_of_page()
    # The same numbers give the same file: no time of writing.
    compressed = gzip.compress(msgspec.json.encode(content), mtime=0)
    body = PAGE.format(module=module, numbers=base64.b64encode(compressed).decode())
    return html_of(title, body, style_of_page(), f"; script-src '{digest(module)}'{policy}")


MODULES = "elements", "picture", "score", "graph", "table", "page", "live", "start"
"""The files of the module, each before those that import it."""


NOT_RUN = "import ", "// @ts-check", "/** @typedef {{", " * @property {"
"""The beginnings of lines that one module doesn't need."""


def module_of_page() -> str:
    """Return all files of the page's module as one, without their imports of each other and the lines on types."""
    texts = [(files(__package__) / f"{name}.js").read_text(encoding="utf-8") for name in MODULES]
    lines = [line for text in texts for line in text.splitlines() if not line.startswith(NOT_RUN)]
    return "\n".join(lines) + "\n"


def style_of_page() -> str:
    """Return the style of a page."""
    return (files(__package__) / "page.css").read_text(encoding="utf-8")


FRAME = """\
<iframe sandbox="allow-scripts allow-downloads" srcdoc="{page}" title="{title}" style="{style}">{hint}</iframe>
<details><summary>The same as a table</summary>{table}</details>"""
STYLE = "width:100%;height:42rem;border:0;resize:vertical"
HINT = "JupyterLab shows the page of a notebook that you trust: choose Trust Notebook in its command palette."
"""Text inside a frame, which is seen only where the frame is taken away."""


def frame(page: str, table: str) -> str:
    """Return a page in a frame, for a notebook; where frames aren't shown, the table is.

    Example:
        >>> frame("<p>a</p>", "<table></table>").count("<p>")
        0
    """
    return FRAME.format(page=escape(page), table=table, title="a result, interactive", style=STYLE, hint=HINT)


def digest(text: str) -> str:
    """Return the hash of a script or a style, as the policy of a page names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
