"""Encoders with decoders, and soft prompts, by PyTorch's own code: one table over both streams, and its difference."""

import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import duat_jax as duat
from tests.helpers import near

SMALL = {"vocab_size": 50, "d_model": 16, "decoder_start_token_id": 1}
T5 = {**SMALL, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 2}
OF_EACH = {"attention_heads": 2, "layers": 2, "ffn_dim": 32}
BART = SMALL | {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in OF_EACH.items()}
MODELS = {
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration, T5),
    "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration, T5),
    "gated t5": (
        transformers.T5Config,
        transformers.T5ForConditionalGeneration,
        T5 | {"feed_forward_proj": "gated-gelu"},
    ),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration, BART),
    "whisper": (
        transformers.WhisperConfig,
        transformers.WhisperForConditionalGeneration,
        BART | {"num_mel_bins": 4, "max_source_positions": 6, "pad_token_id": 0},
    ),
}


def two_inputs(name):
    """Return a model as a function of two streams, two inputs of it, and PyTorch's own logits on each."""
    config, architecture, sizes = MODELS[name]
    torch.manual_seed(0)
    module = architecture(config(**sizes)).double().eval()
    source = (1, 4, 12) if name == "whisper" else (1, 6, 16)
    given = [
        {
            "input_features" if name == "whisper" else "inputs_embeds": torch.randn(source, dtype=torch.float64),
            "decoder_inputs_embeds": torch.randn(1, 4, 16, dtype=torch.float64),
        }
        for _ in range(2)
    ]
    function = duat.from_torch(module, {**given[0], "use_cache": False})
    with torch.no_grad():
        said = [module(**each, use_cache=False).logits[0, -1].numpy() for each in given]
    streams = [{key: jnp.asarray(value.numpy()) for key, value in each.items()} for each in given]
    return (lambda streams: function(**streams, use_cache=False)["logits"][0, -1]), streams, said


@pytest.mark.parametrize("name", MODELS)
def test_encoder_and_decoder_are_two_streams_of_one_table(name):
    fn, (x, y), (of_x, of_y) = two_inputs(name)
    # T5's norms compute the scale in single precision, whatever the dtype of the model.
    within = 1e-5 if "t5" in name else 1e-10
    near(fn(x), of_x, within=within)
    parts = duat.decompose(lambda streams: fn(streams)[7], x, marks="auto")
    split = duat.secant(lambda streams: fn(streams)[7])(x, y)
    collapse = duat.collapse(fn, x, marks="auto")
    assert [each.completeness.verdict for each in (parts, split, collapse)] == ["holds"] * 3
    near(parts.completeness.value, of_x[7], within=within)
    near(sum(part.sum() for part in split.parts.values()), of_x[7] - of_y[7], within=10 * within)
    assert all(abs(part).max() > 0 for part in split.parts.values())
    for source in x:  # what a stream gives to the logits, by the collapse
        assert duat.operators.frobenius(collapse.linear.between(source)) > 0


def test_the_slots_of_a_soft_prompt_stand_beside_the_text(tmp_path):
    """As `peft` keeps a prompt that was tuned: its rows are put before the embeddings of the text."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=50))
    base.double().eval().save_pretrained(tmp_path / "base")
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    tuned = peft.get_peft_model(base, settings).double().eval()
    tuned.save_pretrained(tmp_path / "adapter")
    ids = np.array([4, 7, 9, 2])
    with torch.no_grad():
        said = tuned(torch.tensor(ids)[None]).logits[0, -1].numpy()
    model = duat.load(tmp_path / "base", dtype=jnp.float64)
    slots = load_file(tmp_path / "adapter" / "adapter_model.safetensors")["prompt_embeddings"]
    streams = {"slots": jnp.asarray(slots), "text": model.embed(jnp.array(ids))}

    def logit(streams):
        return model.output(jnp.concatenate([streams["slots"], streams["text"]]))[-1, 7]

    parts = duat.decompose(logit, streams)
    near(parts.completeness.value, said[7], within=1e-7)  # Llama's norms there are in single precision too
    assert parts.completeness.verdict == "holds" and jax.tree.map(jnp.shape, parts.input) == {
        "slots": (3, 16),
        "text": (4, 16),
    }
