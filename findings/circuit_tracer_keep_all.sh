#!/usr/bin/env bash
# Expected: prune_graph with both thresholds 1 keeps a graph's edges: all of them, and no others.
# Seen with circuit-tracer 0.5.0: the cut is where a float32 cumulated sum reaches 1. Where rounding lets it reach 1
#   early, edges are lost; where it never does, the cut is 0 and every pair of nodes becomes an edge of weight 0. Of
#   20 dense graphs of 63 nodes 5 lost edges, 4 got others, 11 were right.
# Output seen: of 20 graphs some lose edges True, some get edges of weight 0 True, all are as they were False
# Why it matters: a file that should hold the whole graph lacks edges, or has several times as many, all but some of
#   weight 0.
# Source: circuit_tracer/graph.py, find_threshold and prune_graph.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 pydantic==2.14.3
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps circuit-tracer==0.5.0
seen=$("$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import logging

import torch
from circuit_tracer.attribution.targets import LogitTarget
from circuit_tracer.graph import Graph, prune_graph
from circuit_tracer.utils.tl_nnsight_mapping import UnifiedConfig

logging.disable()
FEATURES, TOKENS, LAYERS, LOGITS = 40, 5, 3, 3
NODES = FEATURES + TOKENS * LAYERS + TOKENS + LOGITS
config = UnifiedConfig(LAYERS, 8, 4, 2, 16, 11, "", "", "")


def graph(seed):
    """Features, errors, tokens and logits; every edge that goes forwards."""
    torch.manual_seed(seed)
    weights = torch.randn(NODES, NODES)
    weights[:FEATURES, :FEATURES].tril_(-1)
    weights[FEATURES:-LOGITS] = 0
    weights[:, -LOGITS:] = 0
    return Graph(
        input_string="",
        input_tokens=torch.zeros(TOKENS),
        active_features=torch.zeros(FEATURES, 3),
        adjacency_matrix=weights,
        cfg=config,
        selected_features=torch.arange(FEATURES),
        activation_values=torch.ones(FEATURES),
        logit_targets=[LogitTarget("", k) for k in range(LOGITS)],
        logit_probabilities=torch.softmax(torch.randn(LOGITS), 0),
    )


lost = invented = same = 0
for seed in range(20):
    whole = graph(seed)
    kept, there = prune_graph(whole, 1.0, 1.0).edge_mask, whole.adjacency_matrix != 0
    lost += bool((there & ~kept).any())
    invented += bool((kept & ~there).any())
    same += bool((kept == there).all())
print(f"of 20 graphs some lose edges {lost > 0}, some get edges of weight 0 {invented > 0}, all are as they were {same == 20}")
PYTHON
)
echo "$seen"
[ "$seen" = "of 20 graphs some lose edges True, some get edges of weight 0 True, all are as they were False" ]
