"""A last look at a finished site: every link is followed, and no other host is asked."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

TYPE = re.compile(r"(?:duat_jax|symbolic)\.(?:\w+\.)*[A-Z]\w*[a-z]\w*")
"""A type of this project in a signature; without a page it has a title in place of a link."""
TYPES = Path("api/types/index.html")
"""The page of types, whose own signatures go no further."""


class _Page(HTMLParser):
    """What a page has and needs: its anchors, what it links to, what it loads, and types that no page documents."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.types: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value for key, value in attrs if value}
        self.anchors |= {given[key] for key in ("id", "name") if key in given}
        found = {given[key] for key in ("href", "src") if key in given}
        if tag == "span" and TYPE.fullmatch(given.get("title", "")):
            self.types.add(given["title"])
        if tag == "a":
            self.links |= found
        else:
            self.loads |= found


def faults(site: Path) -> Iterator[str]:
    """Name every link of a site that leads nowhere, types that no page documents, and loads from other hosts.

    Args:
        site: the folder with the finished pages.
    """
    site = site.resolve()
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":  # its links count from the host's root, wherever the site is put
            continue
        where = path.relative_to(site)
        for name in () if where == TYPES else sorted(page.types):
            yield f"{where} has {name} in a signature, which no page documents: name it in docs/api/types.md"
        for link in sorted(page.links | page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    yield f"{where} loads {link} from another host"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{where} links to {link}, which isn't there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where} links to {link}, a place that the page doesn't have"
