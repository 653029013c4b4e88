"""Context as a rank-one update of weights: the theorem, what it doesn't tell, and the study on a small model."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, far, modern, near, numbers

import duat_jax as duat
from duat_jax.in_context.prompts import draw_question
from duat_jax.models.config import Head
from duat_jax.nn import MLP, BlockConfig, GatedMLP
from duat_jax.verification.networks import randomised
from experiments.in_context import updates
from experiments.in_context.rank_one import (
    Chosen,
    States,
    Update,
    run_plainly,
    run_to_target,
    run_updated,
    update_between,
    updated_mlp,
    updated_model,
)
from experiments.in_context.rank_one_identity import compose, measure_closed_form, measure_identity
from experiments.in_context.rank_one_study import (
    IN_VIEW,
    KINDS,
    NAMES,
    measure_updates,
    padded,
    queries,
)

FEATURES, LAYERS = 8, 3
WITH, WITHOUT = [1, 5, 9, 7, 2, 4, 6], [1, 4, 6]

classic = partial(BlockConfig, arrangement="pre-norm", activation="gelu")
blocks = pytest.mark.parametrize("block", [classic, modern], ids=["gpt2", "llama"])


def language_model(block=classic, vocab=11, layers=LAYERS):
    config = duat.models.Config(
        family="gpt2",
        blocks=(block(features=FEATURES, heads=2, neurons=10, causal=True),) * layers,
        vocab=vocab,
        positions=64,
        head=Head(kind="next token", outputs=vocab, tied=True),
        position_embedding=block is classic,
    )
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def last_logs(model, ids):
    """Return the log-probabilities after a text, from the model's own forward pass."""
    return jax.nn.log_softmax(model(jnp.array(ids))[-1])


def all_layers(tokens, mlps=1, attentions=0, streams=0):
    return Chosen(jnp.asarray(tokens, float), *(number * jnp.ones(LAYERS) for number in (mlps, attentions, streams)))


# The theorem.


@pytest.mark.parametrize("kind", [MLP, GatedMLP])
def test_a_rank_one_update_of_its_first_weights_maps_any_input_of_an_mlp_to_the_output_of_any_other(kind):
    """So that it holds for the state with a context is no evidence of learning: these vectors are random."""
    mlp = randomised(kind(FEATURES, 10, "gelu", dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)
    z, other = numbers(2, FEATURES)
    inputs = jnp.asarray(z), jnp.asarray(other)
    new = updated_mlp(mlp, update_between(*(States(x, x, x) for x in inputs), jnp.zeros(FEATURES)))
    for name in ("input", "factor") if kind is GatedMLP else ("input",):
        before, after = (np.asarray(getattr(each, name).kernel[...]) for each in (mlp, new))
        close(after - before, np.outer(z, (other - z) @ before) / (z @ z))
        assert np.linalg.matrix_rank(after - before) == 1
    before, wanted = mlp(jnp.stack(inputs))
    close(new(inputs[0][None])[0], wanted)
    assert far(before, wanted)


@blocks
@pytest.mark.parametrize("tokens", [(0, 0, 1), (1, 1, 1)], ids=["last token", "all tokens"])
def test_with_updates_of_all_layers_a_model_says_without_the_context_what_it_says_after_it(block, tokens):
    model, last = language_model(block), jnp.array(2)
    target = run_plainly(model, jnp.array(WITH), jnp.array(6))[1]
    logs, updates = run_to_target(model, jnp.array(WITHOUT), last, target, all_layers(tokens, streams=1))
    close(logs, last_logs(model, WITH))
    by_attention = run_to_target(model, jnp.array(WITHOUT), last, target, all_layers(tokens, attentions=1))[0]
    # A learned embedding of the place moves the first stream, too, where the context is removed.
    assert far(by_attention, logs) == (block is classic)
    assert far(last_logs(model, WITHOUT), last_logs(model, WITH))
    if all(tokens):
        close(last_logs(updated_model(model, updates), WITHOUT), last_logs(model, WITH))


@blocks
def test_a_run_with_updates_is_that_of_the_model_with_dense_updated_weights(block):
    model = language_model(block)
    updates = Update(*(jnp.asarray(numbers(LAYERS, FEATURES, key=key)) for key in range(3)))
    ids = jnp.array([*WITH, 0, 0])
    close(run_updated(model, ids, jnp.array(6), updates, jnp.ones(9)), last_logs(updated_model(model, updates), WITH))
    nothing = run_updated(model, ids, jnp.array(6), updates, jnp.zeros(9))
    close(nothing, last_logs(model, WITH))
    close(nothing, run_plainly(model, ids, jnp.array(6))[0])


@blocks
def test_without_the_residual_the_mlps_outputs_are_the_targets_but_the_answer_is_another(block):
    model, ids = language_model(block), jnp.array(WITHOUT)
    target = run_plainly(model, jnp.array(WITH), jnp.array(6))[1]
    logs, updates = run_to_target(model, ids, jnp.array(2), target, all_layers((0, 0, 1)))
    # The stream is the first embedding, attention's own output layer by layer, and the MLPs' outputs on the target.
    x = model.embed(ids)
    for i, layer in enumerate(model.stack.blocks):
        stream = x + layer.attention(layer.norm_1(x))
        x = stream + layer.mlp(layer.norm_2(stream).at[2].set(target.normed[i]))
    close(logs, jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.embedding.token[...])[2]))
    assert far(logs, last_logs(model, WITH)) and not np.any(updates.residual)


# The closed form.


@blocks
def test_the_change_of_the_mlps_input_times_its_weights_is_the_change_of_the_closed_forms_pre_activation(block):
    model = language_model(block)
    part = jnp.array([0, 1, 1, 1, 1, 0, 0], bool)
    texts = padded(WITH, 7), padded(WITHOUT, 3)
    forms = compose(model, texts[0], part), compose(model, texts[1], jnp.zeros(3, bool))
    states = [run_plainly(model, *text)[1] for text in texts]
    for i, layer in enumerate(model.stack.blocks):
        kernel = layer.mlp.input.kernel[...]
        change = (states[0].normed[i] - states[1].normed[i]) @ kernel
        close(sum(first[i] - second[i] for first, second in zip(*forms, strict=True)), change)
        for form, each in zip(forms, states, strict=True):
            close(sum(found[i] for found in form), layer.mlp.input(each.normed[i]))
    assert not np.any(forms[1].demonstrations) and far(forms[0].demonstrations, 0)


# The study.


@pytest.fixture(scope="module")
def tokenizer():
    return duat.load_tokenizer()


@pytest.fixture(scope="module")
def small(tokenizer):
    return language_model(modern, vocab=tokenizer.get_vocab_size(), layers=2)


def test_queries_stand_after_the_same_demonstrations_and_have_other_answers(tokenizer):
    own, *others = queries(tokenizer, "antonyms", 1)
    question = draw_question(tokenizer, "antonyms", 4, seed=1)
    alone, tokens = question.ids[~question.hidden], int(question.hidden.sum())
    assert own.alone.ids[: len(alone)].tolist() == alone.tolist() and own.answer == question.answer
    assert own.after["right"].ids[: len(question.ids)].tolist() == question.ids.tolist()
    for query in others:
        assert query.answer != own.answer
        for kind in KINDS:
            assert query.after[kind].ids[:tokens].tolist() == own.after[kind].ids[:tokens].tolist()
            assert query.after[kind].ids[query.after[kind].last] == question.ids[-1]
    texts = [own.after[kind].ids.tolist() for kind in ("right", "exchanged", "shuffled")]
    assert all(sorted(text) == sorted(texts[0]) for text in texts) and len(set(map(tuple, texts))) == 3


def test_the_study_gives_back_all_of_the_gain_at_the_same_query_by_the_theorem(small, tokenizer):
    found = measure_updates(small, tokenizer, "antonyms", 1)
    gains = pd.DataFrame(found["gains"]).set_index(["query", "demonstrations", "updated"]).sort_index()
    for kind in KINDS:
        own = gains.loc["same query", kind]
        assert {*own.index} == {IN_VIEW, *NAMES} == {*gains.loc["other queries", kind].index}
        for place in ("last token", "all tokens"):
            columns = ["answer", "any answer"]
            near(own.loc[f"MLPs and attention, {place}", columns], own.loc[IN_VIEW, columns], within=1e-9)
        assert far(own.loc["MLPs, last token", "answer"], own.loc[IN_VIEW, "answer"])
        assert own.loc[IN_VIEW, "own answer"] == own.loc[IN_VIEW, "answer"]
    single = pd.DataFrame(found["single"])
    assert len(single) == 6 and all(len(gain) == len(small.stack.blocks) for gain in single.gain)
    size, *cosines = found["updates"].values()
    assert all(-1 <= cosine <= 1 for cosine in cosines) and size > 0


def test_the_study_finds_the_identity_for_any_context_and_the_closed_form_in_it(small, tokenizer):
    found = measure_identity(small, tokenizer, "antonyms", 1, np.arange(64))
    assert list(found) == ["right", "unrelated text", "random vectors"]
    for errors in found.values():
        near([errors["error of the MLP"], errors["error of the layer"]], 0, within=1e-10)
        assert errors["change"] > 0.01
    form = measure_closed_form(small, tokenizer, "antonyms", 1)
    near(form.pop("error"), 0, within=1e-10)
    near(sum(form.values()), 1, within=1e-10)


# What decides.


def gains_of(own, other, first):
    """Return gains of ten draws: the shares that MLPs and all updates give, and the first query's answer beyond."""
    rows = []
    for draw in range(10):
        view = 2.0 + 0.1 * draw
        for query, updated, gain, own_answer in (
            ("same query", IN_VIEW, view, 0.0),
            ("same query", "MLPs, last token", own * view, 0.0),
            ("other queries", IN_VIEW, view, 1.0),
            (
                "other queries",
                "MLPs and attention, all tokens",
                other * view + 0.01 * (draw % 2),
                1.0 + first + 0.01 * draw,
            ),
        ):
            keys = {"task": "antonyms", "draw": draw, "query": query, "demonstrations": "right", "updated": updated}
            rows.append(keys | {"answer": gain, "own answer": own_answer})
    return {"gains": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0.8, 0.9975, -1.0), ["confirmed", "confirmed", "refuted"]),
        ((0.2, 0.3, 1.0), ["refuted", "refuted", "confirmed"]),
        ((0.2, 0.7, 1.0), ["refuted", "refuted", "mixed"]),
    ],
)
def test_verdicts_on_updates_follow_the_stated_views(numbers, expected):
    frames = gains_of(*numbers)
    assert [str(of.verdict(frames)) for of in updates.STUDY.predictions] == expected
    near(updates.BY_WEIGHTS.estimate(frames).value, numbers[0], within=1e-9)
    near(updates.FIRST.estimate(frames).value, numbers[2] + 0.045, within=1e-9)
