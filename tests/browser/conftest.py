"""A browser for the tests of pages; without playwright, nothing here is collected."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

collect_ignore_glob = [] if find_spec("playwright") else ["*.py"]
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


SCREENSHOTS = Path(__file__).parent / "screenshots"
"""Where pictures of pages are kept, to be looked at."""


def keep_screenshot(page, name):
    """Keep a picture of a whole page."""
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as programs:
        browser = programs.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Return a function that writes a page, opens it with all that is folded, and expects no request and no message."""
    said, contexts = [], []

    def open_page(html, *, viewport=WIDE, address="", folded=False, **options):
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        contexts.append(chromium.new_context(viewport=viewport, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or said.append(request.url))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.goto(f"{file.as_uri()}{address}")
        page.wait_for_selector("h1, main p:only-child:not(:has-text('being read'))")
        if not folded:
            page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
