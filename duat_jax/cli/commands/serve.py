"""The command `duat serve`."""

import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import Fields
from duat_jax.cli.options import Source
from duat_jax.errors import InvalidInput
from duat_jax.extras import requiring


@command("duat serve", 'duat serve --model DIR --text "The capital of France is" --port 0')
def serve(
    *,
    source: Annotated[Source, Fields("model", "no_special_tokens", "dtype", "survey")],
    text: Annotated[str | None, typer.Option(help="The text that stands in the page at first.")] = None,
    longest: Annotated[int, typer.Option(min=1, help="The largest number of tokens of a text.")] = 512,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; any that is free for 0.")] = 8765,
    host: Annotated[
        str, typer.Option(help="The address to listen at; with another one than this, the network can ask too.")
    ] = "127.0.0.1",
) -> None:
    """Serve a page that asks a model: type texts, open cells, switch parts off, and see what that does."""
    with requiring("serve", "duat serve"):
        import starlette  # noqa: F401
        import uvicorn
    listening = _listen(host, port)
    config = source.open("call duat.explain in Python for them")
    import secrets

    from duat_jax.live.about import about
    from duat_jax.live.answers import Loaded, answer_first
    from duat_jax.live.server import Server, application

    tokenizer, examples = source.tokenizer, source.examples()
    model = source.load()
    name = source.name if source.model is None else source.model.resolve().name
    key, (address, at, *_) = secrets.token_urlsafe(16), listening.getsockname()
    alone = ip_address(address).is_loopback
    loaded = Loaded(model, tokenizer, min(longest, config.positions), examples)
    described = about(config, name, longest, text)
    page = application(loaded, described, key, frozenset({host, address, "localhost"}) if alone else frozenset())
    typer.echo("duat: answering the page's first question, which compiles programs; the address follows", err=True)
    answer_first(loaded, described)
    shown = f"[{address}]" if ":" in address else address
    typer.echo(f"Open http://{shown}:{at}/?key={key}   (Ctrl+C ends it)")
    if not alone:
        typer.echo("duat: whoever knows this address can ask, and nothing on the way is encrypted", err=True)
    settings = uvicorn.Config(page, log_level="error", access_log=False, timeout_graceful_shutdown=1)
    with suppress(KeyboardInterrupt):
        Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise an error that says why none can."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        raise InvalidInput(
            f"can't listen at {host}, port {port}: {error.strerror}; give another --port, or 0 for any"
        ) from None
    return listening
