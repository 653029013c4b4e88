"""Small studies of single claims: slices, rare texts, sizes, training from the beginning, contexts, written text."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import close, near

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from experiments import run
from experiments.estimate import Estimate, Method
from experiments.generalization import rare, sized
from experiments.heads import sliced
from experiments.in_context import consistent
from experiments.in_context.windows import restricted_states, window
from experiments.long_context.networks import FULL
from experiments.lora import context, scratch, tuning
from training.corpus import sources, split
from training.train import optimizer


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def test_slices_are_blocks_of_a_dense_matrix():
    part = sliced.SlicedProjection(12, 3, rngs=nnx.Rngs(0))
    dense = jax.scipy.linalg.block_diag(*part.kernel[...])
    x = jax.random.normal(jax.random.key(0), (2, 5, 12))
    close(part(x), x @ dense)


def test_slices_have_as_many_parameters_and_the_matrices_rule():
    untrained = run.frames_of("long_context_trained")["untrained"].set_index("network")
    assert sliced.count(sliced.sizes()) == untrained.parameters[FULL]
    model = sliced.sliced(sliced.sizes(), nnx.Rngs(0))
    by_muon = {
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(optimizer(10).init(model))
        if "muon" in jax.tree_util.keystr(path) and np.ndim(leaf) == 3
    }
    assert all(any(f"attention.{part}" in path for path in by_muon) for part in ("query", "key", "value"))


def test_sliced_tables_compare_seeds():
    networks = run.frames_of("heads_sliced")["networks"]
    full = networks[networks.network == FULL]
    more = full.assign(network=sliced.SLICED, late=[(np.array(late) + 0.05).tolist() for late in full.late])
    frames = {"networks": pd.concat([full, more])}
    (prediction,) = sliced.STUDY.predictions
    near(prediction.measures[0].estimate(frames).value, 0.05, within=1e-9)
    assert prediction.verdict(frames) == "confirmed"
    near(sliced.more(sliced.GAIN, frames), np.zeros(3), within=1e-12)
    near(sliced.loss(FULL, frames), [np.mean(late) for late in full.late], within=1e-12)


@pytest.mark.parametrize(("low", "high", "said"), [(0.021, 0.04, "confirmed"), (-0.01, 0.019, "refuted")])
def test_slices_lose_by_the_stated_bound(low, high, said):
    decide = sliced.STUDY.predictions[0].decide
    assert decide(Estimate((low + high) / 2, low, high, 3, Method.STUDENT)) == said
    assert decide(Estimate(0.03, 0.013, 0.041, 3, Method.STUDENT)) == "undecided"


@pytest.mark.slow
def test_a_share_of_texts_is_rare_and_the_frequent_kind_is_without_it():
    texts = rare.texts_of(0.1, 30, seed=0).reshape(-1, 192)
    own = {of.tobytes() for of in rare.rare_texts(24, seed=0)}
    assert sum(of.tobytes() in own for of in texts) == 24
    frequent = rare.frequent_streams()[0].astype(np.uint8).tobytes()
    itself = split(sources())[0][rare.ITSELF].encode()
    assert len(frequent) > 1e7 and itself[:400] not in frequent


@pytest.mark.parametrize(("lower", "said"), [(0.2, "refuted"), (0.01, "confirmed"), (0.05, "undecided")])
def test_rare_texts_verdicts(lower, said):
    falls = {0.0: 0.0, 0.01: lower, 0.1: 0.4, 0.5: 0.8}
    rows = [
        {"share": share, "steps": steps, "seed": seed, "rare": 2.0 - fall * shift, "frequent": 1.5}
        for share, steps in rare.trainings()
        for fall in [falls[round(share, 2)] if steps == rare.STEPS else 2 * share]
        for seed, shift in enumerate((0.98, 1.0, 1.02))
    ]
    frames = {"trained": pd.DataFrame(rows)}
    opposite = {"refuted": "confirmed", "confirmed": "refuted"}.get(said, said)
    assert [of.verdict(frames) for of in rare.STUDY.predictions] == [said, opposite, "confirmed"]
    shown = rare.with_gains(frames["trained"])
    few = shown[shown["rare texts"] == "1%"]
    near(few.part.mean(), lower / 0.8, within=1e-9)
    assert few.number.tolist() == [120, 120, 120]
    among_fewer = shown[(shown["rare texts"] == "10%") & (shown.steps == rare.FEWER)]
    near(among_fewer.gain.mean(), 0.2, within=1e-9)


def test_another_functions_demonstrations_are_at_the_same_points():
    own, other = sized.examples(jax.random.key(0))
    close(own.inputs[..., :3], other.inputs[..., :3])
    assert (own.targets == other.targets).all()
    points, values = np.asarray(own.inputs[..., :3], float), np.asarray(own.inputs[..., 3], float)
    for inputs, right in ((values, True), (np.asarray(other.inputs[..., 3], float), False)):
        weights = np.linalg.lstsq(points[0, :-1], inputs[0, :-1], rcond=None)[0]
        assert np.isclose(points[0, -1] @ weights, own.targets[0, 0], atol=1e-4) == right


@pytest.mark.parametrize(("small", "said"), [(0.9, "confirmed"), (0.1, "refuted"), (0.5, "undecided")])
def test_sizes_have_parts_of_the_largest_gain(small, said):
    rows = [
        {"width": width, "steps": sized.STEPS, "other": 1.4 + shift, "own": 1.4 - gain + shift}
        for width, gain in ((4, 0.0), (8, small), (32, 1.0))
        for shift in (0.0, 0.01)
    ]
    frames = {"networks": pd.DataFrame(rows)}
    papers = {"refuted": "confirmed", "confirmed": "refuted"}.get(said, said)
    assert [of.verdict(frames) for of in sized.STUDY.predictions] == [papers, said]


def test_a_fine_tuning_in_two_parts_is_the_whole():
    model, task = duat.load(), tuning.largest(duat.load_tokenizer())
    method = tuning.METHODS["rank 1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "STEPS", 4)
        whole = tuning.train(model, task, method, 1e-2, 0)
        *_, last = tuning.train_along(model, task, method, 1e-2, 0, (1, 4))
    near(
        *(tuning.text_losses(of, jnp.asarray(task.test[:4]), jnp.asarray(task.counted)) for of in (whole, last)),
        within=1e-5,
    )


def test_further_texts_leave_the_test_as_it_was():
    tokenizer = duat.load_tokenizer()
    few, many = tuning.largest(tokenizer), tuning.largest(tokenizer, 8)
    assert (few.test == many.test).all() and (many.train[: len(few.train)] == few.train).all()
    assert len(many.train) == len(few.train) + 8
    tested = {tuple(sorted(line)) for line in _digits(tokenizer, few.test)}
    assert not tested & {tuple(sorted(line)) for line in _digits(tokenizer, many.train)}


def _digits(tokenizer, texts):
    lines = "".join(tokenizer.decode_batch(texts.tolist())).splitlines()
    return [line[line.index("(") + 1 : line.index(")")].split(", ") for line in lines if line]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (0.5, ["confirmed", "refuted", "confirmed"]),
        (-0.2, ["refuted", "confirmed", "refuted"]),
        (0.0, ["undecided", "undecided", "undecided"]),
    ],
)
def test_training_from_random_weights_is_compared_seed_by_seed(more, said):
    rows = [
        {"task": name, "steps": steps, "seed": seed, scratch.MORE: more + shift}
        for name in (scratch.ONCE, scratch.FRESH)
        for steps in scratch.LENGTHS
        for seed, shift in enumerate((0.0, 0.01, -0.01))
    ]
    frames = {"scratch": pd.DataFrame(rows)}
    assert [prediction.verdict(frames) for prediction in scratch.STUDY.predictions] == said


def test_a_seed_is_compared_with_the_adapted_model_of_that_seed():
    base, *adapted = scratch.adapted()
    runs = run.frames_of("lora_why")["runs"]
    for row in adapted:
        asked = (runs.task == scratch.ONCE) & (runs.trained == scratch.ADAPTED) & (runs.seed == row["seed"])
        near(row["loss"], np.mean(runs[asked & (runs["at"] == "best")].loss.iloc[0]), within=1e-9)
    kept_rows = run.frames_of("lora_scratch")["scratch"]
    known = {row["seed"]: row["loss"] for row in adapted}
    near(kept_rows.loss - kept_rows[scratch.MORE], kept_rows.seed.map(known), within=1e-5)
    assert base["loss"] > max(known.values())


def test_far_tokens_are_another_texts():
    model = duat.load()
    texts = np.random.default_rng(0).integers(5, 4000, (16, tuning.LENGTH)).astype(np.int32)
    found = context.losses(model, texts)
    losses = np.asarray(token_losses(model, jnp.asarray(texts)))
    near(found["whole"], losses[:, -context.LATE :].mean(1), within=2e-5)
    text = np.concatenate([texts[-1, :32], texts[0, 32:]])
    assert tuning.LENGTH - context.LATE - context.NEAR == 32
    alone = np.asarray(token_losses(model, jnp.asarray(text)[None]))[0, -context.LATE :].mean()
    near(found["whole"][0] + found["gain"][0], alone, within=2e-4)


def test_gains_grow_and_are_worn_down():
    draw = np.random.default_rng(0)

    def row(texts, trained, seed, before, after):
        noise = draw.normal(0, 0.02, 48)
        gains = {"before": np.full(48, before), "gain": after + noise, "whole": draw.normal(3, 0.1, 48)}
        return {"texts": texts, "trained": trained, "steps": 100, "seed": seed, **gains}

    rows = [
        row(texts, trained, seed, *of)
        for texts, of in zip(context.TEXTS, ((0.2, 0.3), (1.0, 0.5)), strict=True)
        for trained in context.COMPARED
        for seed in context.SEEDS
    ]
    frames = {"gains": pd.DataFrame(rows)}
    assert [prediction.verdict(frames) for prediction in context.STUDY.predictions] == ["confirmed", "confirmed"]
    near(context.worn("rank 16", frames).value, 0.5, within=0.02)


def test_a_window_of_everything_is_the_model():
    model, ids = duat.load(), jnp.arange(5, 17)
    close(restricted_states(model, ids, jnp.asarray(window(12, 12))), model.states(model.embed(ids)), layers=6)
    cut = restricted_states(model, ids, jnp.asarray(window(12, 1)))
    near(cut[-1], restricted_states(model, ids.at[0].set(99), jnp.asarray(window(12, 1)))[-1], within=1e-5)


def test_prompts_state_their_values_once():
    prompts = list(consistent.prompts())
    assert len(prompts) == consistent.PROMPTS
    for prompt in prompts:
        for place, count in ((consistent.FAR, 1), (consistent.NEAR, 1), (consistent.UNSTATED, 0)):
            text = prompt.texts[place]
            named = [value for value in consistent.FACTS[prompt.kind][2] if consistent.named(f" {value}.", prompt.kind)]
            assert sum(f" {value}" in text for value in named) == count
        assert consistent.named(prompt.texts[consistent.FAR], prompt.kind) == prompt.value


@pytest.mark.parametrize(
    ("far", "near_by", "chance", "said"),
    [
        (0, 40, 0, ["confirmed", "refuted"]),
        (40, 40, 0, ["refuted", "confirmed"]),
        (0, 40, 48, ["undecided"] * 2),
        (0, 2, 0, ["undecided"] * 2),
    ],
)
def test_written_text_is_consistent(far, near_by, chance, said):
    """The first so many of 48 prompts name their value with a window; all do with the whole text."""
    counts = {
        (consistent.SEEN, consistent.FAR): far,
        (consistent.SEEN, consistent.NEAR): near_by,
        (consistent.FULL, consistent.UNSTATED): chance,
    }
    written = pd.DataFrame(
        [
            {"prompt": i, "kind": prompt.kind, "value": prompt.value, "sees": way[0], "fact": way[1]}
            | (
                {"text": f" {prompt.value}", "first": prompt.value}
                if i < counts.get(way, 48)
                else {"text": "", "first": ""}
            )
            for i, prompt in enumerate(consistent.prompts())
            for way in consistent.WAYS
        ]
    )
    frames = {"written": written}
    assert [str(of.verdict(frames)) for of in consistent.STUDY.predictions] == said
    assert consistent.right(consistent.SEEN, consistent.FAR, frames).sum() == far
    assert consistent.right(consistent.SEEN, consistent.FAR, frames, "at once").sum() == far
