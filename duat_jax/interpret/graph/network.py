"""The streams of a graph as a networkx graph, which writes GraphML and other formats."""

from typing import TYPE_CHECKING, Any

from duat_jax.extras import requiring
from duat_jax.interpret.graph.streams import Streams

if TYPE_CHECKING:
    from networkx import MultiDiGraph

VALUE, AFTER = "value", "after the last stream"


def network_of(graph: Streams) -> "MultiDiGraph":
    """Return tokens, streams, layers' terms, biases and the value as nodes, and their parts as edges."""
    with requiring("graphs", "to_networkx"):
        import networkx
    network = networkx.MultiDiGraph()
    tokens = [str(token) for token in graph.explanation.tokens]  # GraphML has plain strings alone

    def add(kind: str, row: int, token: int, part: Any) -> None:
        """Add a node that goes into one token of one stream, and its edge."""
        name = f"{kind} {graph.rows[row]} {token}"
        network.add_node(name, kind=kind, layer=row - 1, token_index=token, token=tokens[token], value=float(part))
        network.add_edge(name, f"stream {graph.rows[row]} {token}", kind=kind, weight=float(part))

    for row, name in enumerate(graph.rows):
        for token, text in enumerate(tokens):
            here = {"layer": row - 1, "token_index": token, "token": text}
            network.add_node(f"stream {name} {token}", kind="stream", value=float(graph.streams[row, token]), **here)
    for row, name in enumerate(graph.rows):
        for token in range(len(tokens)):
            end = f"stream {name} {token}"
            if row:
                add("terms", row, token, graph.terms[row, token])
                kept = float(graph.kept[row, token])
                network.add_edge(f"stream {graph.rows[row - 1]} {token}", end, kind="kept", weight=kept)
            else:
                add("token", row, token, graph.kept[row, token])
            add("biases", row, token, graph.biases[row, token])
    for row, moves in enumerate(graph.moves_of_rows):
        if moves is None:
            continue
        before, after = f"stream {graph.rows[row - 1]}", f"stream {graph.rows[row]}"
        for source, token, heads in zip(moves.sources, moves.tokens, moves.parts, strict=True):
            for head, part in enumerate(heads):
                kind = {"kind": "head", "head": head, "weight": float(part)}
                network.add_edge(f"{before} {source}", f"{after} {token}", **kind)
        for token, heads in enumerate(moves.others):
            add("other moves", row, token, heads.sum())
    network.add_node(VALUE, kind="value", value=graph.value)
    for token in range(len(tokens)):
        last = float(graph.streams[-1, token])
        network.add_edge(f"stream {graph.rows[-1]} {token}", VALUE, kind="read", weight=last)
    network.add_node(AFTER, kind="after", value=graph.after)
    network.add_edge(AFTER, VALUE, kind="after", weight=graph.after)
    return network
