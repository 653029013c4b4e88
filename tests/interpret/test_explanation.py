"""An explanation sums to the plain forward pass, and its parts are what they say."""

import re
from collections import deque
from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from flax import nnx
from helpers import close, described, near

import duat_jax as duat
from duat_jax.inputs.batching import batches
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.inputs.question import ask
from duat_jax.interpret import pipeline
from duat_jax.interpret.explain import compute as run
from duat_jax.models.config import Head
from duat_jax.models.targets.base import forward
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

LANGUAGE, ENCODERS = ("gpt2", "gpt2-untied-relu"), ("bert", "bert-silu")
IDS, OTHER = jnp.array([5, 17, 3, 44, 17, 20]), jnp.array([9, 8, 7, 6])


def both(name, dtype=jnp.float64):
    return duat.load(GOLDEN / name, dtype=dtype), duat.load_tokenizer(GOLDEN / name)


def neurons_of(explanation):
    return np.stack(list(explanation.terms.values()))


def assert_sums(explanation, value):
    neurons = neurons_of(explanation)
    total = explanation.embedding.sum() + neurons.sum() + sum(explanation.biases.values())
    finest = np.abs(explanation.embedding).sum() + np.abs(neurons).sum()
    finest += np.abs(list(explanation.biases.values())).sum()
    bound = 8 * np.finfo(explanation.completeness.dtype).eps * (len(neurons) + 2) * finest
    assert abs(total - value) <= bound
    assert explanation.completeness.verdict == explanation.collapse_completeness.verdict == "holds"
    near(explanation.value, value, within=bound)
    near(explanation.collapse.sum() + explanation.collapse_bias, value, within=bound)


@pytest.mark.parametrize("dtype", [pytest.param(jnp.float32, marks=pytest.mark.slow), jnp.float64])
@pytest.mark.parametrize("contrast", [None, 11])
@pytest.mark.parametrize("position", [-1, 2])
@pytest.mark.parametrize("name", LANGUAGE)
def test_a_logit(name, position, contrast, dtype):
    model, tokenizer = both(name, dtype)
    explanation = duat.explain(model, IDS, 7, contrast=contrast, position=position, tokenizer=tokenizer)
    logits = model(IDS)[position]
    assert_sums(explanation, float(logits[7] - (0 if contrast is None else logits[contrast])))
    assert explanation.tokens[0] == "w5"
    assert "'w7'" in explanation.target.headline
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
    parts = duat.decompose(lambda x: model.output(x)[-1, 7], model.embed(IDS))
    close(neurons_of(explanation), np.stack([parts.terms[f"layers.{i}.mlp"] for i in range(3)]))
    close(explanation.biases["layers.2.mlp.output.bias"], parts.offsets["layers.2.mlp.output.bias"])


def test_top_lists_the_largest_neurons_in_order():
    model, _ = both("gpt2")
    explanation = duat.explain(model, IDS, 7)
    top = explanation.top(5)
    sizes = np.sort(np.abs(neurons_of(explanation)).reshape(-1))[::-1]
    close([abs(n.contribution) for n in top], sizes[:5])
    for term, token, neuron, value, *factors in top:
        assert explanation.terms[term][token, neuron] == value
        assert factors == [part[term][token, neuron] for part in (explanation.coefficients, explanation.activations)]
        assert np.prod(factors) == value
    assert [each.layer for each in top] == [each.term.layer for each in top] != [None] * 5
    assert len(explanation.top(10**6)) == neurons_of(explanation).size


def test_it_shows_itself():
    model, tokenizer = both("gpt2")
    explanation = duat.explain(model, IDS, 7, tokenizer=tokenizer)
    text, html = str(explanation), explanation._repr_html_()
    assert f"{explanation.value:.6f}" in text
    assert "tolerance" in text
    assert html.startswith("<iframe") and "<pre" in html
    assert "w17" in html
    figure = explanation.plot()
    heat = figure.axes[0].images[0].get_array()
    close(heat[0], explanation.embedding)
    close(heat[1:], explanation.term_tokens)


def test_a_subclass_of_a_result_shows_itself_like_the_result():
    explanation = duat.explain(both("gpt2")[0], IDS, 3)
    kept = {field.name: getattr(explanation, field.name) for field in fields(explanation)}
    mine = type("Mine", (duat.results.Explanation,), {})(**kept)
    assert str(mine) == str(explanation) and mine.plot().axes


BAD = {
    "empty": ({"inputs": jnp.zeros(0, int)}, "the text is empty"),
    "too long": ({"inputs": jnp.ones(17, int)}, "17 tokens, but the model's context is 16"),
    "unknown id": ({"inputs": jnp.array([61])}, "token id 61, but the model's ids are 0 to 60"),
    "negative id": ({"inputs": jnp.array([-2])}, "token id -2"),
    "unknown target": ({"target": 99}, "target 99 is no token id"),
    "unknown contrast": ({"contrast": -1}, "contrast -1 is no token id"),
    "position": ({"position": 6}, "position 6 is outside"),
    "against": ({"against": OTHER}, "no encoder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_to_do(case):
    changed, message = BAD[case]
    arguments = {"inputs": IDS, "target": 3} | changed
    with pytest.raises(duat.InvalidInput, match=message):
        duat.explain(both("gpt2")[0], **arguments)


ODD = {
    "a position in words": ({"position": "2"}, "position '2' is outside"),
    "half a position": ({"position": 0.5}, "position 0.5 is outside"),
    "a true position": ({"position": True}, "position True is outside"),
    "a true target": ({"target": True}, "target True is no token id"),
    "a target in words": ({"target": "w7"}, "target is the string 'w7': pass the model's tokenizer"),
    "an array as target": ({"target": np.arange(3)}, "is no token id"),
    "a huge target": ({"target": 2**32 - 1}, "target 4294967295 is no token id"),
    "half a contrast": ({"contrast": 1.0}, "contrast 1.0 is no token id"),
    "huge ids": ({"inputs": [1, 2**32 - 1]}, "token id 4294967295, but the model's ids are 0 to 60"),
    "ids beyond any integer": ({"inputs": [2**80]}, "must be whole numbers in one row"),
    "ids in threes": ({"inputs": [[[1]], [[2]]]}, "text 0: token ids must be whole numbers in one row"),
    "one bad text of many": ({"inputs": [[1], [61]]}, "text 1 has token id 61"),
    "no list of texts": ({"inputs": []}, "the text is empty: [] holds nothing; give token ids, or a text"),
    "no text at all": ({"inputs": [[]]}, "text 0 is empty"),
    "a position outside of one text": (
        {"inputs": [[1], [2, 3]], "position": 1},
        "position 1 is outside text 0's 1 tokens",
    ),
    "no target": ({"target": []}, "there is no target"),
    "a bad target of many": ({"target": [3, duat.targets.Logit(99)]}, "target 99 is no token id"),
    "a target and a position": ({"target": duat.targets.Logit(3), "position": 0}, "belong in the target object"),
    "a similarity": ({"target": duat.targets.Similarity([1])}, "is no encoder"),
    "a short direction": ({"target": duat.targets.Direction([1.0])}, "the direction must be 12 finite"),
    "a direction of no numbers": (
        {"target": duat.targets.Direction(np.full(12, np.nan))},
        "the direction must be 12 finite",
    ),
    "a stream beyond": ({"target": duat.targets.Direction(np.ones(12), stream=4)}, "stream 4 isn't one of the model's"),
    "words": ({"inputs": ["a"]}, "is the string 'a': pass the model's tokenizer"),
    "nothing": ({"inputs": None}, "must be whole numbers in one row"),
    "truths": ({"inputs": [True]}, "must be whole numbers in one row"),
    "fractions": ({"inputs": [1.5]}, "must be whole numbers in one row"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_question_is_refused(case):
    changed, message = ODD[case]
    arguments = {"inputs": [5, 6], "target": 3} | changed
    with pytest.raises(duat.InvalidInput, match=re.escape(message)):
        ask(described(duat.load_config(GOLDEN / "gpt2")), **arguments)


def test_everything_wrong_with_a_question_is_named_at_once():
    with pytest.raises(duat.InvalidInput) as raised:
        duat.explain(both("gpt2")[0], IDS, 61, contrast=62, against=OTHER, position=9)
    for words in ("target 61", "contrast 62", "position 9", "no encoder"):
        assert words in str(raised.value)


@pytest.mark.parametrize("kind", [int, np.int32, np.uint8, jnp.int32])
def test_whole_numbers_of_any_kind_are_taken(kind):
    question = ask(described(duat.load_config(GOLDEN / "gpt2")), IDS, kind(7), kind(3), None, kind(2))
    ((target,),) = question.targets
    assert (target.token, target.contrast, target.position) == (7, 3, 2)
    np.testing.assert_array_equal(question.inputs[0].given, IDS)


def test_inputs_and_targets_come_in_sequences_of_any_kind():
    model, _ = both("gpt2")
    expected = duat.explain(model, [[5, 6, 7], [8, 9]], [3, 4])
    for inputs in (deque([[5, 6, 7], [8, 9]]), [range(5, 8), duat.TokenizedText([8, 9])]):
        for found, same in zip(duat.explain(model, inputs, range(3, 5)), expected):
            assert [each.value for each in found] == [each.value for each in same]


def test_a_question_is_checked_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr("duat_jax.interpret.explain.compute.read_targets", None)
    for name, arguments in (("gpt2", {"position": 9}), ("bert", {"against": jnp.array([99])}), ("bert", {})):
        with pytest.raises(duat.InvalidInput):
            duat.explain(both(name)[0], IDS, **arguments)


@pytest.mark.parametrize("position", [True, "2", 0, 1.5, np.arange(2)])
def test_an_encoder_takes_no_position(position):
    with pytest.raises(duat.InvalidInput, match="without target, contrast or position"):
        ask(described(duat.load_config(GOLDEN / "bert")), IDS, None, None, OTHER, position)


def test_an_encoder_wants_another_text():
    with pytest.raises(duat.InvalidInput, match="--against"):
        duat.explain(both("bert")[0], IDS)


@pytest.mark.parametrize(
    "name", ["gpt2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("gemma2", "bert-masked"))]
)
def test_a_log_probability_is_its_logit_beside_the_mean_minus_the_entropy(name):
    """`log p = (logit − Σ p_v logit_v) − H(p)`, beside the model's own distribution."""
    model, tokenizer = both(name)
    explanation = duat.explain(model, IDS, duat.targets.LogProbability(7, position=2), tokenizer=tokenizer)
    logs = np.asarray(jax.nn.log_softmax(model(IDS)[2]))
    close([explanation.value, explanation.completeness.sum], [logs[7]] * 2, layers=30)
    close(explanation.biases["entropy"], (np.exp(logs) * logs).sum())
    assert explanation.target.headline == "log-probability of 'w7' at token 2, 'w3'"
    # Without the entropy it is linear in the stream to first order: the covector is the gradient.
    passed = forward(model, Inputs(IDS, jnp.ones(6, bool), None))
    readout = duat.targets.LogProbability(7, 2).read(model, passed).readout
    gradient = jax.grad(lambda h: jax.nn.log_softmax(model.logits_at(h[2]).values)[7])(passed.states)
    if model.config.head.cap is None:  # its ratio is held
        close(readout, gradient)


def differently(model, ids, target):
    return duat.contrast(model, ids, [5, 9, 3], target)


def many_words():
    """A float32 model with as many tokens as language models have, whose embeddings share a direction, as theirs do."""
    block = BlockConfig(arrangement="pre-norm", features=16, heads=2, neurons=8)
    head = Head(kind="next token", outputs=49_152, tied=True)
    config = duat.models.Config(family="gpt2", blocks=(block,) * 2, vocab=49_152, positions=8, head=head)
    model = randomised(duat.models.Transformer(config, dtype=jnp.float32, rngs=nnx.Rngs(0)), 0)
    model.embedding.token[...] += 7
    return model


# JAX 0.10.0 sums in another order, by which the value itself is 6e-5 of it away from that in float64; the covector of
# nearly equal rows was wrong by 1e-3 there, and otherwise by 5e-4, and 7e-13 in float64.
@pytest.mark.parametrize(
    ("dtype", "largest"), [("float32", 1e-4 if jax.__version__ == "0.10.0" else 1e-5), ("float64", 1e-13)]
)
def test_the_log_probability_of_a_token_that_is_nearly_certain_keeps_its_digits(dtype, largest):
    """Its parts are as small as `1 − p`, and so is their rounding."""
    model = duat.load(dtype=dtype)
    ids = model.tokenizer.encode("def read(self, path):\n    with open(path, 'rb')").ids
    found = duat.explain(model, ids, duat.targets.LogProbability())
    assert -0.01 < found.value < 0 and found.completeness.verdict == "holds"
    assert abs(found.completeness.error) < largest * abs(found.value)


@pytest.mark.parametrize("ask", [duat.explain, differently], ids=["explain", "contrast"])
def test_a_log_probability_over_a_large_vocabulary_keeps_its_digits(ask):
    assert ask(many_words(), [5, 6, 3], duat.targets.LogProbability(7)).completeness.verdict == "holds"


@pytest.mark.parametrize("stream", [None, 0, pytest.param(2, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_direction_at_any_stream(name, stream):
    model, _ = both(name)
    vector = np.random.default_rng(0).normal(size=12)
    explanation = duat.explain(model, IDS, duat.targets.Direction(vector, stream=stream, position=3))
    recorded = duat.record(model.hidden)(model.embed(IDS))
    x = recorded.value if stream is None else recorded.at(recorded.streams[stream])
    assert_sums(explanation, float(x[3] @ vector))
    if stream is not None:
        assert not any(part.any() for part in list(explanation.terms.values())[stream:])


def parts_of(explanation):
    return jax.tree.map(
        np.asarray,
        (
            explanation.embedding,
            explanation.terms,
            explanation.biases,
            explanation.collapse,
            explanation.collapse_bias,
        ),
    )


TEXTS = [[5, 17, 3, 44, 17, 20], [9], [8, 7, 6, 5, 4, 3, 2, 1, 9, 8, 7, 6, 5], [4, 4, 4]]
MANY = {
    "gpt2": [
        7,
        duat.targets.Logit(3, contrast=4, position=0),
        duat.targets.LogProbability(),
        duat.targets.Direction(np.arange(12.0), stream=1),
    ],
    "bert": [duat.targets.Similarity([9, 8, 7, 6]), duat.targets.Direction(np.arange(12.0), stream=2)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_many_texts_and_targets_are_those_of_each(name):
    """Beside the model run on the text alone, without padding."""
    model, tokenizer = both(name)
    many = duat.explain(model, TEXTS, MANY[name], tokenizer=tokenizer)
    assert [len(row) for row in many] == [len(MANY[name])] * len(TEXTS)
    for text, row in zip(TEXTS, many):
        ids, real = jnp.array(text), jnp.ones(len(text), bool)
        question = ask(described(model.config), text, MANY[name])
        for asked, explanation in zip(question.targets[0], row):
            passed = forward(model, Inputs(ids, real, None), () if asked.stream is None else (asked.stream,))
            reading = asked.reader(lambda other: (model(jnp.array(other)), len(other))).read(model, passed)
            recording = duat.record(model.hidden)(model.embed(ids))
            place = None if asked.stream is None else recording.streams[asked.stream]
            alone = duat.contributions(recording, reading.readout, target=place)
            assert_sums(explanation, float(reading.value))
            assert len(explanation.tokens) == len(explanation.embedding) == len(text)
            close(explanation.embedding, alone.input.sum(-1))
            for key, part in explanation.terms.items():
                close(part, alone.terms[key])
            biases = {key: alone.offsets[key] for key in explanation.biases if key.name != "entropy"}
            if len(biases) < len(explanation.biases):
                logs = np.asarray(jax.nn.log_softmax(model(ids)[asked.position]))
                biases[duat.Key((), "entropy", 0)] = (np.exp(logs) * logs).sum()
            for key, part in explanation.biases.items():
                close(part, biases[key])


def test_a_list_of_explanations_shows_a_row_for_each():
    model = duat.load()
    tokenizer = model.tokenizer
    found = duat.explain(model, ["for i in range(10", "import"], ["):", None], tokenizer=tokenizer)
    for shown in (str(found), found._repr_html_()):
        assert all(f"[{i}][{k}]" in shown for i in range(2) for k in range(2))
    assert str(found).count("holds") == 4 and "logit of '):' at token 5, '10'" in str(found)
    assert str(found[1]).splitlines()[1].split()[0] == "[0]" and f"{found[1][0].value:.6f}" in str(found[1])
    assert isinstance(found, list) and repr(found).startswith("[[Explanation(")


def test_one_of_many_is_not_in_a_list():
    model, _ = both("gpt2")
    single = duat.explain(model, TEXTS[0], 7)
    for other in (duat.explain(model, TEXTS[:1], 7)[0], duat.explain(model, TEXTS[0], [7])[0]):
        assert other.value == single.value
        jax.tree.map(np.testing.assert_array_equal, parts_of(other), parts_of(single))
    assert len(duat.explain(model, np.array([[1, 2], [3, 4]]))) == 2


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_padding_has_no_part(name):
    model, _ = both(name)
    question = ask(described(model.config), IDS, against=OTHER if name == "bert" else None)
    (batch,) = batches(question.inputs, model.config.positions, 1)
    assert batch.inputs.real.shape == (1, 16)
    ((reading, _),) = pipeline.read_targets(model, batch.inputs, list(question.targets))
    wanted = run.TABLE, run.COLLAPSE
    ((table, collapse),), activations = run._split(model, batch.inputs, [reading], (None,), None, None, wanted)
    neurons = [table.coefficients[key] * activation for key, activation in activations.items()]
    for part in (table.embedding, collapse.tokens, *neurons):
        assert part[0, :6].any()
        assert not part[0, 6:].any()


def test_a_bucket_is_compiled_once():
    model, _ = both("gpt2")
    duat.explain(model, [1, 2, 3], 7)
    compiled = run._split.jitted._cache_size()
    for length in range(1, 16):
        duat.explain(model, list(range(length)), 9, position=0)
    assert run._split.jitted._cache_size() == compiled


def test_float64_needs_to_be_on_in_jax():
    with jax.enable_x64(False), pytest.raises(duat.DuatError, match="jax_enable_x64"):
        duat.load(GOLDEN / "gpt2", dtype=jnp.float64)
