"""Networks of limited reach: convolutions, groups and patterns written out, their training, and the recall task."""

import re
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
from experiments.long_context import (
    afterwards,
    choice,
    extension,
    longer,
    measures,
    networks,
    tasks,
    trained,
    trained_verdicts,
)
from experiments.long_context.networks import FULL, KINDS, Sizes, count, network
from experiments.long_context.repeats import draw_words

N, M, HEADS = 11, 8, 4
X = jnp.asarray(numbers(N, M))
SMALL = Sizes(kind=FULL, layers=2, features=M, neurons=6, tokens=64, vocab=30, heads=2)


@pytest.fixture
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def random(module, scale=0.5):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), randomised(module, 1, scale=scale))


def attention(window=None):
    rotary = Rotary(rotary_frequencies(M // HEADS))
    return random(Attention(M, HEADS, rotary=rotary, window=window, rngs=nnx.Rngs(0)))


def test_windows_are_written_out():
    """Attention whose window leaves out all keys but the last ones is that over these keys alone."""
    whole = attention(window=3)(X)
    for q in range(N):
        # Rotations depend on differences of positions alone.
        close(whole[q], attention()(X[max(0, q - 2) : q + 1])[-1])


REACHES = {networks.WINDOW: 15, networks.TOKENS: 15, networks.NONE: 1, networks.FULL: 64, networks.PATTERN: 64}


@pytest.mark.parametrize("kind", KINDS)
def test_no_network_reads_beyond_its_reach_or_ahead(kind):
    """Two layers that see eight tokens each reach fifteen; what shifted groups reach depends on the place."""
    model = random(network(replace(SMALL, kind=kind), nnx.Rngs(0)))
    read_at, x = 40, jnp.asarray(numbers(64, M))
    moved = np.abs(np.asarray(jax.jacobian(lambda x: model.states(x)[read_at].sum())(x))).sum(1)
    assert not moved[read_at + 1 :].any() and moved[read_at] > 0
    reach = read_at - moved.nonzero()[0][0] + 1
    expected = {networks.SHIFTED: 17, networks.FEATURES: 41}.get(kind, min(REACHES.get(kind, 0), 41))
    assert reach == expected


def test_networks_are_equally_large():
    counts = [count(choice.sizes_of(kind)) for kind in KINDS]
    near(np.array(counts) / count(choice.sizes_of(FULL)), 1, within=0.005)


def test_a_word_stands_in_a_text_two_to_four_times():
    texts = np.full((50, 128), ord("."), np.int32)
    counts = set()
    for text in draw_words(texts, seed=0):
        line = bytes(text.astype(np.uint8)).decode()
        copies = re.findall("[a-z]{12}", line)
        assert len(set(copies)) == 1 and line.replace(copies[0], "").strip(".") == ""
        quarters = [place // 32 for place in range(128) if line.startswith(copies[0], place)]
        assert len(quarters) == len(set(quarters))
        counts.add(len(quarters))
    assert counts == {2, 3, 4}


def test_losses_are_averaged_by_position():
    assert measures.by_position(np.arange(7.0)[None]) == [0.0, 1.5, 4.5]


def test_the_gain_compares_the_same_bytes(monkeypatch):
    """Each byte's loss is the byte itself here, and a third of it more where nothing stands 96 bytes before it."""

    def losses_of(model, ids):
        few = np.arange(1, ids.shape[1]) < 96
        return ids[:, 1:] * np.where(few, 4 / 3, 1)

    monkeypatch.setattr(measures, "losses_of", losses_of)
    texts = np.random.default_rng(0).integers(0, 256, (3, 192))
    found = measures.gains(None, texts)
    near(found["late"], texts[:, 128:].mean(1), within=1e-5)
    near(found["gain"], texts[:, 128:].mean(1) / 3, within=1e-5)


@pytest.mark.parametrize("kind", [networks.NONE, networks.WINDOW, networks.TOKENS, networks.FULL])
def test_no_network_gains_beyond_its_reach(kind):
    model = random(network(replace(SMALL, kind=kind, tokens=192), nnx.Rngs(0)))
    texts = np.random.default_rng(0).integers(0, 30, (16, 192))
    assert far(measures.gains(model, texts)["gain"], 0, by=1e-6) == (kind == FULL)


def test_interpolated_positions_are_closer_together():
    model = network(SMALL, nnx.Rngs(0))
    rotary, closer = (of.stack.blocks[1].attention.rotary for of in (model, networks.interpolated(model, 4)))
    x = jnp.asarray(numbers(16, 2, M // 2))
    close(closer(x)[::4], rotary(x[::4]))
    assert far(closer(x), rotary(x))


def test_recall_is_the_loss_of_letters_after_the_hint(monkeypatch):
    """Each byte's loss is its place here."""
    monkeypatch.setattr(measures, "losses_of", lambda model, ids: np.tile(np.arange(1.0, 256), (len(ids), 1)))
    found = measures.recall(None, np.zeros((3, 256), np.int32))
    assert found["16"] == np.arange(244 + 3, 256).mean()
    assert found["128, first copy"] == np.arange(116 + 3, 116 + 12).mean()


@pytest.mark.usefixtures("as_optax_promotes")
def test_training_lowers_the_loss_of_a_network():
    ids = jnp.asarray(np.tile(np.arange(30), (20, 4, 2))[..., :40], jnp.int32)
    losses = networks.train(network(SMALL, nnx.Rngs(0)), ids, jnp.asarray(1.0, jnp.float32))[1]
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.usefixtures("as_optax_promotes")
@pytest.mark.parametrize("adapters", [False, True])
def test_fine_tuning_changes_what_it_says_and_keeps_full_attention(adapters):
    model = network(SMALL, nnx.Rngs(0))
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 30, (12, 2, 17)), jnp.int32)
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


def test_cut_texts_are_those_of_groups_of_the_same_length(monkeypatch):
    read = {}
    monkeypatch.setattr(longer, "trained_stream", lambda: np.arange(250000, dtype=np.int32))
    monkeypatch.setattr(longer, "base", lambda seed, steps: None)
    monkeypatch.setattr(longer, "interpolated", lambda model, factor: model)
    monkeypatch.setattr(extension, "fine_tune", lambda model, ids, rate, **settings: read.update({len(read): ids}))
    longer.extended(extension.GROUPS, False, 1.0, 0, 1)
    longer.extended(extension.FULL, False, 1.0, 0, 1, longer.SHORT, longer.LONG)
    assert np.array_equal(read[1], read[0].reshape(read[1].shape)) and read[1].shape[-1] == longer.SHORT


def test_the_study_is_kept_and_written(monkeypatch):
    """All of it on one kind and two seeds, with numbers in the place of text and networks that aren't trained."""
    training = tasks.Training(tokens=256, layers=1, features=M, neurons=6, batch=2)
    for module in (choice, longer, measures, tasks, trained):
        monkeypatch.setattr(module, "TRAINING", training)
    for module in (longer, measures, tasks):
        monkeypatch.setattr(module, "HELD_OUT", 16)
    for module in (longer, trained):
        monkeypatch.setattr(module, "train", lambda model, ids, rate: (model, None))
    for module in (afterwards, longer, trained):
        monkeypatch.setattr(module, "SEEDS", (0, 1))
    for module in (longer, tasks):
        monkeypatch.setattr(module, "trained_stream", lambda: np.arange(250000, dtype=np.int32) % 30)
    monkeypatch.setattr(tasks, "held_out_stream", lambda: np.arange(17000, dtype=np.int32) % 30)
    monkeypatch.setattr(measures, "TESTED", 16)
    monkeypatch.setattr(extension, "fine_tune", lambda model, ids, rate, **settings: model)
    for module in (afterwards, trained):
        monkeypatch.setattr(module, "KINDS", (FULL,))
    monkeypatch.setattr(longer, "TUNED_RATES", {False: (1e-3,), True: (1e-3,)})
    for name, value in {"RATES": (1.0,), "STEPS": (4, 8)}.items():
        monkeypatch.setattr(trained, name, value)
    longer.base.cache_clear()
    journal = Journal(None, {})
    steps = trained.enough_steps(journal)
    assert steps == 8, "networks that aren't trained recall nothing"
    results = {
        "work": {"training": training._asdict()},
        "kinds": dict.fromkeys(KINDS, trained.compare_kinds(journal, steps)[FULL]),
        "longer": longer.compare_extensions(journal, steps),
    }
    results |= {
        "afterwards": afterwards.compare_kinds(journal, results["kinds"], steps, trained.trial, trained.measured),
        "longer, afterwards": afterwards.compare_tuning(journal, steps, results["longer"]),
        "costs": {"groups, 512": {"seconds": 0.126, "megabytes": 9.6}},
    }
    fields = trained.fields(results)
    assert fields["Loss by position / full attention / parameters"] == f"{count(choice.sizes_of(FULL)):,}"
    losses = [of["positions"][7] for of in results["kinds"][FULL]["seeds"]]
    near(float(fields["Loss by position / full attention / 128 to 255 / value"]), np.mean(losses), within=6e-4)
    recalled = [of["recall"]["64"] for of in results["kinds"][FULL]["seeds"]]
    near(float(fields["Recall by distance / full attention / 64 / value"]), np.mean(recalled), within=6e-3)
    late = [
        of["positions"][7] / 3 + 2 * of["positions"][8] / 3
        for of in results["longer"][trained_verdicts.NOT_TUNED]["seeds"]
    ]
    near(float(fields["Losses after fine-tuning / not fine-tuned / 128 and more / value"]), np.mean(late), within=6e-4)
    same = f"groups, all weights − {afterwards.SAME_TEXTS} / over seeds"
    assert fields[f"Afterwards: further learning rates and equal texts / {same}"] == "+0.0000"
    assert fields["Trials of learning rates / groups, adapters / rate: loss"].count(";") == 2
    assert fields["Cost of a training step / groups / seconds of a step"] == "0.13"
    assert fields["Loss by position / full attention / rate"] == "1 (at the edge)"
    longer.base.cache_clear()
