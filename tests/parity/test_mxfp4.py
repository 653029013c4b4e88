"""MXFP4 is undone as the reference undoes it."""

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from duat_jax.models.checkpoint.mxfp4 import Mxfp4
from duat_jax.models.checkpoint.safetensors_files import Safetensors


def test_packed_tensors_are_the_reference(tmp_path):
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (2, 6, 3, 16), np.uint8)
    scales = random.integers(100, 150, (2, 6, 3), np.uint8)
    save_file({"w_blocks": blocks, "w_scales": scales}, tmp_path / "a.safetensors")
    stored = Mxfp4(Safetensors(tmp_path, [tmp_path / "a.safetensors"]))
    expected = convert_moe_packed_tensors(torch.tensor(blocks), torch.tensor(scales), dtype=torch.float32)
    np.testing.assert_array_equal(stored.read("w", np.dtype(np.float32)), expected.numpy())
