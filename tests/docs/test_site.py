"""The documentation site: each page is in its navigation, each public name has its place, each link leads somewhere."""

import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

import duat_jax
import symbolic

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "properdocs.yml").read_text(encoding="utf-8")
NAVIGATION = yaml.safe_load(SETTINGS[SETTINGS.index("\nnav:") :])["nav"]
TYPES = ROOT / "docs" / "api" / "types.md"
"""The page of types in signatures, which aren't public names."""
API = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md")) if path != TYPES]
DIRECTIVES = re.findall(r"^::: (\S+)$", "".join(API), re.MULTILINE)
ELSEWHERE = [
    *sorted((ROOT / "docs" / "api").glob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
"""Pages whose links no other test follows."""


def pages(entry):
    """Return the pages below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]


def prose(path):
    """Return what a page says in Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def anchors(path):
    """Return a page's headings as links name them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    if path.suffix == ".ipynb":
        return {title.replace(" ", "-") for title in titles}
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


TABLES = sorted((ROOT / "docs").glob("*/tables/*.md"))
"""Pages of tables, which aren't in the navigation."""


def linked(path):
    """Return the files that a page links to."""
    links = re.findall(r"\]\(([^)\s#]+)", prose(path))
    return [(path.parent / link).resolve() for link in links if not link.startswith("http")]


def test_every_page_and_notebook_is_in_the_navigation_once():
    docs = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md") if path not in TABLES]
    notebooks = [path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").glob("*.ipynb")]
    shown = [page for page in pages(NAVIGATION) if not page.startswith("https://")]
    assert sorted(shown) == sorted([*docs, *notebooks, "README.md", "CONTRIBUTING.md"])


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_of_tables_is_linked_from_a_page_of_the_navigation_and_links_back(path):
    in_navigation = [ROOT / "docs" / page for page in pages(NAVIGATION) if (ROOT / "docs" / page).suffix == ".md"]
    linking = [page for page in in_navigation if page.exists() and path in linked(page)]
    assert linking, "a page of the navigation links it"
    assert set(linking) & set(linked(path)), "it links a page that links it"


def test_folders_of_tables_are_outside_of_the_navigation():
    folders = yaml.safe_load(SETTINGS[SETTINGS.index("\nnot_in_nav:") : SETTINGS.index("\nnav:")])["not_in_nav"].split()
    assert {f"/{path.parent.relative_to(ROOT / 'docs').as_posix()}/" for path in TABLES} <= set(folders)


NAMESPACES = [getattr(house, name) for house in (duat_jax, symbolic) for name in house.NAMESPACES]


@pytest.mark.parametrize("module", [duat_jax, symbolic, *NAMESPACES], ids=lambda module: module.__name__)
def test_every_public_name_has_its_place_in_the_api(module):
    named = [name.removeprefix(f"{module.__name__}.") for name in DIRECTIVES]
    public = [name for name in dir(module) if not name.startswith("_")]
    # Modules are names too.
    public = [name for name in public if not isinstance(getattr(module, name), type(module))]
    assert sorted(name for name in named if "." not in name) == sorted(public)


def test_nothing_else_is_in_the_api():
    assert {name.rpartition(".")[0] for name in DIRECTIVES} == {
        "duat_jax",
        "symbolic",
        *(n.__name__ for n in NAMESPACES),
    }


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)$", TYPES.read_text(encoding="utf-8"), re.MULTILINE))
def test_a_type_of_signatures_is_where_its_page_says_and_not_public(name):
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)
    assert name not in DIRECTIVES


@pytest.mark.parametrize("page", ELSEWHERE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`]*`", "", prose(page), flags=re.DOTALL)):
        path, _, heading = link.partition("#")
        if not link.startswith("http"):
            file = page.parent / path if path else page
            assert file.exists(), link
            assert not heading or heading in anchors(file), link


@pytest.fixture(scope="module")
def faults():
    specification = importlib.util.spec_from_file_location("links", ROOT / "docs" / "links.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.faults


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other/#there">x</a> <img src="picture.png"> <a href="https://example.org">x</a>', None),
        ('<h1 id="a b">x</h1> <a href="#a%20b">x</a> <img src="data:image/png;base64,AAAA">', None),
        ('<a href="missing/">x</a>', "index.html links to missing/, which isn't there"),
        ('<img src="missing.png">', "index.html links to missing.png, which isn't there"),
        ('<a href="other/#away">x</a>', "index.html links to other/#away, a place that the page doesn't have"),
        (
            '<span title="duat_jax.models.Missing">Missing</span> <span title="jax.Array">Array</span>',
            "index.html has duat_jax.models.Missing in a signature, which no page documents: name it in"
            " docs/api/types.md",
        ),
        ('<a href="#away">x</a>', "index.html links to #away, a place that the page doesn't have"),
        (
            '<script src="https://example.org/x.js"></script>',
            "index.html loads https://example.org/x.js from another host",
        ),
    ],
)
def test_a_finished_site_is_followed_link_by_link(tmp_path, faults, body, fault):
    (tmp_path / "other").mkdir()
    (tmp_path / "index.html").write_text(body)
    (tmp_path / "other" / "index.html").write_text('<h1 id="there">x</h1> <a href="../">x</a>')
    (tmp_path / "picture.png").write_bytes(b"")
    assert list(faults(tmp_path)) == ([fault] if fault else [])
