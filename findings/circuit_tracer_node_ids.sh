#!/usr/bin/env bash
# Expected: the nodes of an attribution graph that circuit-tracer writes have identifiers of their own, since links name
#   nodes by them.
# Seen with circuit-tracer 0.5.0: feature n of layer 0 at token t and the reconstruction error of layer n at token t are
#   both called 0_n_t, so a link from one can't be told from a link from the other.  Features with a number below the
#   number of layers are concerned.
# Output seen: feature 0_3_7, error 0_3_7
# Why it matters: a program that writes such graphs by the same names, or that looks nodes up by them, adds two parts.
# Source: circuit_tracer/frontend/graph_models.py, Node.feature_node and Node.error_node.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pydantic==2.14.3
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps circuit-tracer==0.5.0
seen=$("$folder/venv/bin/python" - <<'PYTHON'
import importlib.util
import pathlib
import sysconfig

# The one file, without the package around it, which imports PyTorch.
path = pathlib.Path(sysconfig.get_path("purelib"), "circuit_tracer", "frontend", "graph_models.py")
spec = importlib.util.spec_from_file_location("graph_models", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
feature = module.Node.feature_node(layer=0, pos=7, feat_idx=3)
error = module.Node.error_node(layer=3, pos=7)
print(f"feature {feature.node_id}, error {error.node_id}")
PYTHON
)
echo "$seen"
[ "$seen" = "feature 0_3_7, error 0_3_7" ]
