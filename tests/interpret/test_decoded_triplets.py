"""Singular triplets in a model's own words: what they read, what they write, and that together they are the logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close

import duat_jax as duat
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

IDS = jnp.array([3, 1, 4])
VOCAB = 11


def model_of(head):
    block = BlockConfig(arrangement="pre-norm", features=4, heads=2, neurons=5)
    config = duat.models.Config(family="gpt2", blocks=(block,), vocab=VOCAB, positions=5, head=head)
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)))


MODEL = model_of(Head(kind="next token", outputs=VOCAB, tied=True))


@pytest.fixture(scope="module")
def last():
    collapse = jax.jit(lambda x: duat.collapse(lambda x: MODEL.states(x)[-1], x))(MODEL.embed(IDS))
    return collapse, duat.operators.singular_triplets(collapse.linear, 4, key=jax.random.key(0))


def by_token(decoded):
    return [np.array([dict(one.writes[0].highest)[str(token)] for token in range(VOCAB)]) for one in decoded]


def test_all_triplets_together_are_the_logits(last):
    collapse, triplets = last
    decoded = duat.decode_triplets(MODEL, IDS, triplets, top=VOCAB)
    parts = [one.strength * logits for one, logits in zip(decoded, by_token(decoded))]
    rows = MODEL.logits_at(jnp.zeros(4)).rows
    close(sum(parts) + rows @ collapse.bias, jax.jit(MODEL)(IDS)[-1], layers=8)
    assert all(one.strength >= 0 for one in decoded)
    assert [one.value for one in decoded] == triplets.values.tolist()
    assert [one.error for one in decoded] == triplets.errors.tolist()
    for one in decoded:
        assert one.writes[0].lowest == one.writes[0].highest[::-1]


def test_a_triplets_other_sign_decodes_to_the_same(last):
    _, triplets = last
    turned = triplets._replace(left=-triplets.left, right=-triplets.right)
    assert duat.decode_triplets(MODEL, IDS, turned) == duat.decode_triplets(MODEL, IDS, triplets)


def test_what_a_triplet_reads_is_told_by_the_cosine_with_embeddings_at_each_token(last):
    _, triplets = last
    embeddings, x0 = np.asarray(MODEL.embedding.token[...]), np.asarray(MODEL.embed(IDS))
    for one, v in zip(duat.decode_triplets(MODEL, IDS, triplets, top=2), np.asarray(triplets.right)):
        v = v * np.sign((v * x0).sum())
        cosines = v @ embeddings.T / np.linalg.norm(v, axis=1)[:, None] / np.linalg.norm(embeddings, axis=1)
        order = np.argsort(-cosines, axis=1)
        for place, read in enumerate(one.reads):
            assert [name for name, _ in read.highest] == [str(token) for token in order[place, :2]]
            assert [name for name, _ in read.lowest] == [str(token) for token in order[place, :-3:-1]]
            close([score for _, score in read.highest], cosines[place, order[place, :2]])
        close([read.share for read in one.reads], (v**2).sum(1))


def test_a_zero_embedding_has_no_direction_and_hides_no_other(last):
    _, triplets = last
    model = nnx.clone(MODEL)
    model.embedding.token[...] = model.embedding.token[...].at[7].set(0)
    (one, *_) = duat.decode_triplets(model, IDS, triplets, top=VOCAB)
    assert all(
        dict(read.highest)["7"] == 0 and np.isfinite(list(dict(read.highest).values())).all() for read in one.reads
    )


def test_of_a_map_to_every_state_each_place_is_decoded():
    linear = jax.jit(lambda x: duat.collapse(MODEL.states, x).linear)(MODEL.embed(IDS))
    triplets = duat.operators.singular_triplets(linear, 1, key=jax.random.key(0), iterations=8)
    (one,) = duat.decode_triplets(MODEL, IDS, triplets, top=VOCAB)
    assert len(one.writes) == len(one.reads) == 3
    close([write.share for write in one.writes], (np.asarray(triplets.left[0]) ** 2).sum(1))
    u = np.asarray(triplets.left[0]) * np.sign((np.asarray(triplets.right[0]) * np.asarray(MODEL.embed(IDS))).sum())
    close(dict(one.writes[1].highest)["5"], u[1] @ np.asarray(MODEL.embedding.token[...])[5])


def test_what_doesnt_fit_the_model_and_the_text_is_named_at_once(last):
    _, triplets = last
    wide = triplets._replace(left=jnp.ones((4, VOCAB)))
    cases = [
        (
            lambda: duat.decode_triplets(MODEL, IDS[:2], wide, top=0),
            ("float64[3,4]", "[2, 4]", "float64[11]", "top = 0"),
        ),
        (lambda: duat.decode_triplets(MODEL, IDS, triplets, top=12), ("top = 12", "11")),
        (lambda: duat.decode_triplets(MODEL, [1, 2, 99], triplets), ("99", "0 to 10")),
        (lambda: duat.decode_triplets(model_of(Head()), IDS, triplets), ("no tokens",)),
    ]
    for call, words in cases:
        with pytest.raises(duat.DuatError) as caught:
            call()
        assert all(word in str(caught.value) for word in words), caught.value
