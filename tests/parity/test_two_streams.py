"""Encoders with decoders, soft prompts and prefixes, by PyTorch's own code: one table over both streams."""

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


PREFIXED = {
    "llama": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=50,
        ),
        2 * 4,  # numbers of a key: heads of keys by features of a head
    ),
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50), 16),
}
SLOTS = "prompt_encoder.default.embedding.weight"


def prefixed(name, folder):
    """Return PEFT's model of a prefix as it is loaded from a file, the file's slots, and the embeddings of a text."""
    torch.manual_seed(0)
    architecture, config, _ = PREFIXED[name]
    architecture(config).double().eval().save_pretrained(folder / "base")
    base = architecture.from_pretrained(folder / "base", dtype=torch.float64)
    trained = peft.get_peft_model(base, peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    trained.save_pretrained(folder / "adapter")
    base = architecture.from_pretrained(folder / "base", dtype=torch.float64)
    tuned = peft.PeftModel.from_pretrained(base, folder / "adapter").double().eval()
    slots = load_file(folder / "adapter" / "adapter_model.safetensors")["prompt_embeddings"]
    text = base.get_input_embeddings()(torch.tensor([[4, 7, 9, 2]])).detach()
    return tuned, jnp.asarray(slots, jnp.float64), text


def logits_of(tuned, slots, text):
    """Return PEFT's own logits after the text, with these slots."""
    with torch.no_grad():
        tuned.get_parameter(SLOTS).copy_(torch.tensor(np.array(slots)))
        return tuned(inputs_embeds=text).logits[0, -1].numpy()


@pytest.mark.parametrize("name", PREFIXED)
def test_the_slots_of_a_prefix_stand_beside_the_text_in_every_layer(name, tmp_path):
    """As `peft` keeps a prefix: of every slot, the key and the value of each layer, in this order."""
    tuned, slots, text = prefixed(name, tmp_path)
    size = PREFIXED[name][-1]
    assert slots.shape == (3, 2 * 2 * size)
    function = duat.from_torch(tuned, {"inputs_embeds": text})
    near(function.weights[SLOTS], slots, within=0)
    streams = {"slots": slots, "text": jnp.asarray(text.numpy())}

    def logits(streams):
        return function.with_weights({SLOTS: streams["slots"]})(inputs_embeds=streams["text"])["logits"][0, -1]

    parts = duat.decompose(lambda streams: logits(streams)[7], streams, marks="auto")
    within = 1e-6 if name == "llama" else 1e-10  # Llama's norms are in single precision, whatever the model's dtype
    near(parts.completeness.value, logits_of(tuned, slots, text)[7], within=within)
    assert parts.completeness.verdict == "holds"
    keys, values = jnp.moveaxis(parts.input["slots"].reshape(3, 2, 2, size), 2, 0)
    assert not keys.any()  # they are in the patterns, which are held
    assert (abs(values).sum(-1) > 0).all()
    assert duat.collapse(logits, streams, marks="auto").completeness.verdict == "holds"

    fewer = streams | {"slots": slots.at[1].set(0.0)}
    split = duat.secant(lambda streams: logits(streams)[7])(streams, fewer)
    own = [logits_of(tuned, each["slots"], text)[7] for each in (streams, fewer)]
    near(split.parts["slots"].sum(), own[0] - own[1], within=within)
    moved = split.parts["slots"].reshape(3, 2, 2, size).any((1, 3))
    assert moved.tolist() == [[False, False], [True, True], [False, False]]  # keys move the patterns here
    assert split.completeness.verdict == "holds" and not split.parts["text"].any()


def test_slots_beyond_the_models_and_a_cache_are_refused(tmp_path):
    tuned, slots, text = prefixed("gpt2", tmp_path)
    function = duat.from_torch(tuned, {"inputs_embeds": text})
    longer = jnp.concatenate([slots, slots[:1]])
    message = r"PeftModelForCausalLM takes prompt_encoder\S+ float64\[3,64\] but was given \S+ float64\[4,64\]: convert"
    with pytest.raises(duat.DuatError, match=message):
        function.with_weights({SLOTS: longer})
    with pytest.raises(duat.DuatError, match=r"float64\[3,64\] but was given \S+ float64\[3,96\]"):  # of another model
        function.with_weights({SLOTS: jnp.zeros((3, 96))})
    with pytest.raises(duat.DuatError, match=r"has no weight 'slots': its weights are base_model\."):
        function.with_weights({"slots": slots})
    cache = tuned.get_prompt(batch_size=1)
    with pytest.raises(duat.DuatError, match="an argument is a DynamicCache, which isn't an array: give a module that"):
        duat.from_torch(tuned.get_base_model(), {"inputs_embeds": text, "past_key_values": cache})
