"""An explanation sums to the plain forward pass, and its parts are what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_models import GOLDEN

import duat_jax as duat

LANGUAGE, ENCODERS = ("gpt2", "gpt2-untied-relu"), ("bert", "bert-silu")
IDS, OTHER = jnp.array([5, 17, 3, 44, 17, 20]), jnp.array([9, 8, 7, 6])


def both(name, dtype=jnp.float64):
    return duat.load(GOLDEN / name, dtype=dtype), duat.load_tokenizer(GOLDEN / name)


def assert_sums(explanation, value):
    total = explanation.embedding.sum() + explanation.neurons.sum() + sum(explanation.biases.values())
    finest = np.abs(explanation.embedding).sum() + np.abs(explanation.neurons).sum()
    finest += np.abs(list(explanation.biases.values())).sum()
    layers = len(explanation.mlp)
    bound = 8 * np.finfo(explanation.closure.dtype).eps * (layers + 2) * finest
    assert abs(total - value) <= bound
    assert explanation.closure.holds
    np.testing.assert_allclose(explanation.value, value, atol=bound)
    np.testing.assert_allclose(explanation.input_tokens.sum() + explanation.input_bias, value, atol=bound)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("contrast", [None, 11])
@pytest.mark.parametrize("position", [-1, 2])
@pytest.mark.parametrize("name", LANGUAGE)
def test_a_logit(name, position, contrast, dtype):
    model, tokenizer = both(name, dtype)
    explanation = duat.explain(model, IDS, 7, contrast=contrast, position=position, tokenizer=tokenizer)
    logits = model(IDS)[position]
    assert_sums(explanation, float(logits[7] - (0 if contrast is None else logits[contrast])))
    assert explanation.tokens[0] == "w5"
    assert "'w7'" in explanation.target
    assert next(p.token for p in explanation.predictions) == tokenizer.id_to_token(int(logits.argmax()))
    later = position % len(IDS) + 1
    assert not explanation.embedding[later:].any(), "a causal model reads nothing after the position"


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", ENCODERS)
def test_a_similarity(name, dtype):
    model, tokenizer = both(name, dtype)
    explanation = duat.explain(model, IDS, against=OTHER, tokenizer=tokenizer)
    a, b = model(IDS).mean(0), model(OTHER).mean(0)
    assert_sums(explanation, float(a @ b / jnp.linalg.norm(a) / jnp.linalg.norm(b)))
    assert "embedding_norm.offset" in explanation.biases


def test_without_a_target_the_most_probable_token_is_explained():
    model, tokenizer = both("gpt2")
    best = int(model(IDS)[-1].argmax())
    explanation = duat.explain(model, IDS, tokenizer=tokenizer)
    assert explanation.value == duat.explain(model, IDS, best, tokenizer=tokenizer).value


def test_parts_are_those_of_decompose():
    model, tokenizer = both("gpt2")
    explanation = duat.explain(model, IDS, 7, tokenizer=tokenizer)
    parts = duat.decompose(lambda x: model.hidden(x)[-1] @ model.unembedding[7], model.embed(IDS))
    np.testing.assert_allclose(explanation.neurons, np.stack([parts.terms[f"mlp/{i}"] for i in range(3)]), atol=1e-12)
    np.testing.assert_allclose(explanation.biases["layers.2.mlp.output.bias"], parts.offsets["mlp.output.bias/2"])


def test_top_lists_the_largest_neurons_in_order():
    model, _ = both("gpt2")
    explanation = duat.explain(model, IDS, 7)
    top = explanation.top(5)
    sizes = np.sort(np.abs(explanation.neurons).reshape(-1))[::-1]
    np.testing.assert_allclose([abs(n.value) for n in top], sizes[:5])
    for layer, token, neuron, value in top:
        assert explanation.neurons[layer, token, neuron] == value
    assert len(explanation.top(10**6)) == explanation.neurons.size


def test_it_shows_itself():
    model, tokenizer = both("gpt2")
    explanation = duat.explain(model, IDS, 7, tokenizer=tokenizer)
    text, html = str(explanation), explanation._repr_html_()
    assert f"{explanation.value:.6f}" in text
    assert "tolerance" in text
    assert html.startswith("<pre")
    assert "w17" in html
    figure = explanation.plot()
    heat = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(heat[0], explanation.embedding)
    np.testing.assert_allclose(heat[1:], explanation.mlp)


BAD = {
    "empty": ({"ids": jnp.zeros(0, int)}, "the text is empty"),
    "too long": ({"ids": jnp.ones(17, int)}, "17 tokens, but the model's context is 16"),
    "unknown id": ({"ids": jnp.array([61])}, "token id 61, but the model knows 0 to 60"),
    "negative id": ({"ids": jnp.array([-2])}, "token id -2"),
    "unknown target": ({"target": 99}, "target 99 is no token id"),
    "unknown contrast": ({"contrast": -1}, "contrast -1 is no token id"),
    "position": ({"position": 6}, "position 6 is outside"),
    "against": ({"against": OTHER}, "no encoder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_to_do(case):
    changed, message = BAD[case]
    arguments = {"ids": IDS, "target": 3} | changed
    with pytest.raises(duat.BadText, match=message):
        duat.explain(both("gpt2")[0], arguments.pop("ids"), **arguments)


def test_an_encoder_wants_another_text():
    with pytest.raises(duat.BadText, match="--against"):
        duat.explain(both("bert")[0], IDS)


def test_float64_needs_to_be_on_in_jax():
    with jax.enable_x64(False), pytest.raises(duat.DuatError, match="jax_enable_x64"):
        duat.load(GOLDEN / "gpt2", dtype=jnp.float64)
