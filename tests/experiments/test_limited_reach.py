"""Networks of limited reach: convolutions, groups and patterns written out, their training, and the recall task."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, far, near, numbers

from duat_jax.evaluation.journal import Journal
from duat_jax.nn import Attention, Rotary, rotary_frequencies
from duat_jax.verification.networks import randomised
from experiments.long_context import extension, measures, networks, tasks, trained
from experiments.long_context.mixers import (
    DistancePattern,
    FeatureConvolution,
    GroupedAttention,
    TokenConvolution,
)
from experiments.long_context.networks import FULL, KINDS, Sizes, count, network
from experiments.long_context.repeats import SEGMENT, recall_texts

N, M, HEADS = 11, 8, 4
X = jnp.asarray(numbers(N, M))
SMALL = Sizes(kind=FULL, layers=2, features=M, neurons=6, tokens=64, vocab=30, heads=2)


@pytest.fixture
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def random(module, scale=0.5):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), randomised(module, 1, scale=scale))


def test_a_convolution_along_tokens_is_a_block_toeplitz_matrix():
    kernel = 3
    mixer = random(TokenConvolution(M, kernel, rngs=nnx.Rngs(0)))
    weights = np.asarray(mixer.output.kernel[...]).reshape(kernel, M, M)
    toeplitz = sum(np.kron(np.eye(N, k=-j), weights[j].T) for j, k in enumerate(range(kernel)))
    close(mixer(X).reshape(-1), toeplitz @ np.asarray(X).reshape(-1) + np.tile(mixer.output.bias[...], N))


def test_a_convolution_along_features_is_its_sum():
    mixer = random(FeatureConvolution(N, 3, rngs=nnx.Rngs(0)))
    weights, x = iter(np.asarray(mixer.weights[...])), np.asarray(X)
    expected = np.tile(np.asarray(mixer.bias[...])[:, None], M)
    for t in range(N):
        for s in range(t + 1):
            kernel = next(weights)
            for m in range(M):
                for j in (-1, 0, 1):
                    if 0 <= m + j < M:
                        expected[t, m] += kernel[j + 1] * x[s, m + j]
    close(mixer(X), expected)
    close(mixer(X[:5]), expected[:5])
    close(mixer(jnp.stack([X, 2 * X]))[0], expected)


def test_a_pattern_of_the_distance_is_written_out():
    mixer = random(DistancePattern(16, M, HEADS, rngs=nnx.Rngs(0)))
    scores, values = np.asarray(mixer.scores[...]), np.asarray(mixer.value(X)).reshape(N, HEADS, -1)
    mixed = np.zeros((N, HEADS, M // HEADS))
    for q in range(N):
        for h in range(HEADS):
            weights = np.exp([scores[h, q - k] for k in range(q + 1)])
            mixed[q, h] = weights / weights.sum() @ values[: q + 1, h]
    close(mixer(X), mixer.output(jnp.asarray(mixed.reshape(N, M))))


def attention(window=None):
    rotary = Rotary(rotary_frequencies(M // HEADS))
    return random(Attention(M, HEADS, rotary=rotary, window=window, rngs=nnx.Rngs(0)))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("group", [2, 4, 6])
def test_groups_are_written_out(group, shifted):
    """Token by token and head by head; half of the heads begin a new group half a group earlier."""
    full = attention()
    queries, keys, values = (
        np.asarray(part)
        for part in (
            full.rotary(full.query(X).reshape(N, HEADS, -1)),
            full.rotary(full.key(X).reshape(N, HEADS, -1)),
            full.value(X).reshape(N, HEADS, -1),
        )
    )
    mixed = np.zeros_like(values)
    for q in range(N):
        for h in range(HEADS):
            ahead = group // 2 if shifted and h >= HEADS // 2 else 0
            seen = [k for k in range(q + 1) if (k + ahead) // group == (q + ahead) // group]
            weights = np.exp([full.scale * queries[q, h] @ keys[k, h] for k in seen])
            mixed[q, h] = weights / weights.sum() @ values[seen, h]
    expected = full.output(jnp.asarray(mixed.reshape(N, M)))
    grouped = GroupedAttention(full, group, shifted=shifted)
    close(grouped(X), expected)
    close(grouped(jnp.stack([X, 2 * X]))[0], expected)


def test_one_group_of_all_tokens_is_full_attention():
    close(GroupedAttention(attention(), 16, shifted=False)(X), attention()(X))


def test_windows_are_written_out():
    """Attention whose window leaves out all keys but the last ones is that over these keys alone."""
    whole = attention(window=3)(X)
    for q in range(N):
        # Rotations depend on differences of positions alone.
        close(whole[q], attention()(X[max(0, q - 2) : q + 1])[-1])


REACHES = {networks.WINDOW: 15, networks.TOKENS: 15, networks.NONE: 1, networks.FULL: 64, networks.PATTERN: 64}


@pytest.mark.parametrize("kind", KINDS)
def test_no_network_reads_beyond_its_reach_or_ahead(kind):
    """Two layers that see eight tokens each reach fifteen; what shifted groups of sixteen reach depends on the place."""
    model = random(network(replace(SMALL, kind=kind), nnx.Rngs(0)))
    read_at, x = 40, jnp.asarray(numbers(64, M))
    moved = np.abs(np.asarray(jax.jacobian(lambda x: model.states(x)[read_at].sum())(x))).sum(1)
    assert not moved[read_at + 1 :].any() and moved[read_at] > 0
    reach = read_at - moved.nonzero()[0][0] + 1
    expected = {networks.SHIFTED: 17, networks.FEATURES: 41}.get(kind, min(REACHES.get(kind, 0), 41))
    assert reach == expected


def test_networks_are_equally_large():
    for task in tasks.TASKS.values():
        counts = {kind: count(trained.sizes_of(kind, task)) for kind in KINDS}
        near(np.array(list(counts.values())) / counts[FULL], 1, within=0.005)


def test_a_recalled_token_stands_where_its_distance_says():
    ids, distances = recall_texts(20, 64, seed=0)
    rows, places = distances.nonzero()
    assert (ids[rows, places] == ids[rows, places - distances[rows, places]]).all()
    assert (ids[rows, places - 1] == ids[rows, places - distances[rows, places] - 1]).all()
    assert (distances > 0).sum() == 20 * 32 * (SEGMENT - 1) // SEGMENT
    assert distances.max() < 64 and (distances[:, :32] == 0).all()


def test_losses_are_averaged_by_position_and_by_distance():
    losses = np.arange(7.0)[None]
    assert measures.by_position(losses) == [0.0, 1.5, 4.5]
    distances = np.array([[0, 0, 0, 0, 0, 2, 3, 8]])
    assert measures.by_distance(losses, distances) == {"random": 1.0, "2 to 3": 4.5, "8 to 15": 6.0}


@pytest.mark.usefixtures("as_optax_promotes")
def test_training_lowers_the_loss_of_a_network():
    ids = jnp.asarray(np.tile(np.arange(30), (40, 4, 2))[..., :40], jnp.int32)
    losses = networks.train(network(SMALL, nnx.Rngs(0)), ids, jnp.asarray(1.0, jnp.float32))[1]
    assert losses[-1] < 0.85 * losses[0]


@pytest.mark.usefixtures("as_optax_promotes")
@pytest.mark.parametrize("adapters", [False, True])
def test_fine_tuning_changes_what_it_says_and_keeps_full_attention(adapters):
    model = network(SMALL, nnx.Rngs(0))
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 30, (12, 2, 33)), jnp.int32)
    tune = partial(extension.fine_tune, model, ids, way=extension.SHIFTED, group=8, adapters=adapters)
    tuned = tune(jnp.asarray(1e-2, jnp.float32))
    assert jax.tree.structure(tuned) == jax.tree.structure(model)
    block, before = tuned.stack.blocks[0], model.stack.blocks[0]
    assert far(block.attention.query.kernel[...], before.attention.query.kernel[...])
    assert far(tuned.embedding.token[...], model.embedding.token[...])
    assert far(block.norm_1.scale[...], before.norm_1.scale[...])
    assert far(block.mlp.input.kernel[...], before.mlp.input.kernel[...]) != adapters
    if adapters:
        change = np.asarray(block.attention.query.kernel[...] - before.attention.query.kernel[...])
        assert np.linalg.matrix_rank(change) <= extension.ADAPTERS.rank


@pytest.mark.usefixtures("as_optax_promotes")
def test_the_study_runs_and_is_written(monkeypatch):
    """All of it on two kinds, two seeds, two steps of training, and random tokens in the place of text."""
    text = tasks.Task(tokens=256, vocab=30, layers=1, features=M, neurons=6, batch=2, steps=2, trial=2)
    sizes = {tasks.TEXT: text, tasks.RECALL: text._replace(tokens=32, vocab=256)}
    for module in (tasks, measures, trained):
        monkeypatch.setattr(module, "TASKS", sizes)
    for module in (tasks, trained):
        monkeypatch.setattr(module, "trained_stream", lambda: np.arange(9000, dtype=np.int32) % 30)
    monkeypatch.setattr(tasks, "held_out_stream", lambda: np.arange(17000, dtype=np.int32) % 30)
    for module in (tasks, measures):
        monkeypatch.setattr(module, "HELD_OUT", 16)
    monkeypatch.setattr(trained, "KINDS", (FULL, networks.NONE))
    for name, value in {
        "RATES": (1.0,),
        "SEEDS": (0, 1),
        "TUNING": 2,
        "COST_LENGTHS": (64,),
        "COST_TOKENS": 128,
    }.items():
        monkeypatch.setattr(trained, name, value)
    monkeypatch.setattr(trained, "TUNED_RATES", {False: (1e-3,), True: (1e-3,)})
    trained.base.cache_clear()
    journal = Journal(None, {})
    results = {name: trained.compare_kinds(journal, name) for name in sizes}
    results |= {"longer": trained.compare_extensions(journal), "costs": {"groups, 64": trained.costs("groups", 64)}}
    fields = trained.fields(results)
    assert fields["Loss by position / full attention / parameters"] == f"{count(trained.sizes_of(FULL, text)):,}"
    losses = [of["positions"][7] for of in results["text"][FULL]["seeds"]]
    near(float(fields["Loss by position / full attention / 128 to 255 / value"]), np.mean(losses), within=6e-4)
    late = [of[7] / 3 + 2 * of[8] / 3 for of in results["longer"][trained.NOT_TUNED]]
    near(
        float(fields["Fine-tuned to longer texts / not fine-tuned / 128 and more / value"]), np.mean(late), within=6e-4
    )
    trained.base.cache_clear()
