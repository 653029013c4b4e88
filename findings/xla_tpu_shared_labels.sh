#!/usr/bin/env bash
# Expected: two models' losses on the same labels, by `jax.vmap(loss, (0, None))`, need no more than their logits, and
#   the more logits the more memory.
# Seen with JAX 0.10.2, and libtpu 0.0.42.1 and 0.0.52, for a v5e: logits of 2.1 MB need 134 MB beside them, and those
#   of half and twice the size none. The look-up of labels that both models share is one slice of both: its operand is
#   copied with the axis of models innermost, which is padded to 128. The gradient's scatter does the same. With the
#   labels repeated for each model there is no copy. So it is for v6e and 7x; logits of 201 MB are copied as they are.
# Output seen: 64 labels of 2048, 4096, 8192 words: shared 0.0, 134.2, 0.0 MB, repeated 0.0, 0.0, 0.0 MB
# Why it matters: an ensemble's loss, or a model's beside another's, takes 64 times its logits where nothing says so.
# Source: the compiler in libtpu, which lays out the operand; jax/_src/lax/slicing.py, _gather_batching_rule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$folder/tpu" libtpu==0.0.42.1
seen=$(JAX_PLATFORMS=cpu PYTHONPATH="$folder/tpu" "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import jax
import jax.numpy as jnp
from jax.experimental.topologies import get_topology_desc
from jax.sharding import SingleDeviceSharding

chip = SingleDeviceSharding(get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0])
labels = jax.ShapeDtypeStruct((64,), jnp.int32, sharding=chip)


def loss(logits, labels):
    return -jnp.take_along_axis(logits, labels[:, None], -1).mean()


def shared(logits, labels):
    return jax.vmap(loss, (0, None))(logits, labels)


def repeated(logits, labels):
    return jax.vmap(loss)(logits, jnp.broadcast_to(labels, (2, 64)))


def temporaries(fn, words):
    logits = jax.ShapeDtypeStruct((2, 64, words), jnp.float32, sharding=chip)
    memory = jax.jit(fn).lower(logits, labels).compile().memory_analysis()
    return f"{memory.temp_size_in_bytes / 1e6:.1f}"


words = 2048, 4096, 8192
found = [", ".join(temporaries(fn, each) for each in words) for fn in (shared, repeated)]
print(f"64 labels of {', '.join(map(str, words))} words: shared {found[0]} MB, repeated {found[1]} MB")
PYTHON
)
echo "$seen"
[ "$seen" = "64 labels of 2048, 4096, 8192 words: shared 0.0, 134.2, 0.0 MB, repeated 0.0, 0.0, 0.0 MB" ]
