"""Questions to models where other tools gave wrong numbers: they are right here (docs/explanation/traps.md)."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from golden_checkpoints import agree, golden
from helpers import close
from safetensors.numpy import load_file

import duat_jax as duat


def sum_of_parts(explanation):
    """Add up every part of an explanation."""
    terms = sum(
        (explanation.coefficients[mark] * explanation.activations[mark]).sum() for mark in explanation.activations
    )
    return explanation.embedding.sum() + terms + sum(explanation.biases.values())


LOGITS = {
    "gemma2": "a final soft cap, unembedding not centred",
    "gpt2": "a layer norm with weights and a bias",
    "gpt_neox": "rotary positions on a part of each head",
    "llama-llama3-newer": "rescaled rotary frequencies",
    "granite": "multipliers of embedding, residual and logits",
    "cohere": "a scale of logits, no biases, attention beside the MLP",
    "olmo2": "norms behind attention and MLP",
    "mistral-window": "a window of three tokens, the query's own among them",
}


@pytest.mark.parametrize("name", LOGITS)
def test_the_parts_of_a_logit_sum_to_that_of_transformers(name):
    model, ids, outputs = golden(name)
    logits = outputs["float64"][-1]
    assert abs(logits.mean()) > 1e-3  # a centred unembedding would show
    for token in (3, int(logits.argmax())):
        explanation = duat.explain(model, ids, token)
        agree(np.array([explanation.value, sum_of_parts(explanation)]), np.full(2, logits[token]))


@pytest.mark.parametrize("name", ["gpt2", "bert-classes", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_text_among_longer_and_shorter_ones_has_its_own_numbers(name):
    model, ids, outputs = golden(name)
    ids, others = np.asarray(ids), [[5, 7, 9], [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]
    expected = outputs["float64"].reshape(-1, outputs["float64"].shape[-1])[-1]
    among = [others[0], ids, others[1]]
    explanations = duat.explain(model, among, 1)
    agree(np.array(explanations[1].value)[None], expected[1:2])
    method = "integrated gradients, 32 steps"
    scores = duat.attribute(model, among, duat.baselines.Mean(), 1, method=method)[1].scores
    alone = duat.attribute(model, ids, duat.baselines.Mean(), 1, method=method).scores
    close(scores, alone)


def test_a_question_changes_no_later_answer():
    model, ids, _ = golden("gpt2")
    first = duat.explain(model, ids, 3)
    duat.explain(model, [ids[::-1], ids[:11]], [6, 4])
    duat.intervene(model, ids, [duat.edits.Heads(1, 0).set(0)], 3)
    again = duat.explain(model, ids, 3)
    assert first.value == again.value and (first.embedding == again.embedding).all()


def test_a_hundred_and_one_references_are_all_averaged():
    """A mean over the first hundred would be another one, since the last differs most."""
    model, ids, outputs = golden("gpt2")
    random = np.random.default_rng(0)
    references = [random.integers(0, 61, 5).tolist() for _ in range(101)]
    found = duat.contrast(model, ids[:5], references, 3)
    logits = np.asarray(model(jnp.array(references)))[:, -1, 3]
    assert len(found.references) == 101 and abs(logits[:100].mean() - logits.mean()) > 1e-4
    close(np.mean([each.value for each in found.references]), logits.mean())
    close(np.asarray(found.flow)[-1].sum(), found.value - logits.mean())


def test_a_single_first_token_is_a_text():
    model, ids, outputs = golden("gpt2")
    explanation = duat.explain(model, ids[:1], 3)
    agree(np.array([explanation.value, sum_of_parts(explanation)]), np.full(2, outputs["float64"][0, 3]))


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_a_layer_read_as_the_last_one_is_normalised_by_its_own_size(name):
    """The lens of the page of words, against NumPy's norm of the streams that transformers has."""
    model, ids, outputs = golden(name)
    weights = {name: np.float64(w) for name, w in load_file(GOLDEN / name / "model.safetensors").items()}
    for layers, stream in enumerate(outputs["streams"][:-1]):  # the last one that transformers has is normalised
        x = stream[-1]
        if name == "gpt2":
            x = (x - x.mean()) / np.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
            expected = x * weights["transformer.ln_f.weight"] + weights["transformer.ln_f.bias"]
        else:
            expected = x / np.sqrt((x**2).mean() + 1e-6) * (1 + weights["model.norm.weight"])
        agree(model.final_norm(model.stream(model.embed(ids), layers))[-1], expected)


EDITS = {
    "a layer that isn't there": duat.edits.Heads(3, 0).set(0),
    "a head that isn't there": duat.edits.Heads(1, 5).set(0),
    "a token that isn't there": duat.edits.Heads(1, 0, tokens=12).set(0),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_would_change_nothing_is_refused(name):
    model, ids, _ = golden("gpt2")
    with pytest.raises(duat.InvalidInput):
        duat.intervene(model, ids, [EDITS[name]], 3)
