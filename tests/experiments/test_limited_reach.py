"""Networks of limited reach: convolutions, groups and patterns written out, their training, and the recall task."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, far, near, numbers
from studies import filled_tables, run_small

from duat_jax.nn import Attention, Rotary, rotary_frequencies
from duat_jax.verification.networks import randomised
from experiments.long_context import choice, extension, longlora, measures, networks, tasks, trained
from experiments.long_context.networks import FULL, KINDS, Sizes, count, network
from experiments.long_context.repeats import draw_words
from experiments.markdown import cells

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
    assert found["recall"][0] == np.arange(244 + 3, 256).mean()
    assert found["recall, first copy"][measures.DISTANCES.index(128)] == np.arange(116 + 3, 116 + 12).mean()


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
    monkeypatch.setattr(longlora, "trained_stream", lambda: np.arange(250000, dtype=np.int32))
    monkeypatch.setattr(longlora, "base", lambda seed: None)
    monkeypatch.setattr(longlora, "interpolated", lambda model, factor: model)
    monkeypatch.setattr(extension, "fine_tune", lambda model, ids, rate, **settings: read.update({len(read): ids}))
    longlora.extended(extension.GROUPS, False, longlora.LONG, 1.0, 0)
    longlora.extended(extension.FULL, False, longlora.SHORT, 1.0, 0, longlora.LONG)
    assert np.array_equal(read[1], read[0].reshape(read[1].shape)) and read[1].shape[-1] == longlora.SHORT


@pytest.mark.parametrize(("lowest", "tried"), [(1.0, []), (2.0, [4.0]), (5.0, [4.0, 8.0]), (0.1, [0.25])])
def test_rates_are_searched_until_the_best_has_others_on_both_sides(lowest, tried):
    """The loss is the distance to the lowest one; the ladder ends below."""
    pieces, rates = choice.searched((0.5, 1.0, 2.0), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), lambda rate: rate), []
    asked = next(pieces)
    assert asked == [0.5, 1.0, 2.0]
    found = [[{"rate": rate, "loss": abs(rate - lowest)}] for rate in asked]
    with pytest.raises(StopIteration) as stopped:
        while True:
            rates.append(pieces.send(found))
            found = [{"rate": rates[-1], "loss": abs(rates[-1] - lowest)}]
    every = [0.5, 1.0, 2.0, *tried]
    assert rates == tried
    assert stopped.value.value == tuple(min(of, key=lambda rate: abs(rate - lowest)) for of in ([0.5, 1.0, 2.0], every))


@pytest.fixture
def small(monkeypatch):
    """Numbers in the place of text, and networks that aren't trained."""
    training = tasks.Training(tokens=256, layers=1, features=M, neurons=64, batch=2)
    for module in (choice, longlora, measures, tasks, trained):
        monkeypatch.setattr(module, "TRAINING", training)
    for module in (longlora, measures, tasks):
        monkeypatch.setattr(module, "HELD_OUT", 16)
    for module in (longlora, trained):
        monkeypatch.setattr(module, "SEEDS", (0, 1))
        monkeypatch.setattr(module, "STEPS", 8)
        monkeypatch.setattr(module, "train", lambda model, ids, rate: (model, None))
    for module in (longlora, tasks):
        monkeypatch.setattr(module, "trained_stream", lambda: np.arange(250000, dtype=np.int32) % 30)
    monkeypatch.setattr(tasks, "held_out_stream", lambda: np.arange(17000, dtype=np.int32) % 30)
    monkeypatch.setattr(measures, "TESTED", 16)
    longlora.base.cache_clear()
    yield
    longlora.base.cache_clear()


@pytest.mark.usefixtures("small")
def test_networks_that_are_trained_are_kept_and_written(tmp_path, monkeypatch):
    """Some kinds, taken for all; the rates make no difference here, so that the first one is the best."""
    kinds = FULL, networks.WINDOW, networks.TOKENS, networks.PATTERN
    monkeypatch.setattr(trained, "KINDS", kinds)
    monkeypatch.setattr(trained, "RATES", (0.5, 1.0))
    monkeypatch.setattr(trained, "LADDER", (0.25, 0.5, 1.0))
    frames = run_small(trained.STUDY, tmp_path, monkeypatch)
    rows = frames["networks"]
    assert [*rows.network] == [*kinds, *kinds]
    assert {*rows.rate} == {0.5} and {*rows.seed} == {0, 1}
    assert frames["trials"].groupby("network").rate.apply(list)[FULL] == [0.5, 1.0]
    assert frames["trials"].groupby("network").rate.apply(list)[networks.TOKENS] == [0.5, 1.0, 0.25]
    others = [rows[rows.network == FULL].assign(network=kind) for kind in KINDS if kind not in kinds]
    frames["networks"] = pd.concat([rows, *others])
    fields = cells_of(trained.STUDY, frames)
    of_full = rows[rows.network == FULL]
    losses = [of[7] for of in of_full.positions]
    near(float(fields["Loss by position / full attention / 128 to 191 / value"]), np.mean(losses), within=6e-4)
    recalled = [of[measures.DISTANCES.index(64)] for of in of_full.recall]
    near(float(fields["Recall by distance / full attention / 64, second copy / value"]), np.mean(recalled), within=6e-3)
    assert fields["Before training / full attention / parameters"] == f"{count(choice.sizes_of(FULL)):,}"
    assert fields["Loss by position / full attention / rate"] == "0.5"
    assert not trained.recalls(frames).any(), "networks that aren't trained recall nothing"
    assert trained.STUDY.predictions[0].verdict(frames) == "undecided"


@pytest.mark.usefixtures("small")
def test_fine_tunings_are_kept_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(extension, "fine_tune", lambda model, ids, rate, **settings: model)
    monkeypatch.setattr(longlora, "RATES", {False: (1e-3,), True: (1e-3,)})
    monkeypatch.setattr(longlora, "COST_LENGTHS", (128,))
    monkeypatch.setattr(longlora, "costs", lambda way, tokens: {"seconds": 0.126, "megabytes": 9.6})
    frames = run_small(longlora.STUDY, tmp_path, monkeypatch)
    rows, fields = frames["networks"], cells_of(longlora.STUDY, frames)
    start = rows[rows.network == longlora.NOT_TUNED]
    late = [of[7] / 3 + 2 * of[8] / 3 for of in start.positions]
    near(float(fields["Losses after fine-tuning / not fine-tuned / 128 and more / value"]), np.mean(late), within=6e-4)
    same = f"Differences of losses / groups, all weights − {longlora.SAME_TEXTS}"
    assert fields[f"{same} / over seeds"] == "+0.0000"
    assert fields["Trials of learning rates / groups, adapters / rate: loss"].count(";") == 2
    assert fields["Cost of a training step / groups / seconds of a step"] == "0.13"
    in_groups = rows[rows.network == longlora.IN_GROUPS]
    assert far(np.array([*in_groups.late]), np.array([*start.late]))


def cells_of(study, frames):
    """Return the cells of a study's tables by name."""
    shown = filled_tables(study, frames)
    return cells("\n".join(line for title, lines in shown.items() for line in (f"## {title}", "", *lines, "")))
