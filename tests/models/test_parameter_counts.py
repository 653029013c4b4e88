"""Real configurations have as many parameters as their checkpoints are said to have."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import pytest
from damaged import real_configurations
from flax import nnx

import duat_jax as duat
from duat_jax.models.families.tensor_map import parameter_at
from duat_jax.models.loader import skeleton
from duat_jax.models.registry import FAMILIES
from duat_jax.nn import make_block

DECODERS = {
    "Llama-2-7b-hf": 6_738_415_616,
    "Llama-2-13b-hf": 13_015_864_320,
    "Meta-Llama-3-8B": 8_030_261_248,
    "Meta-Llama-3-70B-Instruct": 70_553_706_496,
    "Llama-3.2-1B-Instruct, saved by Unsloth": 1_235_814_400,
    "SmolLM2-135M, printed by transformers 4.48": 134_515_008,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "Mistral-Nemo-Instruct-2407": 12_247_782_400,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-27b-it": 27_227_128_320,
    "Mixtral-8x7B-v0.1": 46_702_792_704,
    "gemma-3-1b-pt": 999_885_952,
    "gemma-3-270m": 268_098_176,
    "embeddinggemma-300m": 302_863_104,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Phi-3-mini-4k-instruct": 3_821_079_552,
    "Phi-3-mini-128k-instruct": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "Phi-4-mini-instruct": 3_836_021_760,
    "OLMo-2-1124-7B": 7_298_617_344,
    "gpt-oss-20b": 20_914_757_184,
    "starcoder2-3b": 3_030_371_328,
    "SmolLM3-3B": 3_075_098_624,
    "Olmo-3-1025-7B": 7_298_011_136,
    "gemma-2b": 2_506_172_416,
    "granite-3.3-8b-instruct": 8_170_864_640,
}
OTHERS = {
    "roberta-base": 124_697_433,
    "twitter-roberta-base-sentiment-latest": 124_647_939,
    "distilbert-base-uncased": 66_985_530,
    "distilbert-base-uncased-finetuned-sst-2-english": 66_955_010,
    "pythia-160m": 162_322_944,
    "vit-base-patch16-224": 86_567_656,
    "dino-vits16": 21_665_664,
    "gpt-j-6b": 6_050_882_784,
    "opt-125m": 125_239_296,
    "albert-base-v2": 11_221_680,
    "ModernBERT-base": 149_655_232,
    "xlm-roberta-base": 278_295_186,
    "phi-2": 2_779_683_840,
    "stablelm-2-1_6b": 1_644_515_328,
    "c4ai-command-r-v01": 34_980_831_232,
}


def count(model):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(model))


@functools.cache
def count_of_block(block):
    return count(nnx.eval_shape(lambda: make_block(block, rngs=None)))


def read(directory, name):
    (directory / "config.json").write_text(json.dumps(real_configurations()[name]))
    return duat.load_config(directory)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_has_the_published_number_of_parameters(tmp_path, name):
    config = read(tmp_path, name)
    first = skeleton(dataclasses.replace(config, blocks=config.blocks[:1]), jnp.float32)
    assert count(first) + sum(map(count_of_block, config.blocks[1:])) == DECODERS[name]


@pytest.mark.parametrize("name", OTHERS)
def test_every_tensor_of_the_file_is_counted(tmp_path, name):
    config = read(tmp_path, name)
    model, found = skeleton(config, jnp.float32), 0
    for entry in FAMILIES[config.family].tensor_map(config):
        shapes = [parameter_at(model, path).shape for path in entry.parameters]
        found += sum(math.prod(shape) for shape in entry.transform.shapes(shapes))
    assert found == OTHERS[name]
