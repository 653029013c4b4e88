"""In-context learning: how dense attention is and how far it reads, the ledger, copying; the command."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from flax import nnx
from helpers import close, modern

import duat_jax as duat
from duat_jax.analysis.context import ledger
from duat_jax.analysis.context_copying import copying, repeated, without_heads
from duat_jax.analysis.context_ledger import COLUMNS
from duat_jax.analysis.context_reach import Reach, block_norms, density, reach, windowed
from duat_jax.analysis.context_runs import Task
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.reference.dense import attention as dense_attention
from duat_jax.verification.networks import randomised

VOCAB, TOKENS = 11, 7
HIDDEN = np.array([False, True, True, True, False, False, False])
TASK = Task(jnp.array([1, 5, 6, 7, 2, 5, 6]), jnp.asarray(HIDDEN), jnp.array([4, 6]), jnp.array([6, 3]))

classic = partial(BlockConfig, arrangement="pre-norm", activation="gelu")


def language_model(block=classic, layers=2, *, heads=2, final_norm=True, causal=True, key=0, **settings):
    one = block(features=8, heads=heads, neurons=10, causal=causal, **settings)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    positions = {"position_embedding": False} if block is modern else {}
    config = duat.Config(
        family="gpt2", blocks=(one,) * layers, vocab=VOCAB, positions=16, head=head, final_norm=final_norm, **positions
    )
    model = duat.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(key))
    return randomised(model, key)


@pytest.fixture(
    scope="module",
    params=[pytest.param(classic, marks=pytest.mark.slow), pytest.param(modern, marks=pytest.mark.slow)],
    ids=["gpt2", "llama"],
)
def model(request):
    return language_model(request.param)


@pytest.fixture(scope="module")
def found(model):
    return ledger(model, TASK)


def weights_of(attention):
    """Return value and output kernels of every query head, cut out by hand."""
    heads, size = attention.heads, attention.head_features
    shared = heads // attention.key_value_heads
    value, output = np.asarray(attention.value.kernel[...]), np.asarray(attention.output.kernel[...])
    values = [value[:, (h // shared) * size : (h // shared + 1) * size] for h in range(heads)]
    return np.stack(values), np.stack([output[h * size : (h + 1) * size] for h in range(heads)])


def patterns_of(model, ids):
    held = duat.record(model.states)(model.embed(ids)).dynamics.held
    return [np.asarray(value) for key, value in held.items() if key.name == "attention.pattern"]


def mean_said(model, ids, mask=None):
    logs = jax.nn.log_softmax(model.output(model.embed(ids), mask))
    return float(logs[TASK.places, TASK.answers].mean())


# How dense attention is, and how far back it reads.


def test_density_and_block_norms_are_those_of_the_dense_matrix():
    model = language_model(heads=4, key_value_heads=2)
    joined = reach(model, TASK.ids)
    patterns = patterns_of(model, TASK.ids)
    for i, block in enumerate(model.stack.blocks):
        dense = np.asarray(dense_attention(jnp.asarray(patterns[i]), *map(jnp.asarray, weights_of(block.attention))))
        blocks = dense.reshape(TOKENS, 8, TOKENS, 8)
        close(joined.norms[i], np.sqrt((blocks**2).sum((1, 3))))
        assert joined.density[i] == np.count_nonzero(dense) / dense.size == (TOKENS + 1) / (2 * TOKENS)


def test_density_counts_the_entries_that_only_some_heads_fill():
    random = np.random.default_rng(0)
    pattern = (random.random((2, 4, 4)) < 0.5) * random.random((2, 4, 4))
    value, output = random.normal(size=(2, 6, 3)), random.normal(size=(2, 3, 6))
    value[0, :4], value[1, 3:] = 0, 0  # each head reads its own slice of the features
    dense = np.asarray(dense_attention(*map(jnp.asarray, (pattern, value, output))))
    assert 0 < density(pattern, value, output) == np.count_nonzero(dense) / dense.size < 0.5
    close(
        block_norms(*map(jnp.asarray, (pattern, value, output))), np.linalg.norm(dense.reshape(4, 6, 4, 6), axis=(1, 3))
    )


@pytest.mark.slow
def test_without_a_mask_the_matrix_is_full_and_that_of_a_model_that_has_none():
    joined = reach(language_model(), TASK.ids, masked=False)
    everywhere = reach(language_model(causal=False), TASK.ids)
    assert (joined.density == 1).all() and (everywhere.density == 1).all()
    # Only the first layer reads the same stream in both.
    close(joined.norms[0], everywhere.norms[0])
    assert np.abs(joined.norms[1] - everywhere.norms[1]).max() > 1e-3


def test_a_window_reads_as_far_back_as_a_convolution():
    model = language_model(heads=4, key_value_heads=2)
    joined = reach(windowed(model, 3), TASK.ids)
    assert (joined.beyond(3) == 0).all() and (joined.beyond(2)[:, 2:] > 0).all()
    assert (joined.density == sum(min(q + 1, 3) for q in range(TOKENS)) / TOKENS**2).all()
    # What it was made of still reads everything.
    assert (reach(model, TASK.ids).beyond(3)[:, -1] > 0).all()


def test_shares_and_distances_of_a_pattern_that_is_known():
    norms = np.array([[[2.0, 0, 0], [3, 4, 0], [0, 0, 5]]])
    joined = Reach(np.ones(1), norms)
    np.testing.assert_allclose(joined.distance, [[0, 9 / 25, 0]])
    np.testing.assert_allclose(joined.tokens_read, [[1, 625 / (81 + 256), 1]])
    np.testing.assert_allclose(joined.beyond(1), [[0, 9 / 25, 0]])


# The ledger.


def test_the_columns_sum_to_the_difference_of_two_plain_runs(model, found):
    seen, hidden = mean_said(model, TASK.ids), mean_said(model, TASK.ids, jnp.asarray(~HIDDEN))
    close(found.values, (seen, hidden))
    assert abs(seen - hidden) > 1e-3
    assert found.layers.shape == (3, len(COLUMNS))
    close(found.layers.sum() + sum(found.jumps.values()), seen - hidden)
    close(found.mask.sum(), seen - hidden)
    form = found.form
    parts = form.path.sum() + form.bias + form.outer.sum() + form.inner.sum() + form.inner_bias.sum() + form.both.sum()
    close(parts, seen - hidden)
    for completeness in (found.completeness, found.mask_completeness, form.completeness):
        assert completeness.verdict == "holds"


def by_hand(model, blind):
    """The forward pass with a mask for each layer: in blind ones nothing after the hidden part attends to it."""
    x = model.embed(TASK.ids)
    causal = np.tril(np.ones((TOKENS, TOKENS), bool))
    for i, block in enumerate(model.stack.blocks):
        attention, h = block.attention, block.norm_1(x)
        queries, keys, values = (
            part(h).reshape(TOKENS, -1, attention.head_features)
            for part in (attention.query, attention.key, attention.value)
        )
        shared = attention.heads // attention.key_value_heads
        if attention.rotary is not None:
            queries, keys = attention.rotary(queries), attention.rotary(keys)
        keys, values = jnp.repeat(keys, shared, 1), jnp.repeat(values, shared, 1)
        scores = jnp.einsum("qhd,khd->hqk", queries, keys) * attention.scale
        if attention.cap is not None:
            scores = attention.cap * jnp.tanh(scores / attention.cap)
        visible = causal & ~(blind[i] & ~HIDDEN[:, None] & HIDDEN)
        pattern = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf))
        x = x + attention.output(jnp.einsum("hqk,khd->qhd", pattern, values).reshape(TOKENS, -1))
        x = x + block.mlp(block.norm_2(x))
    logs = jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.unembedding))
    return logs[TASK.places, TASK.answers].mean()


def test_runs_with_blind_layers_are_those_written_out_by_hand(model, found):
    seen = by_hand(model, [False, False])
    close(found.values[0], seen)
    close(found.hidden_at, [seen - by_hand(model, [i == 0, i == 1]) for i in range(2)])
    close(found.hidden_from, [seen - by_hand(model, [True, True]), seen - by_hand(model, [False, True])])


def test_two_tokens_by_hand():
    """One head that reads a hidden token and itself, nothing after it: all of it is attention that moved."""
    model = language_model(
        layers=1, final_norm=False, norm_1=False, norm_2=False, attention_bias=False, output_bias=False
    )
    (block,) = model.stack.blocks
    block.mlp.output.kernel[...] = 0 * block.mlp.output.kernel[...]
    ids, hidden = jnp.array([3, 5]), jnp.array([True, False])
    found = ledger(model, Task(ids, hidden, jnp.array([1]), jnp.array([2])), run_again=False)

    x = np.asarray(model.embed(ids))
    table = np.asarray(model.embedding.token[...])
    values, outputs = weights_of(block.attention)
    read = np.einsum("km,hmd,hdn->hkn", x, values, outputs)
    (pattern,) = patterns_of(model, ids)
    moved = pattern[:, 1] - np.array([0.0, 1.0])  # without the hidden token all attention is the other's own
    after = x[1] + np.asarray(block.mlp.output.bias[...])
    logits = [table @ (after + (p[..., None] * read).sum((0, 1))) for p in (pattern[:, 1], pattern[:, 1] - moved)]
    # log p = l_2 − logsumexp(l); the logsumexp's change is the mean of the logits' by the logarithmic means of both.
    a, b = (z - np.log(np.exp(z).sum()) for z in logits)
    means = (np.exp(a) - np.exp(b)) / (a - b)
    readout = table[2] - means @ table / means.sum()
    expected = moved[..., None] * read @ readout[:, None]
    close(found.patterns[0], expected[..., 0])
    close(found.difference, a[2] - b[2])
    assert found.hidden_at is None and found.as_dict()["hidden_at"] is None and "run again" not in str(found)[:900]
    close(found.heads[0], found.patterns[0].sum(-1))
    close(found.form.path, expected.sum((0, 2))[::-1])
    assert np.abs(expected).min() > 1e-6
    for nothing in (*found.held.values(), *found.jumps.values(), *np.ravel(found.form.outer), found.form.bias):
        assert abs(nothing) < 1e-12


def test_heads_and_tokens_are_credited_to_sum_with_everything_else(found):
    """Rows of a pattern sum to one: the same value at every key brings nothing, and each query's parts stay its own."""
    assert found.patterns.shape == (2, 2, TOKENS) and found.heads.shape == (2, 2)
    others = sum(part for key, part in found.held.items() if key.name != "attention.pattern")
    close(found.patterns.sum() + others, found.difference)
    close(found.layers[:, 0].sum(), found.patterns[..., HIDDEN].sum())
    # The first layer's input doesn't move: what its heads mix moves by their patterns alone.
    close(found.heads[0], found.patterns[0].sum(-1))
    assert np.abs(found.heads[1] - found.patterns[1].sum(-1)).max() > 1e-6


def closed_form(model, mask):
    """Every parameter of the closed form as a dense matrix."""
    form = duat.unroll(lambda x: model.stack(model.first(x), mask), model.embed(TASK.ids))
    size = form.x0.size
    terms = range(1, len(form.terms) + 1)
    return {
        "P": np.asarray(form.input_map().dense()).reshape(size, size),
        "q": np.asarray(form.bias()).ravel(),
        "B": [np.asarray(form.inner_map(j).dense()).reshape(-1, size) for j in terms],
        "c": [np.asarray(form.inner_bias(j)).ravel() for j in terms],
        "C": [np.asarray(form.outer_map(j).dense()).reshape(size, -1) for j in terms],
        "σ": [np.asarray(form.activate(j, form.inner_map(j)(form.x0) + form.inner_bias(j))).ravel() for j in terms],
        "x": np.asarray(form.value),
        "x0": np.asarray(form.x0),
    }


@pytest.mark.slow
def test_the_closed_forms_columns_are_those_of_its_dense_parameters(model, found):
    one, other = (closed_form(model, mask) for mask in (None, jnp.asarray(~HIDDEN)))
    x0 = one["x0"]
    of_hidden = np.where(HIDDEN[:, None], x0, 0).ravel()
    of_others = x0.ravel() - of_hidden

    def read(x):
        logs = jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.unembedding))
        return logs[TASK.places, TASK.answers].mean()

    u = np.asarray(duat.secant(read)(one["x"], other["x"]).multiplier).ravel()
    path = u @ (one["P"] - other["P"])
    close(found.form.path, [path @ of_others, path @ of_hidden])
    close(found.form.bias, u @ (one["q"] - other["q"]))
    for j in range(2):
        neurons = len(one["c"][j]) // TOKENS
        hidden = np.repeat(HIDDEN, neurons)
        # The hidden part's own terms are read in one run only, and counted as they are in that one.
        active = np.where(hidden, one["σ"][j], other["σ"][j])
        outer, changed = u @ (one["C"][j] - other["C"][j]), one["σ"][j] - active
        close(found.form.outer[j], [(outer * active)[~hidden].sum(), (outer * active)[hidden].sum()])
        close(found.form.both[j], outer @ changed)
        inner, bias = one["B"][j] - other["B"][j], one["c"][j] - other["c"][j]
        z = np.where(hidden, 1, inner @ x0.ravel() + bias)
        slope = np.where(hidden, 0, changed / np.where(z == 0, 1, z))
        carried = u @ other["C"][j] * slope
        # Near points have the derivative's slope, which is exact to about eps^(2/3).
        np.testing.assert_allclose(
            [*found.form.inner[j], found.form.inner_bias[j]],
            [carried @ (inner @ of_others), carried @ (inner @ of_hidden), carried @ bias],
            atol=1e-9,
        )


def test_a_hidden_part_of_no_tokens_adds_nothing(model):
    found = ledger(model, TASK._replace(hidden=jnp.zeros(TOKENS, bool)))
    assert found.values[0] == found.values[1]
    for parts in (found.patterns, found.layers, found.heads, found.mask, found.form.outer, found.form.inner):
        assert not parts.any()
    for parts in (found.hidden_at, found.hidden_from):
        close(parts, np.zeros(2))


@pytest.mark.slow
def test_layers_of_neurons_and_of_experts_are_one_account():
    """What a router's other choice brings is a part by its name, and the columns sum with it."""
    size = {"features": 8, "heads": 2, "causal": True, "activation": "silu"}
    dense = modern(**size, neurons=10)
    experts = modern(**(size | {"mlp": "experts"}), neurons=6, experts=4, chosen_experts=2)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    settings = {"vocab": VOCAB, "positions": 16, "head": head, "final_norm": True, "position_embedding": False}
    config = duat.Config(family="mixtral", blocks=(dense, experts, dense), **settings)
    model = randomised(duat.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)
    found = ledger(model, TASK, run_again=False)
    seen, hidden = mean_said(model, TASK.ids), mean_said(model, TASK.ids, jnp.asarray(~HIDDEN))
    close(found.layers.sum() + sum(found.jumps.values()), seen - hidden)
    form = found.form
    parts = form.path.sum() + form.bias + form.outer.sum() + form.inner.sum() + form.inner_bias.sum() + form.both.sum()
    close(parts, seen - hidden)
    assert form.both.shape == (3,)


def test_an_account_shows_itself_and_is_plain_data(found):
    text = str(found)
    assert "read-out" in text and "mask alone" in text and "c_j" in text and text.count("holds") == 2
    said = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    close(np.sum(said["layers"]), said["difference"])
    assert said["completeness"]["verdict"] == "holds" and len(said["form"]["outer"]) == 2
    assert len(found.plot().axes) == 2


def test_what_cannot_be_asked_is_refused():
    model = language_model(layers=1)
    with pytest.raises(duat.BadText, match="causal language models"):
        ledger(language_model(layers=1, causal=False), TASK)
    with pytest.raises(duat.BadText, match="stands in the hidden part"):
        ledger(model, TASK._replace(places=jnp.array([2, 6])))
    with pytest.raises(duat.BadText, match="the text has 20 tokens: give 1 to 16"):
        ledger(model, Task(jnp.zeros(20, int), jnp.zeros(20, bool), jnp.array([3]), jnp.array([3])))
    wrong = TASK._replace(ids=TASK.ids + 7, places=jnp.array([-1]))
    with pytest.raises(duat.BadText, match=r"1 places and 2 answers.*from 0 to 6, the text.*ids from 0 to 10"):
        ledger(model, wrong)
    with pytest.raises(duat.BadText, match="a sequence of 1 tokens"):
        copying(model, [0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("key", [0, 1, 2])
def test_the_closed_form_of_an_activation_with_a_corner_is_exact_where_little_moves(key):
    block = BlockConfig(arrangement="pre-norm", activation="relu", features=32, heads=2, neurons=256, causal=True)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    config = duat.Config(family="gpt2", blocks=(block,) * 2, vocab=VOCAB, positions=16, head=head)
    model = randomised(duat.Transformer(config, dtype=jnp.float32, rngs=nnx.Rngs(key)), key)
    for block in model.stack.blocks:
        block.attention.output.kernel[...] *= 0.003
    assert ledger(model, TASK, run_again=False).form.completeness.verdict == "holds"


@pytest.mark.slow
def test_a_text_whose_length_turns_its_positions_is_read_as_it_is():
    model = duat.load(GOLDEN / "llama-dynamic", dtype=jnp.float64)
    ids, hidden = jnp.arange(5, 17), jnp.arange(12) == 3
    found = ledger(model, Task(ids, hidden, jnp.array([11]), jnp.array([4])), run_again=False)
    close(found.values[0], np.asarray(jax.nn.log_softmax(model(ids)[-1])[4]))


def test_a_layer_that_reads_nothing_has_no_share():
    model = language_model(layers=1)
    model.stack.blocks[0].attention.output.kernel[...] *= 0
    found = reach(model, TASK.ids)
    assert not found.shares.any() and not found.distance.any() and not found.tokens_read.any()


# Copying.


@pytest.mark.slow
def test_a_sequence_twice_is_asked_token_by_token():
    model = language_model()
    task = repeated([1], np.array([4, 8, 2]))
    assert task.ids.tolist() == [1, 4, 8, 2, 4, 8, 2]
    assert np.asarray(task.hidden).nonzero()[0].tolist() == [1, 2, 3]
    assert task.ids[task.places + 1].tolist() == task.answers.tolist() == [8, 2]
    found = copying(model, [1], 3, seed=0, heads=2)
    ids = repeated([1], np.random.default_rng(0).integers(0, VOCAB, 3)).ids
    logs = np.asarray(jax.nn.log_softmax(model(ids)))
    losses = -np.take_along_axis(logs[:-1], np.asarray(ids)[1:, None], 1)[:, 0]
    close(found.first, losses[1:3])
    close(found.second, losses[4:6])
    close(found.ledger.values[0], -losses[4:6].mean())
    assert found.predicted[0] == found.ledger.heads.max()


def test_with_all_heads_as_if_nothing_were_seen_nothing_is_gained(model, found):
    gone = np.zeros((2, *found.heads.shape), bool)
    gone[1] = True
    close(without_heads(model, TASK, jnp.asarray(gone)), found.values)


# Questions and the command.
