"""The read-outs of a model by its PyTorch code: which are loaded, where their terms stand, and which are refused."""

import jax.numpy as jnp
import pytest
import torch
import transformers

import duat_jax as duat
from tests.helpers import near

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ROFORMER = transformers.RoFormerConfig(embedding_size=16, num_labels=3, **TEXT, **SIZES)
NEO = transformers.GPTNeoConfig(
    hidden_size=16, num_layers=2, num_heads=2, num_labels=3, attention_types=[[["global", "local"], 1]], **TEXT
)
T5 = transformers.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=50)
LOADED = {
    # The first has a read-out that is more than linear: its activation is of a whole text, of none of its tokens.
    "classes of an encoder": (transformers.RoFormerForSequenceClassification, ROFORMER, ["classifier.gelu"]),
    "classes of a decoder": (transformers.GPTNeoForSequenceClassification, NEO, []),
}


def saved(architecture, settings, folder):
    """Return a random model, in a folder."""
    torch.manual_seed(0)
    module = architecture(settings).eval()
    module.save_pretrained(folder)
    return module


@pytest.mark.parametrize("name", LOADED)
def test_a_read_out_is_pytorchs_and_its_terms_stand_at_their_tokens(name, tmp_path):
    architecture, settings, elsewhere = LOADED[name]
    module = saved(architecture, settings, tmp_path)
    model, texts = duat.load(tmp_path), [[3, 4, 5, 6, 7], [8, 9]]
    with torch.no_grad():
        logits = [module(torch.tensor([text])).logits[0] for text in texts]
    for text, explanation, each in zip(texts, duat.explain(model, texts, 1), logits, strict=True):
        near(explanation.value, each[1].item(), within=1e-5)
        assert explanation.completeness.verdict == "holds"
        assert {key.layer for key in explanation.coefficients} == {0, 1}
        assert {part.shape[0] for part in explanation.coefficients.values()} == {len(text)}
        assert [str(key) for key in explanation.biases if "gelu" in str(key)] == elsewhere
    contrast = duat.contrast(model, texts[0], [3, 9, 5, 6, 7], 1)
    assert contrast.completeness.verdict == "holds" and contrast.flow.shape == (3, 5)
    assert {key.layer for key in contrast.neurons} == {0, 1}


def test_a_decoder_reads_classes_at_the_last_token_that_is_no_padding(tmp_path):
    module = saved(transformers.GPTNeoForSequenceClassification, NEO, tmp_path)
    text = [3, 4, 5, 0, 0]
    with torch.no_grad():
        expected = module(torch.tensor([text])).logits[0].numpy()
    near(duat.load(tmp_path)(jnp.asarray(text)), expected, within=1e-5)


REFUSED = {
    "a decoder without a beginning": (
        transformers.T5ForConditionalGeneration,
        T5,
        "reads two texts, .* its settings name",
    ),
    "classes of two texts": (transformers.T5ForSequenceClassification, T5, "reads two texts, .* no next token is read"),
    "classes of tokens": (transformers.RoFormerForTokenClassification, ROFORMER, "is none of .*: give head='hidden'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_reads_no_single_text_is_refused_with_what_to_do(name, tmp_path):
    architecture, settings, message = REFUSED[name]
    saved(architecture, settings, tmp_path)
    with pytest.raises(duat.DuatError, match=f"a {architecture.__name__} {message}.*duat.from_torch"):
        duat.load(tmp_path)


def test_another_read_out_is_loaded_by_name(tmp_path):
    saved(transformers.RoFormerForTokenClassification, ROFORMER, tmp_path)
    assert duat.load(tmp_path, head="hidden").config.head.kind == "hidden"


def test_a_model_whose_attention_depends_on_its_kernel_is_refused(tmp_path):
    """The code that is read adds Falcon's ALiBi to the scores and has it in the mask, too."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 61}
    for alibi in (True, False):
        settings = transformers.FalconConfig(alibi=alibi, initializer_range=0.3, **sizes)
        saved(transformers.FalconForCausalLM, settings, tmp_path)
        if not alibi:
            assert duat.explain(duat.load(tmp_path), [3, 4, 5, 6], 7).completeness.verdict == "holds"
            continue
        with pytest.raises(duat.DuatError, match='FalconForCausalLM of this .*"eager", .* "sdpa", its default'):
            duat.load(tmp_path)
