"""A local server: one page, and the answers of a model to its questions."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from duat_jax.display.page.document import live_document
from duat_jax.live.about import About
from duat_jax.live.answers import LiveAnswer, Loaded, answer_in_words
from duat_jax.live.work import Work

LARGEST, AT_ONCE, WAITING = 64 * 1024, 4, 16
"""The largest size of a question in bytes, and how many are answered and may wait at a time."""

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Of every answer: it is kept nowhere, stands in no other page, and its address, which has the key, is told to none."""


def application(loaded: Loaded, about: About, key: str, hosts: frozenset[str]) -> Starlette:
    """Return the server's application."""
    # Its page is `/?key=KEY`, and questions are posted to `/ask`. No part of a request names a file.
    page = live_document(about)
    pool = ThreadPoolExecutor(AT_ONCE)
    at_work: dict[Work, Callable[[LiveAnswer], None]] = {}

    def require(request: Request, given: str) -> None:
        if not secrets.compare_digest(key.encode(), given.encode(errors="replace")):
            raise HTTPException(403, "the key is missing or wrong: open the address that duat serve printed")
        if hosts and _host(request.headers.get("host", "")) not in hosts:
            raise HTTPException(403, f"this server is reached as {' or '.join(sorted(hosts))} alone")

    async def show(request: Request) -> Response:
        require(request, request.query_params.get("key", ""))
        return HTMLResponse(page, headers=HEADERS)

    async def ask(request: Request) -> Response:
        require(request, request.headers.get("duat-key", ""))
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > LARGEST:
                    raise HTTPException(413, f"a question has at most {LARGEST} bytes")
        except ClientDisconnect:
            return Response(status_code=400)
        return StreamingResponse(lines(bytes(body)), media_type="application/x-ndjson", headers=HEADERS)

    async def lines(body: bytes) -> AsyncIterator[bytes]:
        """Yield progress, and at last an answer, each as a line; the work is stopped when nobody listens any more."""
        loop, said = asyncio.get_running_loop(), asyncio.Queue[LiveAnswer]()

        def tell(found: LiveAnswer) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(said.put_nowait, found)

        work = Work(lambda doing: tell(LiveAnswer(progress=doing)))
        if len(at_work) >= AT_ONCE + WAITING:
            yield _line(LiveAnswer(problem="too many questions are being answered: ask again in a moment"))
            return
        at_work[work] = tell
        future = pool.submit(answer_in_words, loaded, body, work)
        future.add_done_callback(lambda done: None if done.cancelled() else tell(done.result()))
        try:
            while True:
                found = await said.get()
                yield _line(found)
                if found.progress is None:
                    return
        finally:
            work.stop()
            future.cancel()
            del at_work[work]

    def end() -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        for work, tell in list(at_work.items()):
            work.stop()
            tell(LiveAnswer(problem="the server was ended"))

    routes = [Route("/", show), Route("/ask", ask, methods=["POST"])]
    made = Starlette(routes=routes, exception_handlers={HTTPException: _refused})
    made.state.end = end
    return made


class Server(uvicorn.Server):
    """A server that ends its work when it is told to end."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End the work, and then the server."""
        application: Any = self.config.app
        application.state.end()
        super().handle_exit(sig, frame)


def _host(header: str) -> str | None:
    """Return the name in a `Host` header, or `None` if it is malformed: Starlette would take the server's own then."""
    name = re.fullmatch(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", header.lower())
    return name and (name[1] or name[2])


def _line(found: LiveAnswer) -> bytes:
    return msgspec.json.encode(found) + b"\n"


async def _refused(request: Request, error: Any) -> Response:
    return PlainTextResponse(f"duat: {error.detail}\n", error.status_code, headers=HEADERS)
