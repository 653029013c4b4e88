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
from duat_jax.in_context.compute import ledger
from duat_jax.in_context.copying import measure_copying, repeated, without_heads
from duat_jax.in_context.reach import Reach, block_norms, density, measure_reach, written
from duat_jax.in_context.result import COLUMNS
from duat_jax.in_context.runs import Task
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.reference.dense import attention as dense_attention
from duat_jax.verification.networks import randomised
from experiments.in_context.windows import window, window_losses

VOCAB, TOKENS = 11, 7
HIDDEN = np.array([False, True, True, True, False, False, False])
OTHER = jnp.array([1, 9, 3, 8, 2, 5, 6])
TASK = Task(jnp.array([1, 5, 6, 7, 2, 5, 6]), jnp.asarray(HIDDEN), jnp.array([4, 6]), jnp.array([6, 3]))

classic = partial(BlockConfig, arrangement="pre-norm", activation="gelu")


def language_model(
    block=classic, layers=2, *, heads=2, final_norm=True, causal=True, key=0, embedding_norm=False, **settings
):
    one = block(features=8, heads=heads, neurons=10, causal=causal, **settings)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    positions = {"position_embedding": False} if block is modern else {}
    config = duat.models.Config(
        family="gpt2",
        blocks=(one,) * layers,
        vocab=VOCAB,
        positions=16,
        head=head,
        final_norm=final_norm,
        embedding_norm=embedding_norm,
        **positions,
    )
    model = duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(key))
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


def dense_attentions(model, ids):
    """Return `W'_HVO` of every layer as a dense array, `[queries, features, keys, features]`."""
    pairs = zip(patterns_of(model, ids), model.stack.blocks, strict=True)
    dense = [dense_attention(*map(jnp.asarray, (pattern, *weights_of(block.attention)))) for pattern, block in pairs]
    return [np.asarray(each).reshape(len(ids), 8, len(ids), 8) for each in dense]


def test_density_and_the_maps_norms_are_those_of_the_dense_matrix():
    model = language_model(heads=4, key_value_heads=2)
    joined = measure_reach(model, TASK.ids, weight="map")
    for i, dense in enumerate(dense_attentions(model, TASK.ids)):
        close(joined.norms[i], np.sqrt((dense**2).sum((1, 3))))
        assert joined.density[i] == np.count_nonzero(dense) / dense.size == (TOKENS + 1) / (2 * TOKENS)


def test_what_is_written_is_the_dense_map_with_the_norm_applied_to_the_stream():
    """Its norm is Kobayashi's weight, and over all tokens it sums to what attention returns but for its output bias."""
    model = language_model(heads=4, key_value_heads=2)
    joined = measure_reach(model, TASK.ids)
    x = model.embed(TASK.ids)
    streams = []
    for block in model.stack.blocks:
        streams.append(x)
        x = block(x)
    for i, (block, x, dense) in enumerate(zip(model.stack.blocks, streams, dense_attentions(model, TASK.ids))):
        normed = np.asarray(block.norm_1(x))
        biases = np.einsum(
            "hqk,hd,hda->qka",
            patterns_of(model, TASK.ids)[i],
            value_biases(block.attention),
            weights_of(block.attention)[1],
        )
        vectors = np.einsum("qakb,kb->qka", dense, normed) + biases
        close(joined.norms[i], np.linalg.norm(vectors, axis=-1))
        total = vectors.sum(1)
        close(total + np.asarray(block.attention.output.bias[...]), block.attention(block.norm_1(x)))
        close(joined.along[i], np.einsum("qka,qa->qk", vectors, total) / (total**2).sum(-1, keepdims=True))
        close(joined.along[i].sum(-1), np.ones(TOKENS))


def value_biases(attention):
    shared, size = attention.heads // attention.key_value_heads, attention.head_features
    bias = np.asarray(attention.value.bias[...])
    return np.stack([bias[(h // shared) * size : (h // shared + 1) * size] for h in range(attention.heads)])


def test_what_is_written_goes_through_the_norm_behind_attention():
    """That norm's scale is the same for all tokens that a position reads, and cancels in the shares."""
    model = language_model(modern, output_norms=True)
    joined, x = measure_reach(model, TASK.ids), model.embed(TASK.ids)
    block = model.stack.blocks[0]
    values = np.einsum("kb,hbd->hkd", np.asarray(block.norm_1(x)), weights_of(block.attention)[0])
    each = np.einsum("hqk,hkd,hda->qka", patterns_of(model, TASK.ids)[0], values, weights_of(block.attention)[1])
    squares = ((each * np.asarray(block.attention_norm.scale[...])) ** 2).sum(-1)
    close(joined.shares[0], squares / squares.sum(-1, keepdims=True))


def test_a_first_token_with_a_small_scale_and_a_small_value_has_a_small_share():
    """The map alone gives all of the weight to a token that is attended to and writes nothing."""
    pattern = np.array([[[0.9, 0.1]]])
    value, output = np.eye(2)[None], np.eye(2)[None]
    vectors = np.array([[[0.01, 0], [0, 1.0]]])
    of_map = np.asarray(block_norms(*map(jnp.asarray, (pattern, value, output))))[0]
    close(of_map / of_map.sum(), [0.9, 0.1])
    norms = np.asarray(written(jnp.asarray(pattern), jnp.asarray(vectors)).norms)[0]
    close(norms, [0.009, 0.1])


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
    joined = measure_reach(language_model(), TASK.ids, masked=False)
    everywhere = measure_reach(language_model(causal=False), TASK.ids)
    assert (joined.density == 1).all() and (everywhere.density == 1).all()
    # Only the first layer reads the same stream in both.
    close(joined.norms[0], everywhere.norms[0])
    assert np.abs(joined.norms[1] - everywhere.norms[1]).max() > 1e-3


def test_a_window_reads_as_far_back_as_a_convolution():
    model = language_model(heads=4, key_value_heads=2, window=3)
    joined = measure_reach(model, TASK.ids)
    assert (joined.beyond(3) == 0).all() and (joined.beyond(2)[:, 2:] > 0).all()
    assert (joined.density == sum(min(q + 1, 3) for q in range(TOKENS)) / TOKENS**2).all()


def losses_of(model, texts):
    logs = jax.nn.log_softmax(model(jnp.asarray(texts))[:, :-1])
    return -np.take_along_axis(np.asarray(logs), texts[:, 1:, None], -1)[..., 0].mean(1)


@pytest.mark.parametrize("block", [classic, pytest.param(modern, marks=pytest.mark.slow)])
def test_cut_patterns_lose_what_a_model_with_windows_loses(block):
    texts = np.random.default_rng(0).integers(0, VOCAB, (3, TOKENS))
    cut = window_losses(language_model(block), texts, window(TOKENS, 3))
    close(cut, losses_of(language_model(block, window=3), texts))
    everything = losses_of(language_model(block), texts)
    close(window_losses(language_model(block), texts, window(TOKENS, TOKENS)), everything)
    assert np.abs(cut - everything).max() > 1e-3


def test_the_first_token_is_kept_in_every_layer():
    """Written out by hand: a mask with the last two tokens and the first one."""
    model, text = language_model(), np.array([[1, 5, 6, 7, 2, 5, 6]])
    places = np.arange(TOKENS)
    visible = (places[:, None] >= places) & ((places[:, None] - places < 2) | (places == 0))
    x = by_hand_stack(model, model.embed(jnp.asarray(text[0])), [visible] * 2)
    logs = jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.unembedding))
    loss = -np.take_along_axis(np.asarray(logs)[:-1], text[0, 1:, None], 1).mean()
    close(window_losses(model, text, window(TOKENS, 2, [0])), [loss])
    assert abs(window_losses(model, text, window(TOKENS, 2))[0] - loss) > 1e-4
    with pytest.raises(duat.InvalidInput, match="the texts have 600 tokens: give at most 512"):
        window_losses(model, np.zeros((1, 600), int), window(600, 2))


def test_shares_and_distances_of_a_pattern_that_is_known():
    norms = np.array([[[2.0, 0, 0], [3, 4, 0], [0, 0, 5]]])
    joined = Reach(np.ones(1), norms, norms)
    close(joined.distance, [[0, 9 / 25, 0]])
    close(joined.tokens_read, [[1, 625 / (81 + 256), 1]])
    close(joined.beyond(1), [[0, 9 / 25, 0]])


# The ledger.


def test_the_columns_sum_to_the_difference_of_two_plain_runs(model, found):
    seen, hidden = mean_said(model, TASK.ids), mean_said(model, TASK.ids, jnp.asarray(~HIDDEN))
    close(found.values, (seen, hidden))
    assert abs(seen - hidden) > 1e-3
    assert found.layers.shape == (3, len(COLUMNS)) and tuple(found.totals) == COLUMNS
    close(sum(found.totals.values()), found.layers.sum())
    close(found.layers.sum() + sum(found.discontinuities.values()), seen - hidden)
    close(found.reads.sum(), seen - hidden)
    form = found.form
    close(sum(np.sum(part) for part in form[:-1]), seen - hidden)
    for completeness in (found.completeness, found.reads_completeness, form.completeness):
        assert completeness.verdict == "holds"


def by_hand_stack(model, x, visible, given=None):
    """The stack with a mask for each layer, written out; in some layers the part's stream is given."""
    for i, block in enumerate(model.stack.blocks):
        if given is not None and given[i] is not None:
            x = jnp.where(HIDDEN[:, None], given[i], x)
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
        pattern = jax.nn.softmax(jnp.where(visible[i], scores, -jnp.inf))
        x = x + attention.output(jnp.einsum("hqk,khd->qhd", pattern, values).reshape(TOKENS, -1))
        x = x + block.mlp(block.norm_2(x))
    return x


CAUSAL = np.tril(np.ones((TOKENS, TOKENS), bool))


def read_by_hand(model, x):
    logs = jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.unembedding))
    return logs[TASK.places, TASK.answers].mean()


def by_hand(model, blind):
    """The forward pass in which in blind layers nothing after the hidden part attends to it."""
    visible = [CAUSAL & ~(each & ~HIDDEN[:, None] & HIDDEN) for each in blind]
    return read_by_hand(model, by_hand_stack(model, model.embed(TASK.ids), visible))


def exchanged_by_hand(model, other):
    """The forward pass in which some layers read the part's streams from a run of the other text."""
    given = []
    for i, each in enumerate(other):
        x = model.embed(OTHER if each else TASK.ids)
        for block in model.stack.blocks[:i]:
            x = block(x)
        given.append(x)
    return read_by_hand(model, by_hand_stack(model, model.embed(TASK.ids), [CAUSAL] * 2, given))


def test_runs_with_blind_layers_are_those_written_out_by_hand(model, found):
    seen = by_hand(model, [False, False])
    close(found.values[0], seen)
    close(found.again_at, [seen - by_hand(model, [i == 0, i == 1]) for i in range(2)])
    close(found.again_from, [seen - by_hand(model, [True, True]), seen - by_hand(model, [False, True])])


@pytest.fixture(scope="module")
def exchange(model):
    return ledger(model, TASK._replace(other=OTHER))


def test_with_another_part_the_columns_sum_to_the_difference_of_two_plain_runs(model, exchange):
    first, second = mean_said(model, TASK.ids), mean_said(model, OTHER)
    close(exchange.values, (first, second))
    assert abs(first - second) > 1e-3
    close(exchange.inputs.sum() + exchange.layers.sum() + sum(exchange.discontinuities.values()), first - second)
    close(exchange.reads.sum(), first - second)
    close(sum(np.sum(part) for part in exchange.form[:-1]), first - second)
    for completeness in (exchange.completeness, exchange.reads_completeness, exchange.form.completeness):
        assert completeness.verdict == "holds"
    # Inputs move at the part alone, and parameters both there and after it.
    assert not exchange.inputs[~HIDDEN].any() and np.abs(exchange.inputs[HIDDEN]).min() > 1e-9
    assert np.abs(exchange.layers[:, 0]).sum() > 1e-6 and np.abs(exchange.layers[:, 1:]).sum() > 1e-6
    assert "Moved inputs" in str(exchange) and len(exchange.plot().axes) == 2
    assert json.loads(json.dumps(exchange.as_dict(), allow_nan=False))["inputs"] == exchange.inputs.tolist()


def test_runs_with_layers_that_read_another_part_are_those_written_out_by_hand(model, exchange):
    first = exchanged_by_hand(model, [False, False])
    close(exchange.values[0], first)
    close(exchange.again_at, [first - exchanged_by_hand(model, [i == 0, i == 1]) for i in range(2)])
    close(
        exchange.again_from,
        [first - exchanged_by_hand(model, [True, True]), first - exchanged_by_hand(model, [False, True])],
    )
    close(exchange.again_from[0], exchange.difference)


def test_hidden_and_exchanged_accounts_add_up_to_what_the_right_part_adds(model, found, exchange):
    """With the part hidden it doesn't matter which one it is: what form and mapping add is what all of it adds."""
    form = ledger(model, TASK._replace(ids=OTHER), run_again=False)
    close(form.values[1], found.values[1])
    close(form.difference + exchange.difference, found.difference)


def test_the_same_part_in_both_runs_moves_nothing(model):
    same = ledger(model, TASK._replace(other=TASK.ids), run_again=False)
    assert same.difference == 0 and not same.inputs.any() and not same.layers.any() and not same.reads.any()


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
    assert found.again_at is None and found.as_dict()["again_at"] is None and "run again" not in str(found)[:900]
    close(found.heads[0], found.patterns[0].sum(-1))
    close(found.form.path, expected.sum((0, 2))[::-1])
    assert np.abs(expected).min() > 1e-6
    for nothing in (
        *found.held.values(),
        *found.discontinuities.values(),
        *np.ravel(found.form.outer),
        found.form.bias,
    ):
        assert abs(nothing) < 1e-12


def test_two_tokens_of_which_the_first_is_another_by_hand():
    """One head: of what it reads, the pattern's change times the mean value, and the mean pattern times the change."""
    model = language_model(
        layers=1, final_norm=False, norm_1=False, norm_2=False, attention_bias=False, output_bias=False
    )
    (block,) = model.stack.blocks
    block.mlp.output.kernel[...] = 0 * block.mlp.output.kernel[...]
    ids, other = jnp.array([3, 5]), jnp.array([8, 5])
    found = ledger(model, Task(ids, jnp.array([True, False]), jnp.array([1]), jnp.array([2]), other), run_again=False)

    values, outputs = weights_of(block.attention)
    reads = [np.einsum("km,hmd,hdn->hkn", np.asarray(model.embed(each)), values, outputs) for each in (ids, other)]
    patterns = [patterns_of(model, each)[0][:, 1, :, None] for each in (ids, other)]
    table, bias = np.asarray(model.embedding.token[...]), np.asarray(block.mlp.output.bias[...])
    after = np.asarray(model.embed(ids))[1] + bias
    logits = [table @ (after + (p * read).sum((0, 1))) for p, read in zip(patterns, reads)]
    a, b = (z - np.log(np.exp(z).sum()) for z in logits)
    means = (np.exp(a) - np.exp(b)) / (a - b)
    readout = table[2] - means @ table / means.sum()
    inputs = ((patterns[0] + patterns[1]) / 2 * (reads[0] - reads[1])) @ readout
    moved = ((patterns[0] - patterns[1]) * (reads[0] + reads[1]) / 2) @ readout
    close(found.inputs, inputs.sum(0))
    close(found.patterns[0], moved)
    close(found.difference, a[2] - b[2])
    close(found.form.inputs, inputs.sum())
    close(found.form.path, moved.sum(0)[::-1])
    assert not any(found.within.values()) and np.abs([*inputs[:, 0], *moved.ravel()]).min() > 1e-9


def test_heads_and_tokens_are_credited_to_sum_with_everything_else(found):
    """Rows of a pattern sum to one: the same value at every key brings nothing, and each query's parts stay its own."""
    assert found.patterns.shape == (2, 2, TOKENS) and found.heads.shape == (2, 2)
    others = sum(part for key, part in found.held.items() if key.name != "attention.pattern")
    close(found.patterns.sum() + others, found.difference)
    close(found.layers[:, 1].sum(), found.patterns[..., HIDDEN].sum())
    # The first layer's input doesn't move: what its heads mix moves by their patterns alone.
    close(found.heads[0], found.patterns[0].sum(-1))
    assert np.abs(found.heads[1] - found.patterns[1].sum(-1)).max() > 1e-6


def closed_form(model, ids, mask):
    """Every parameter of the closed form as a dense matrix."""
    form = duat.unroll(lambda x: model.stack(model.first(x), mask), model.embed(ids))
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
        "x0": np.asarray(form.x0).ravel(),
    }


@pytest.mark.slow
def test_the_norm_of_the_embeddings_moves_at_the_part_itself():
    """It stands before all layers, and its scale is another one where another token is embedded."""
    model = language_model(embedding_norm=True)
    found = ledger(model, TASK._replace(other=OTHER), run_again=False)
    first, second = mean_said(model, TASK.ids), mean_said(model, OTHER)
    close(found.inputs.sum() + found.layers.sum(), first - second)
    (inside,) = (part for key, part in found.within.items() if key.name == "embedding_norm.scale")
    (after,) = (part for key, part in found.held.items() if key.name == "embedding_norm.scale")
    assert abs(inside) > 1e-6 and after == 0
    of_layer = [part for key, part in found.within.items() if "layers.0" in key.scope]
    close(found.layers[0, 0], inside + sum(of_layer))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["found", "exchange"])
def test_the_closed_forms_columns_are_those_of_its_dense_parameters(model, kind, request):
    form = request.getfixturevalue(kind).form
    masked = kind == "found"
    one = closed_form(model, TASK.ids, None)
    other = closed_form(model, TASK.ids if masked else OTHER, jnp.asarray(~HIDDEN) if masked else None)
    mean, change = (one["x0"] + other["x0"]) / 2, one["x0"] - other["x0"]
    of_part = np.repeat(HIDDEN, 8)

    def read(x):
        logs = jax.nn.log_softmax(model.head.logits(model.final_norm(x), model.unembedding))
        return logs[TASK.places, TASK.answers].mean()

    u = np.asarray(duat.secant(read)(one["x"], other["x"]).multiplier).ravel()
    path = u @ (one["P"] - other["P"]) * mean
    close(form.path, [path[~of_part].sum(), path[of_part].sum()])
    close(form.inputs, u @ (one["P"] + other["P"]) / 2 @ change)
    close(form.bias, u @ (one["q"] - other["q"]))
    for j in range(2):
        (b1, c1, o1, s1), (b2, c2, o2, s2) = ([each[name][j] for name in "BcCσ"] for each in (one, other))
        inside = np.repeat(HIDDEN, len(c1) // TOKENS)
        if masked:  # A hidden part's own terms are read in the first run only, and counted as they are in that one.
            b2, c2, s2 = np.where(inside[:, None], b1, b2), np.where(inside, c1, c2), np.where(inside, s1, s2)
        outer = u @ (o1 - o2) * (s1 + s2) / 2
        close(form.outer[j], [outer[~inside].sum(), outer[inside].sum()])
        z = b1 @ one["x0"] + c1 - b2 @ other["x0"] - c2
        carried = u @ (o1 + o2) / 2 * np.where(z == 0, 0, (s1 - s2) / np.where(z == 0, 1, z))
        inner = b1 - b2
        # Near points have the derivative's slope, which is exact to about eps^(2/3).
        close(
            [*form.inner[j], form.inner_bias[j], form.inner_inputs[j]],
            [
                carried @ (inner[:, ~of_part] @ mean[~of_part]),
                carried @ (inner[:, of_part] @ mean[of_part]),
                carried @ (c1 - c2),
                carried @ ((b1 + b2) / 2 @ change),
            ],
        )


def test_a_hidden_part_of_no_tokens_adds_nothing(model):
    found = ledger(model, TASK._replace(hidden=jnp.zeros(TOKENS, bool)))
    assert found.values[0] == found.values[1]
    for parts in (found.patterns, found.layers, found.heads, found.reads, found.form.outer, found.form.inner):
        assert not parts.any()
    for parts in (found.again_at, found.again_from):
        close(parts, np.zeros(2))


@pytest.mark.slow
def test_layers_of_neurons_and_of_experts_are_one_account():
    """What a router's other choice brings is a part by its name, and the columns sum with it."""
    size = {"features": 8, "heads": 2, "causal": True, "activation": "silu"}
    dense = modern(**size, neurons=10)
    experts = modern(**(size | {"mlp": "experts"}), neurons=6, experts=4, chosen_experts=2)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    settings = {"vocab": VOCAB, "positions": 16, "head": head, "final_norm": True, "position_embedding": False}
    config = duat.models.Config(family="mixtral", blocks=(dense, experts, dense), **settings)
    model = randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)
    found = ledger(model, TASK, run_again=False)
    seen, hidden = mean_said(model, TASK.ids), mean_said(model, TASK.ids, jnp.asarray(~HIDDEN))
    close(found.layers.sum() + sum(found.discontinuities.values()), seen - hidden)
    form = found.form
    close(sum(np.sum(part) for part in form[:-1]), seen - hidden)
    assert form.inner_bias.shape == (3,)


def test_an_account_shows_itself_and_is_plain_data(found):
    text = str(found)
    assert "read-out" in text and "what is read" in text and "c_j" in text and text.count("holds") == 2
    said = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    close(np.sum(said["layers"]), said["difference"])
    assert said["completeness"]["verdict"] == "holds" and len(said["form"]["outer"]) == 2
    assert len(found.plot().axes) == 2


def test_what_cannot_be_asked_is_refused():
    model = language_model(layers=1)
    with pytest.raises(duat.InvalidInput, match="causal language model"):
        ledger(language_model(layers=1, causal=False), TASK)
    with pytest.raises(duat.InvalidInput, match="a place is in the hidden part"):
        ledger(model, TASK._replace(places=jnp.array([2, 6])))
    with pytest.raises(duat.InvalidInput, match="the text has 20 tokens: give 1 to 16"):
        ledger(model, Task(jnp.zeros(20, int), jnp.zeros(20, bool), jnp.array([3]), jnp.array([3])))
    wrong = TASK._replace(ids=TASK.ids + 7, places=jnp.array([-1]))
    with pytest.raises(duat.InvalidInput, match=r"1 places and 2 answers.*from 0 to 6, the text.*ids from 0 to 10"):
        ledger(model, wrong)
    with pytest.raises(duat.InvalidInput, match="differs outside of the hidden part"):
        ledger(model, TASK._replace(other=TASK.ids + 1))
    with pytest.raises(duat.InvalidInput, match="the text has 7 tokens, the other one 6: give two of one length"):
        ledger(model, TASK._replace(other=TASK.ids[:-1]))
    with pytest.raises(duat.InvalidInput, match="a sequence of 1 tokens"):
        measure_copying(model, [0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("key", [0, 1, 2])
def test_the_closed_form_of_an_activation_with_a_corner_is_exact_where_little_moves(key):
    block = BlockConfig(arrangement="pre-norm", activation="relu", features=32, heads=2, neurons=256, causal=True)
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    config = duat.models.Config(family="gpt2", blocks=(block,) * 2, vocab=VOCAB, positions=16, head=head)
    model = randomised(duat.models.Transformer(config, dtype=jnp.float32, rngs=nnx.Rngs(key)), key)
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
    found = measure_reach(model, TASK.ids)
    assert not found.shares.any() and not found.distance.any() and not found.tokens_read.any()


# Copying.


@pytest.mark.slow
def test_a_sequence_twice_is_asked_token_by_token():
    model = language_model()
    task = repeated([1], np.array([4, 8, 2]))
    assert task.ids.tolist() == [1, 4, 8, 2, 4, 8, 2]
    assert np.asarray(task.hidden).nonzero()[0].tolist() == [1, 2, 3]
    assert task.ids[task.places + 1].tolist() == task.answers.tolist() == [8, 2]
    found = measure_copying(model, [1], 3, seed=0, heads=2)
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


def test_a_repeated_sequence_is_predicted_from_its_second_occurrence():
    task = repeated([1], np.array([4, 8, 2]))
    assert task.ids.tolist() == [1, 4, 8, 2, 4, 8, 2]
    assert task.places.tolist() == [4, 5] and task.answers.tolist() == [8, 2]
    assert task.hidden.tolist() == [False, True, True, True, False, False, False]
