"""A stand-in for the Hugging Face Hub on this machine: the routes that `snapshot_download` asks, for one repository."""

import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Thread
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Handler(BaseHTTPRequestHandler):
    """Answers for `someone/tiny`, whose revisions are `main` and its commit; `someone/gated` asks for consent."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        """Print nothing."""

    def answer(self, status, content=b"", **headers):
        """Send a response, of which a HEAD request gets the headers alone."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def do_GET(self):
        """Answer with a file, the files of a commit, or what a repository is."""
        path = self.path.partition("?")[0].strip("/")
        self.server.asked.append(f"{self.command} {path}")
        files = {file.name: file for file in self.server.folder.iterdir()}
        owner, name, *parts = unquote(path).removeprefix("api/models/").split("/")
        if f"{owner}/{name}" not in ("someone/tiny", "someone/gated"):
            self.answer(404, X_Error_Code="RepoNotFound")
        elif "resolve" in parts and name == "gated":
            self.answer(403, X_Error_Code="GatedRepo")
        elif "resolve" in parts:
            content = files[parts[-1]].read_bytes()
            if self.command == "GET" and self.server.broken:
                self.connection.shutdown(SHUT_RDWR)
                self.close_connection = True
                return
            self.answer(200, content, ETag=f'"{hashlib.sha256(content).hexdigest()}"', X_Repo_Commit=COMMIT)
        elif not {"main", COMMIT} & set(parts):
            self.answer(404, X_Error_Code="RevisionNotFound")
        elif "tree" in parts:
            entries = [
                {"type": "file", "path": name, "oid": COMMIT, "size": file.stat().st_size}
                for name, file in files.items()
            ]
            self.answer(200, json.dumps(entries).encode(), Content_Type="application/json")
        else:
            siblings = [{"rfilename": name} for name in files]
            repository = {"id": f"{owner}/{name}", "sha": COMMIT, "siblings": siblings, "tags": []}
            self.answer(200, json.dumps(repository).encode(), Content_Type="application/json")

    do_HEAD = do_GET


@contextmanager
def serve(folder):
    """Serve a checkpoint directory as `someone/tiny`, and yield the server.

    Its `asked` lists the requests; while it is `broken`, it ends a connection instead of sending a file.

    Args:
        folder: the directory.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.folder, server.asked, server.broken = folder, [], False
    server.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
