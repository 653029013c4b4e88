"""The graph of the neurons as the JSON that viewers of attribution graphs read."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from duat_jax.errors import InvalidInput
from duat_jax.interpret.graph.streams import Streams
from duat_jax.models.vocabulary.token import quoted_label

SUM = "mlp reconstruction error"
"""The viewers' name of a node that stands for what no other node does: here all other neurons of a layer at a token."""


class _ViewerNode(NamedTuple):
    """A node, with its part in the target and in each neuron's pre-activation, `[1 + neurons]`."""

    node: dict[str, Any]
    parts: Float[np.ndarray, "targets"]


def viewer_of(graph: Streams, name: str, biases: bool = False) -> dict[str, Any]:
    """Return the graph of the neurons as plain data."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise InvalidInput(f"{name!r} can't name a graph in a viewer: take letters, digits, '_', '.' and '-'")
    explanation = graph.explanation
    neurons = list(_neurons(graph))
    sources = [*neurons, *_others(graph), *_tokens(graph), *(_biases(graph) if biases else [])]
    target = _target(graph)
    ends = [target, *(source.node for source in neurons)]
    sizes = np.array([abs(source.parts[0]) for source in sources])
    shares = np.empty(len(sizes))
    order = np.argsort(-sizes, kind="stable")
    shares[order] = np.cumsum(sizes[order]) / (sizes.sum() or 1)
    for source, share in zip(sources, shares, strict=True):
        source.node["influence"] = float(share)
    return {
        "metadata": {
            "slug": name,
            "scan": re.sub(r"[^A-Za-z0-9_.-]", "-", explanation.family),
            "transcoder_list": [],
            "prompt_tokens": list(explanation.tokens),
            "prompt": "".join(explanation.tokens),
            "schema_version": 1,
            "info": {
                "description": f"{explanation.target} = {graph.value:.7g}: direct contributions, exact; nodes of all"
                " other neurons of a layer at a token stand in the place of errors",
                "generator": {"name": "duat-jax", "version": version("duat-jax")},
            },
        },
        "qParams": {
            "pinnedIds": [target["node_id"], *(source.node["node_id"] for source in neurons)],
            "supernodes": [
                [group.name, *(neurons[member].node["node_id"] for member in group.members)]
                for group in graph.groups
                if len(group.members) > 1
            ],
            "linkType": "both",
            "clickedId": "",
            "sg_pos": "",
        },
        "nodes": [*(source.node for source in sources), target],
        "links": [
            {"source": source.node["node_id"], "target": end["node_id"], "weight": float(part)}
            for source in sources
            for end, part in zip(ends, source.parts, strict=True)
            if part
        ],
    }


def _node(identity: str, kind: str, layer: int | str, token: int, feature: int | None, js: str, label: str) -> dict:
    return {
        "node_id": identity,
        "feature": feature,
        "layer": str(layer),
        "ctx_idx": token,
        "feature_type": kind,
        "jsNodeId": js,
        "clerp": label,
    }


def _target(graph: Streams) -> dict[str, Any]:
    explanation = graph.explanation
    described, layers = explanation.target, len(graph.streams) - 1
    output = 0 if described.output is None else described.output.id
    text = described.headline if described.output is None else described.output.text
    text += "" if described.contrast is None else f" - {described.contrast.text}"
    probability = next((p.probability for p in explanation.predictions if p.token == text), 0.0)
    token = len(explanation.tokens) - 1 if described.position is None else described.position
    label = f'Output "{text}" (p={probability:z.3f})'
    node = _node(f"{layers + 1}_{output}_{token}", "logit", layers + 1, token, output, f"L_{output}-{token}", label)
    return node | {"token_prob": float(probability), "is_target_logit": True}


def _layer(graph: Streams, layer: int | None) -> int:
    """Return a layer's number; of a term in the read-out the one after the last."""
    return len(graph.streams) - 1 if layer is None else layer


def _neurons(graph: Streams) -> Iterator[_ViewerNode]:
    for place, each in enumerate(graph.neurons):
        neuron, layer = each.neuron, _layer(graph, each.neuron.term.layer)
        raised = ", ".join(quoted_label(output) for output, _ in each.raised[:3])
        node = _node(
            f"{layer}_{neuron.neuron}_{neuron.token_index}",
            "cross layer transcoder",
            layer,
            neuron.token_index,
            (layer + neuron.neuron) * (layer + neuron.neuron + 1) // 2 + neuron.neuron,
            f"{layer}_{neuron.neuron}-0",
            f"neuron {neuron.neuron}" + (f", raises {raised}" if raised else ""),
        )
        parts = np.array([neuron.contribution, *(reader.edges[place] for reader in graph.neurons)])
        yield _ViewerNode(node | {"activation": neuron.activation}, parts)


def _others(graph: Streams) -> Iterator[_ViewerNode]:
    """Yield for each term and token the sum of the neurons that aren't nodes."""
    explanation = graph.explanation
    for number, key in enumerate(explanation.terms):
        layer = _layer(graph, key.layer)
        for token in range(len(explanation.tokens)):
            parts = np.array(
                [explanation.term_tokens[number, token], *(each.terms[number, token] for each in graph.neurons)], float
            )
            for place, each in enumerate(graph.neurons):
                if each.neuron.term == key and each.neuron.token_index == token:
                    parts -= [each.neuron.contribution, *(reader.edges[place] for reader in graph.neurons)]
            # A name of its own, since a neuron's identifier has three numbers too.
            identity, label = f"{layer}_others-{number}_{token}", f"all other neurons, {explanation.labels[key]}"
            yield _ViewerNode(_node(identity, SUM, layer, token, -1, identity, label), parts)


def _tokens(graph: Streams) -> Iterator[_ViewerNode]:
    explanation = graph.explanation
    for token, text in enumerate(explanation.tokens):
        number = graph.ids[token] if graph.ids else token
        node = _node(f"E_{number}_{token}", "embedding", "E", token, token, f"E_{number}-{token}", f'Emb: "{text}"')
        yield _ViewerNode(node, np.array([explanation.embedding[token], *(n.embedding[token] for n in graph.neurons)]))


def _biases(graph: Streams) -> Iterator[_ViewerNode]:
    for key, part in graph.explanation.biases.items():
        layer = _layer(graph, key.layer)
        kind = re.sub(r"[^A-Za-z0-9.]", "-", f"{key.name}.{key.number}")
        identity, parts = f"{layer}_bias_{kind}_0", [part, *(each.biases.get(key, 0.0) for each in graph.neurons)]
        yield _ViewerNode(_node(identity, "bias", layer, 0, None, identity, str(key)), np.array(parts))
