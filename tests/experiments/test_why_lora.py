"""Fine-tuning by adapters and of everything, its ledger, its ranks and Eq. 18, on a small model."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, far, near
from measured import frames_of
from scipy.stats import spearmanr

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised
from experiments import run
from experiments.estimate import Estimate
from experiments.estimate import Method as OfInterval
from experiments.lora import anatomy, tuning, why, why_report
from experiments.lora.agreement import agreements, means_of, overlap, rank_correlation, shuffled
from experiments.lora.tuning import BIASES, EVERYTHING, IN_MLPS, MATRICES, METHODS, RANKS, TASKS, Method, Task

LAYERS, FEATURES, NEURONS, VOCAB, TOKENS = 3, 4, 6, 7, 8
IDS = np.array(jax.random.randint(jax.random.key(5), (12, TOKENS), 0, VOCAB), np.int32)
COUNTED = jnp.asarray(np.arange(TOKENS - 1) % 2, jnp.float64)


@cache
def model():
    block = BlockConfig(arrangement="pre-norm", features=FEATURES, heads=2, neurons=NEURONS, activation="gelu_tanh")
    head = Head(kind="next token", outputs=VOCAB, tied=True)
    sizes = {"family": "gpt2", "vocab": VOCAB, "positions": 16, "head": head, "final_norm": True}
    config = duat.models.Config(blocks=(block,) * LAYERS, **sizes)
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


@cache
def moved(kinds, size=0.3):
    """Return the model with random changes of what has one of these words in its path."""
    leaves = tuning.leaves_of(model())
    keys = jax.random.split(jax.random.key(1), len(leaves))
    return tuning.replaced(
        model(),
        {
            path: leaf + size * jax.random.normal(key, leaf.shape, leaf.dtype)
            for key, (path, leaf) in zip(keys, leaves.items(), strict=True)
            if any(re.search(kind, path) for kind in kinds)
        },
    )


MLPS = (r"mlp\.(in|out)put\.kernel",)


def losses(of, ids=IDS):
    return np.asarray(token_losses(of, jnp.asarray(ids)) @ COUNTED / COUNTED.sum())


def test_a_ledger_sums_to_the_change_by_matrix_and_others_and_by_unit():
    everything = moved((".",))
    split = anatomy.ledger(model(), everything, jnp.asarray(IDS[:2]), COUNTED)
    assert split.holds.all()
    close(split.difference, losses(everything, IDS[:2]) - losses(model(), IDS[:2]), 10)
    close(split.matrices.sum(1) + split.others.sum(1), split.difference, 10)
    close(split.heads.sum(1) + split.neurons.sum(1), split.matrices.sum(1), 10)
    assert split.heads.shape == (2, LAYERS * 2) and split.neurons.shape == (2, LAYERS * NEURONS)


def test_a_head_and_a_neuron_that_alone_changed_carry_the_whole_change():
    kernels = tuning.kernels_of(model())
    query = next(path for path in kernels if "blocks[1]" in path and "query" in path)
    output = next(path for path in kernels if "blocks[2]" in path and "mlp.output" in path)
    changed = {
        query: kernels[query].at[:, 2:].multiply(3),  # the second of two heads
        output: kernels[output].at[3].multiply(3),
    }
    for path, unit in ((query, (1, 1)), (output, (2, 3))):
        tuned = tuning.replaced(model(), {path: changed[path]})
        split = anatomy.ledger(model(), tuned, jnp.asarray(IDS[:1]), COUNTED)
        of, width = (split.heads, 2) if path == query else (split.neurons, NEURONS)
        close(of[0, unit[0] * width + unit[1]], split.difference[0], 10)
        assert far(split.difference, 0)
        column = anatomy.KINDS.index("query" if path == query else "output of the MLP")
        close(split.matrices[0, unit[0] * 6 + column], split.difference[0], 10)


def test_effective_ranks():
    assert anatomy.effective_ranks(np.ones(5)) == pytest.approx({"stable": 5, "entropy": 5, "energy": 5})
    assert anatomy.effective_ranks(np.array([2.0, 0, 0])) == {"stable": 1, "entropy": 1, "energy": 1}
    assert anatomy.effective_ranks(np.array([3.0, 1.0]))["energy"] == 1, "nine tenths of the squares"
    assert anatomy.effective_ranks(np.zeros(3)) == {"stable": 0, "entropy": 0, "energy": 0}


def test_a_change_of_full_rank_is_cut_to_nothing_and_to_all(monkeypatch):
    tuned = moved(("kernel",))
    monkeypatch.setattr(anatomy, "RANKS", (1, FEATURES))
    found = anatomy.truncations(model(), tuned, IDS, COUNTED)
    for cut in anatomy.CUTS:
        at = losses(model() if cut == anatomy.REST else tuned)
        near(found[cut][str(FEATURES)], at, within=1e-5)
    assert far(found[anatomy.TOP]["1"], losses(tuned), by=1e-3)
    before, by_hand = tuning.kernels_of(model()), {}
    for path, change in anatomy.changes(model(), tuned).items():
        left, values, right = np.linalg.svd(change)
        top = values[0] * np.outer(left[:, 0], right[0])
        by_hand[path] = before[path] + change * (top * change).sum() / (change * change).sum()
    near(found[anatomy.SCALED]["1"], losses(tuning.replaced(model(), by_hand)), within=1e-5)
    assert max(of["energy"] for of in anatomy.ranks_of(model(), tuned)) <= FEATURES


@pytest.mark.parametrize("kinds", [MLPS, ("kernel",)])
def test_a_ladder_begins_at_the_base_and_ends_at_the_tuned_model(kinds):
    found = anatomy.ladder(model(), moved(kinds), jnp.asarray(IDS[:3]), COUNTED)
    close(found.base, losses(model(), IDS[:3]), 10)
    close(found.tuned, losses(moved(kinds), IDS[:3]), 10)
    nothing = anatomy.ladder(model(), model(), jnp.asarray(IDS[:3]), COUNTED)
    for step in nothing:
        close(step, nothing.base, 10)


class _Held:
    """A model's layers by hand, with the patterns and the scales of the norms of one run."""

    def __init__(self, ids):
        self.streams, self.middles = [model().embed(ids)], []
        for block in model().stack.blocks:
            stream = self.streams[-1]
            self.middles.append(stream + block.attention(block.norm_1(stream)))
            self.streams.append(block(stream))

    def norm(self, norm, at, x, biases):
        """Apply a norm with its scale at another input."""
        scale = norm.scale[...] / jnp.sqrt(at.var(-1, keepdims=True) + norm.epsilon)
        return (x - x.mean(-1, keepdims=True)) * scale + (norm.bias[...] if biases else 0)

    def attention(self, layer, x, biases):
        """Add a layer's attention with its pattern held."""
        block = model().stack.blocks[layer]
        attention, normed = block.attention, block.norm_1(self.streams[layer])

        def by_head(part, of, bias):
            y = of @ part.kernel[...] + (part.bias[...] if bias else 0)
            return y.reshape(len(of), attention.heads, -1).swapaxes(0, 1)

        q, k = (by_head(part, normed, True) for part in (attention.query, attention.key))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
        pattern = jax.nn.softmax(jnp.where(np.tri(len(x), dtype=bool), scores, -jnp.inf))
        values = pattern @ by_head(attention.value, self.norm(block.norm_1, self.streams[layer], x, biases), biases)
        added = values.swapaxes(0, 1).reshape(len(x), -1) @ attention.output.kernel[...]
        return x + added + (attention.output.bias[...] if biases else 0)


@pytest.mark.parametrize("reading", ["printed", "own"])
def test_eq_18_gives_each_layer_its_own_update_of_what_the_input_brings_or_of_what_it_reads(reading):
    tuned, ids = moved(MLPS), jnp.asarray(IDS[0])
    held = _Held(ids[:-1])
    of_input = stream = held.streams[0]
    for layer, (block, changed) in enumerate(zip(model().stack.blocks, tuned.stack.blocks, strict=True)):
        of_input, stream = held.attention(layer, of_input, False), held.attention(layer, stream, True)
        middle = held.middles[layer]
        brought = {
            "printed": held.norm(block.norm_2, middle, of_input, False),
            "own": block.norm_2(middle),
        }[reading]
        update = changed.mlp.input.kernel[...] - block.mlp.input.kernel[...]
        z = block.mlp.input(block.norm_2(middle)) + brought @ update
        stream = stream + jax.nn.gelu(z) @ changed.mlp.output.kernel[...] + block.mlp.output.bias[...]
    states = held.norm(model().final_norm, held.streams[-1], stream, True)
    logs = jax.nn.log_softmax(states @ model().unembedding.T)
    of_tokens = -jnp.take_along_axis(logs, ids[1:, None], -1)[:, 0]
    found = anatomy.ladder(model(), tuned, ids[None], COUNTED)
    close(getattr(found, reading)[0], of_tokens @ COUNTED / COUNTED.sum(), 10)
    assert far(getattr(found, reading), found.weights, by=1e-3)


def test_methods_train_what_they_say_and_adapters_begin_at_the_base():
    sizes = {}
    for name, method in METHODS.items():
        small = method._replace(rank=min(method.rank, 2))
        start = tuning.initial(model(), small, 0)
        assert not far(losses(tuning.tuned(model(), small, start)), losses(model()), by=1e-6), name
        sizes[name] = tuning.trained_numbers(start)
    per_layer = 4 * FEATURES + NEURONS + FEATURES
    assert sizes[BIASES] == LAYERS * per_layer
    assert sizes[MATRICES] == LAYERS * (4 * FEATURES**2 + 2 * FEATURES * NEURONS)
    assert sizes[EVERYTHING] == sum(leaf.size for leaf in jax.tree.leaves(model()))
    assert sizes[IN_MLPS] == LAYERS * 2 * 2 * (FEATURES + NEURONS)


def test_every_pass_reads_every_text_once():
    found = tuning.rows(12, 3)
    assert found.shape == (tuning.STEPS, tuning.BATCH)
    for of_pass in found[:99].reshape(-1, 12):
        assert sorted(of_pass) == list(range(12))


def test_tasks_keep_what_is_tested_out_of_training():
    tokenizer = duat.load_tokenizer()
    task = tuning.largest(tokenizer)
    seen = []
    for texts in (task.train, task.validation, task.test):
        lines = [line for text in texts for line in tokenizer.decode(text.tolist()).splitlines()]
        seen.append({tuple(sorted(re.findall(r"\d", line)[:3])) for line in lines})
        assert all(eval(line.removeprefix("assert ")) for line in lines[:50])
        answers = tokenizer.decode(texts[0, 1:][task.counted > 0].tolist()).split()
        assert answers == [line[-1] for line in lines[:5]]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]
    english = tuning.english(tokenizer)
    assert english.test.shape == english.validation.shape == (tuning.TESTED, tuning.LENGTH)


def test_agreement_of_ledgers():
    draw = np.random.default_rng(0)
    ledger, other = draw.standard_normal((2, 5, 12))
    first, second = means_of(ledger), means_of(other)
    near(first[0], ledger.mean(0), within=1e-12)
    near(first[2], np.delete(ledger, 1, 0).mean(0), within=1e-12)
    near(rank_correlation(first, second)[0], spearmanr(ledger.mean(0), other.mean(0)).statistic, within=1e-12)
    near(overlap(first, 3 * first), 1, within=1e-12)
    near(overlap(first, -first), 0, within=1e-12)
    near(overlap(np.array([[1.0, 3.0]]), np.array([[3.0, 1.0]])), 0.5, within=1e-12)
    mixed = shuffled(first, 3)
    assert far(mixed, first)
    near(np.sort(mixed.reshape(-1, 3, 4), -1), np.sort(first.reshape(-1, 3, 4), -1), within=0)
    value, low, high = agreements([(first, second)])["rank correlation"]
    assert low <= value <= high


SMALL = {
    name: Method(method.trained, method.rates[1:3], min(method.rank, 2), method.modules)
    for name, method in METHODS.items()
}


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    # optax promotes its counter of steps.
    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
        patch.setattr(tuning, "STEPS", 8)
        patch.setattr(why, "SEEDS", (1, 2))
        patch.setattr(why, "LADDERS", 2)
        patch.setattr(why, "MOVED", 1)
        patch.setattr(anatomy, "RANKS", (1, 2))
        task = Task(IDS, IDS[:4], IDS[4:7], np.asarray(COUNTED))
        folder = tmp_path_factory.mktemp("ledgers")
        cases = {name: why.Case(model(), task, IDS[:3], folder / name, SMALL) for name in TASKS}
        return frames_of(why.of_cases(cases))


def test_every_method_is_measured_at_its_best_rate_and_its_ledgers_close(frames):
    runs, methods = frames["runs"], frames["methods"]
    at_best = runs[runs["at"] == "best"]
    assert at_best["ledger holds"].sum() == 2 * len(METHODS) * 2 * 3 and len(at_best) == 2 * len(METHODS) * 2
    for row in methods.itertuples():
        tried = frames["tried"][(frames["tried"].task == row.task) & (frames["tried"].trained == row.trained)]
        assert row.rate == tried.sort_values("loss").rate.iloc[0]
        of_method = why_report.runs_of(frames, row.task, row.trained)
        base = why_report.base(frames, row.task, "loss")
        for each in of_method.to_dict("records"):
            near(np.sum(each["by kind"], 1), np.array(each["loss"]) - base, within=2e-4)
        near(
            why_report.learned(frames, row.task, row.trained), base - np.mean(of_method.loss.to_list(), 0), within=1e-9
        )


def test_a_new_run_has_the_frames_and_columns_that_are_kept(frames):
    kept = run.frames_of("lora_why")
    assert {name: set(of.columns) for name, of in frames.items()} == {
        name: set(of.columns) for name, of in kept.items()
    }
    assert set(frames["runs"].ladder[0]) == set(kept["runs"].ladder[0])


def test_ledgers_of_two_trainings_are_compared(frames):
    full = why_report.agreement_of("English", "neurons", MATRICES, frames, "overlap")
    assert 0 < full.value <= 1
    compared = set(frames["agreement"].compared)
    assert {*RANKS, MATRICES, f"{MATRICES}, on the other task", "rank 16, shuffled within layers"} <= compared


def made_up(forgotten):
    """Return full fine-tuning at two rates, which has learned and forgotten 1 and 2, and a method between them."""
    texts = np.array([-0.1, 0.0, 0.1])

    def of(name, at, fall, rise):
        return {
            "task": "English",
            "trained": name,
            "at": at,
            "seed": 1,
            "loss": 5 - fall - texts,
            "original": 2 + rise + texts,
        }

    runs = [of(EVERYTHING, "lower", 1, 1), of(EVERYTHING, "best", 2, 2), of("rank 4", "best", 1.5, forgotten)]
    base = {"task": "English", "loss": np.full(3, 5.0), "original": np.full(3, 2.0)}
    return {"runs": pd.DataFrame(runs), "base": pd.DataFrame([base])}


def test_forgetting_is_compared_where_full_fine_tuning_has_learned_as_much():
    frames = made_up(1.2)
    near(why_report.at_equal_learning(frames, "English", "rank 4").mean(), 1.5, within=1e-9)
    near(why_report.against_full("English", "rank 4", frames).mean(), -0.3, within=1e-9)
    near(why_report.learned_share("English", "rank 4", frames).value, 75, within=1e-9)
    more = made_up(1.2)
    more["runs"].at[2, "loss"] = np.full(3, 1.0)
    assert why_report.at_equal_learning(more, "English", "rank 4") is None, "full fine-tuning never learns as much"


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([(96, 99), (80, 90)], "confirmed"),
        ([(80, 94), (70, 90)], "refuted"),
        ([(90, 99), (70, 90)], "undecided"),
    ],
)
def test_some_rank_learns_as_much(shares, said):
    assert why.some_rank([Estimate(sum(of) / 2, *of, 48, OfInterval.BOOTSTRAP) for of in shares]) == said
