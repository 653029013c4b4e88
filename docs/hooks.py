"""Hooks of ProperDocs, which builds the site: pages from outside of `docs`, links as on GitHub, formulas, a check."""

import posixpath
import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from links import faults
from properdocs.config.defaults import ProperDocsConfig
from properdocs.exceptions import PluginError
from properdocs.plugins import event_priority
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page
from properdocs.utils import get_relative_url

from typesetting.mathematics import typeset

ROOT = Path(__file__).parent.parent
KATEX = ROOT / "typesetting" / "node_modules" / "katex" / "dist"
PAGES = ("README.md", "CONTRIBUTING.md", "notebooks/*.ipynb")
MATHEMATICS = ("katex.min.css", "katex.min.js", "contrib/auto-render.min.js", "fonts/*.woff2")
MARKDOWN_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
HTML_LINK = re.compile(r'(?<=href=")[^"#]+(?=[#"])')
PICTURE_ELSEWHERE = re.compile(r'<img alt="([^"]*)" src="https://[^"]*" ?/?>')
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
TABLES = "tables"
"""The name of folders with pages that are neither in the navigation nor found by a search."""
MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.DOTALL)


def on_config(config: ProperDocsConfig) -> ProperDocsConfig:
    """Show the repository's address, as `pyproject.toml` has it.

    Args:
        config: the site's configuration.
    """
    config.repo_url = ADDRESS
    config.repo_name = urlsplit(ADDRESS).path.strip("/")
    return config


@event_priority(100)  # before notebooks are looked for
def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add the pages that are kept elsewhere in the repository, and the files that set formulas.

    Args:
        files: the files of `docs/`.
        config: the site's configuration.
    """
    if not KATEX.is_dir():
        raise PluginError("KaTeX, which sets the formulas, is missing: npm ci --prefix typesetting")
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File(str(path.relative_to(ROOT)), str(ROOT), config.site_dir, config.use_directory_urls))
    for pattern in MATHEMATICS:
        for path in sorted(KATEX.glob(pattern)):
            name = path.relative_to(KATEX).as_posix()
            uri = f"assets/katex/{name}"
            files.append(File(name, str(KATEX), config.site_dir, config.use_directory_urls, dest_uri=uri))
    return files


def _linked(link: str, page: Page, files: Files) -> File | None:
    """Return the file of the site that a link in the repository leads to."""
    folder = posixpath.dirname(Path(page.file.abs_src_path).relative_to(ROOT).as_posix())
    target = posixpath.normpath(posixpath.join(folder, link))
    return files.get_file_from_path(target.removeprefix("docs/"))


def on_page_markdown(markdown: str, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Lead links out of `docs/` to where the site has the file; what it doesn't have is named by its path.

    A search finds pages that explain a word before those of the API that have it in a signature, and no page of tables.

    Args:
        markdown: the page.
        page: where it is.
        config: the site's configuration.
        files: the site's files.
    """
    if page.file.src_uri.startswith(("api/", "CONTRIBUTING")):
        page.meta["search"] = {"boost": 0.2}
    if posixpath.basename(posixpath.dirname(page.file.src_uri)) == TABLES:
        page.meta["search"] = {"exclude": True}

    def moved(found: re.Match) -> str:
        text, link = found.groups()
        path, mark, heading = link.partition("#")
        if not path or urlsplit(link).scheme:
            return found[0]
        file = _linked(path, page, files)
        if file:
            relative = posixpath.relpath(file.src_uri, posixpath.dirname(page.file.src_uri) or ".")
            return f"[{text}]({relative}{mark}{heading})"
        source = Path(page.file.abs_src_path).parent / path
        if source.exists():
            name = source.resolve().relative_to(ROOT).as_posix()
            return f"`{name}`" if text == name else f"{text} (`{name}`)"
        return found[0]  # MkDocs complains

    return markdown if page.file.src_uri.endswith(".ipynb") else MARKDOWN_LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Lead a notebook's links to the site's pages, and leave its formulas to the site; pictures of other hosts go.

    Args:
        html: the page.
        page: where it is.
        config: the site's configuration.
        files: the site's files.
    """
    if not page.file.src_uri.endswith(".ipynb"):
        return typeset(html)

    def moved(found: re.Match) -> str:
        file = _linked(found[0].replace(f"{ADDRESS}/blob/main", ".."), page, files)
        return get_relative_url(file.url, page.url) if file else found[0]

    return PICTURE_ELSEWHERE.sub(r"\1", HTML_LINK.sub(moved, MATHJAX.sub("", html)))


def on_post_page(output: str, page: Page, config: ProperDocsConfig) -> str:
    """Let the link to the repository be a link: the theme would ask its host for the number of stars.

    Args:
        output: the finished page.
        page: where it is.
        config: the site's configuration.
    """
    return output.replace(' data-md-component="source"', "")


def on_post_build(config: ProperDocsConfig) -> None:
    """Follow every link of the finished site, those in notebooks and in the API too.

    Args:
        config: the site's configuration.
    """
    found = list(faults(Path(config.site_dir)))
    if found:
        raise PluginError("the site has faults:\n" + "\n".join(found))
