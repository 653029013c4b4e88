"""List what is cut on the pages of the built site, in Chromium: code and tables on a desktop, anything on a phone.

Run `make widths`, which builds the site first (it needs Chromium).
"""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

SITE = Path(__file__).parent.parent / "site"
SCRIPT = Path(__file__).parent / "widths.mjs"
BROWSERS = "chromium", "chromium-browser", "google-chrome"
DESKTOP, PHONE = 1280, 390
"""Widths of the window, in pixels."""


class Handler(SimpleHTTPRequestHandler):
    """Serve the site, with the page that looks at the others."""

    def do_GET(self) -> None:
        """Answer one request; every page would make an index for the search."""
        if self.path.endswith("/search_index.json"):
            self.send_error(404)
            return
        if self.path != "/widths":
            super().do_GET()
            return
        pages = sorted(f"/{path.parent.relative_to(SITE)}/" for path in SITE.rglob("index.html"))
        given = json.dumps({"pages": pages, "widths": [DESKTOP, PHONE]})
        page = f"<pre></pre><script type=module>const given = {given};\n{SCRIPT.read_text(encoding='utf-8')}</script>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing.

        Args:
            format: of the line.
            arguments: what is put into it.
        """


def found_widths() -> list[dict[str, Any]]:
    """Return the elements that are cut, with their page and the width of the window."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("there is no Chromium: install chromium")
    if not SITE.is_dir():
        sys.exit("there is no site: make docs")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/widths"
    with TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--window-size=1400,1000",
        ]
        command = [browser, *options, "--virtual-time-budget=10000000", "--dump-dom", url]
        dumped = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    server.shutdown()
    written = re.search(r"<pre>(.*?)</pre>", dumped, re.DOTALL)
    if written is None or not written[1]:
        sys.exit("Chromium didn't finish: run it again")
    return json.loads(unescape(written[1]))


if __name__ == "__main__":
    found = found_widths()
    for element in found:
        print("{page} at {width} pixels: {element} of {whole} pixels shows {shown}: {text}".format(**element))
    sys.exit(1 if found else 0)
