"""Convolutions and groups in the place of attention, written out token by token, and put into a model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close, far, numbers, unchecked

import duat_jax as duat
from duat_jax.models import Config, Head
from duat_jax.models.layer_parts import scanned
from duat_jax.nn import Attention, BlockConfig, Linear, RMSNorm, Rotary, rotary_frequencies
from duat_jax.papers import (
    DistancePattern,
    FeatureConvolution,
    GroupedAttention,
    NoMixing,
    TokenConvolution,
    replace_attention,
)
from duat_jax.verification.networks import randomised

N, M, HEADS = 11, 8, 4
X = jnp.asarray(numbers(N, M))


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


def attention(**options):
    rotary = Rotary(rotary_frequencies(M // HEADS))
    return random(Attention(M, HEADS, **{"rotary": rotary, **options}, rngs=nnx.Rngs(0)))


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


def test_groups_share_keys_and_need_no_rotation():
    """A key/value head is that of neighbouring heads; one group is full attention."""
    shared = attention(key_value_heads=2, rotary=None)
    close(GroupedAttention(shared, 16, shifted=False)(X), shared(X))
    alone = GroupedAttention(shared, 1, shifted=False)(X)
    close(alone, shared.output(jnp.repeat(shared.value(X).reshape(N, 2, -1), 2, axis=1).reshape(N, M)))


MIXERS = {
    "tokens": lambda: TokenConvolution(M, 3, rngs=nnx.Rngs(0)),
    "features": lambda: FeatureConvolution(16, 3, rngs=nnx.Rngs(0)),
    "distance": lambda: DistancePattern(16, M, 2, rngs=nnx.Rngs(0)),
    "groups": lambda: GroupedAttention(attention(), 4, shifted=True),
    "nothing": lambda: NoMixing(),
}


@pytest.mark.parametrize("name", MIXERS)
def test_padding_before_and_behind_a_text_changes_nothing(name):
    mixer = random(MIXERS[name]())
    expected, filled = mixer(X), jnp.ones((2, M))
    for ahead, behind in ((2, 0), (0, 2), (2, 2)):
        padded = jnp.concatenate([filled[:ahead], X, filled[:behind]])
        mask = jnp.pad(jnp.ones(N, bool), (ahead, behind))
        close(mixer(padded, mask)[ahead : ahead + N], expected)
    masks = jnp.stack([jnp.arange(N + 2) >= 2, jnp.arange(N + 2) < N])
    both = jnp.stack([jnp.concatenate([filled, X]), jnp.concatenate([X, filled])])
    found = mixer(both, masks)
    close(found[0, 2:], expected)
    close(found[1, :N], expected)


@pytest.mark.parametrize("name", MIXERS)
def test_a_model_with_a_mixer_is_as_exact_and_keeps_all_other_weights(name):
    block = BlockConfig(arrangement="pre-norm", features=M, heads=HEADS, neurons=6)
    head = Head(kind="next token", outputs=5, tied=True)
    config = Config(family="gpt2", blocks=(block,) * 2, vocab=5, positions=16, head=head)
    model = random(duat.models.Transformer(config, rngs=nnx.Rngs(0)))
    given = []

    def mixer(attention):
        given.append(attention)
        return GroupedAttention(attention, 4, shifted=True) if name == "groups" else random(MIXERS[name]())

    mixed = replace_attention(model, mixer)
    assert len(given) == 2 and all(isinstance(each, Attention) for each in given)
    assert all(isinstance(layer.attention, Attention) for layer in model.stack.blocks), "the model itself is unchanged"
    close(mixed.stack.blocks[1].mlp.input.kernel[...], model.stack.blocks[1].mlp.input.kernel[...])
    x, y = (mixed.embed(jnp.array(ids)) for ids in ([1, 2, 3, 4, 1, 2], [1, 2, 0, 4, 3, 0]))
    assert far(mixed.hidden(x), model.hidden(x))

    def number(x):
        return mixed.hidden(x)[-1, 3]

    parts = duat.decompose(number, x)
    difference = duat.secant(number)(x, y)
    assert parts.completeness.verdict == difference.completeness.verdict == "holds"
    close(parts.completeness.sum, number(x))
    close(difference.parts.sum(), number(x) - number(y))
    assert duat.collapse(lambda x: mixed.hidden(x)[-1], x).completeness.verdict == "holds"
    assert duat.explain(mixed, [1, 2, 3, 4]).completeness.verdict == "holds"


def test_a_model_whose_layers_are_one_loop_is_written_out():
    model = scanned(duat.load())
    mixed = replace_attention(model, lambda attention: NoMixing())
    assert [type(block.attention) for block in mixed.stack.blocks] == [NoMixing] * 6


def refused(make, *words):
    with pytest.raises(duat.InvalidInput) as caught:
        make()
    assert all(word in str(caught.value) for word in words), caught.value


def test_sizes_that_dont_fit_are_refused():
    refused(lambda: TokenConvolution(0, -1, rngs=None), "features is 0", "kernel is -1")
    refused(lambda: FeatureConvolution(4, 2, rngs=None), "kernel is 2: give an odd number")
    refused(lambda: FeatureConvolution(0, 3, rngs=None), "tokens is 0")
    refused(lambda: DistancePattern(4, 6, 4, rngs=None), "4 heads don't divide 6 features")
    refused(lambda: DistancePattern(0, 6, 4, rngs=None), "tokens is 0")
    for mixer in (FeatureConvolution(N - 1, 3, rngs=None), DistancePattern(N - 1, M, 2, rngs=None)):
        refused(lambda mixer=mixer: mixer(X), f"the text has {N} tokens", f"{N - 1} at most", f"make it for {N}")


def test_an_attention_that_groups_cant_have_is_refused():
    refused(lambda: GroupedAttention(attention(), 3, shifted=True), "group is 3: give an even number")
    refused(lambda: GroupedAttention(attention(), 0, shifted=False), "group is 0")
    one = Attention(M, 1, rngs=None)
    refused(lambda: GroupedAttention(one, 4, shifted=True), "two heads")
    odd = attention(
        causal=False, window=3, cap=5.0, sinks=True, query_norm=RMSNorm(M // HEADS, "norm", dtype=jnp.float64)
    )
    refused(
        lambda: GroupedAttention(odd, 4, shifted=False),
        "isn't causal", "a window", "normalised queries or keys", "capped scores", "sinks",
    )  # fmt: skip


def test_what_isnt_a_mixer_is_refused():
    refused(
        lambda: replace_attention(duat.load(), lambda attention: 3), "the mixer returns 3: return a Flax NNX module"
    )
    refused(lambda: replace_attention(duat.load(), lambda attention: lambda x, mask: x), "return a Flax NNX module")
    narrow, head = TokenConvolution(100, 3, rngs=None), Linear(192, 5, "head", rngs=None)
    refused(
        lambda: replace_attention(duat.load(), lambda attention: narrow), "TokenConvolution", "make it for 192 feat"
    )
    refused(lambda: replace_attention(duat.load(), lambda attention: head), "Linear doesn't mix a stream", "a mask")

    class Pooled(nnx.Module):
        def __call__(self, x, mask):
            return x.mean(0)

    refused(
        lambda: replace_attention(duat.load(), lambda attention: Pooled()), "Pooled returns [192]", "the same shape"
    )


def test_a_mask_of_another_length_is_refused():
    mix, mixer = unchecked(TokenConvolution.__call__), TokenConvolution(M, 2, rngs=None)
    refused(lambda: mix(mixer, X, jnp.ones(N - 1, bool)), f"of {N - 1} tokens", f"text of {N}: give all of them")
