#!/usr/bin/env bash
# Expected: torchax resizes images with antialias=True to PyTorch's numbers, as it does without.
# Seen with torchax 0.0.14.dev20261026, JAX 0.10.2, PyTorch 2.13.0: bilinear and bicubic with antialias=True raise a
#   TypeError; bilinear without it is PyTorch's to 1e-6.
# Output seen: bilinear agrees, bilinear antialiased TypeError, bicubic antialiased TypeError
# Why it matters: image encoders that resize their table of positions so, as SigLIP 2 does, fail there.
# Source: torchax/ops/jax_reimplement.py reads jax.image's private table of kernels, whose entries became pairs of a width
#   and a function.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 torchax==0.0.14.dev20261026 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import numpy as np
import torch
import torchax

environment = torchax.default_env()
image = torch.arange(48.0).reshape(1, 3, 4, 4)


def resized(mode, antialias):
    def resize(image):
        return torch.nn.functional.interpolate(image, (7, 3), mode=mode, antialias=antialias, align_corners=False)

    expected = resize(image).numpy()
    try:
        with environment:
            result = np.asarray(environment.t2j_iso(resize(environment.to_xla(image))))
    except TypeError as error:
        return type(error).__name__
    return "agrees" if np.abs(result - expected).max() < 1e-5 else "differs"


print(f"bilinear {resized('bilinear', False)}, bilinear antialiased {resized('bilinear', True)}, "
      f"bicubic antialiased {resized('bicubic', True)}")
PYTHON
)
echo "$seen"
[ "$seen" = "bilinear agrees, bilinear antialiased TypeError, bicubic antialiased TypeError" ]
