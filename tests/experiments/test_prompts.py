"""One text after several prompts: what is exchanged, and the verdicts."""

import itertools

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import nnx
from helpers import modern, near

import duat_jax as duat
from duat_jax.forms.closed_form import unroll
from duat_jax.models.config import Head
from duat_jax.papers.parameters import held_values, run_with
from duat_jax.transform import marks
from duat_jax.transform.editing import Edit, edit
from duat_jax.transform.recording import record
from duat_jax.verification.networks import randomised
from experiments import run as framework
from experiments import smollm2
from experiments.prompts import exchanged, run
from experiments.prompts.texts import draw_prompts


def gated_model(vocab=20, positions=64, dtype=jnp.float64):
    config = duat.models.Config(
        family="llama",
        blocks=(modern(features=8, heads=2, neurons=10, causal=True),) * 2,
        vocab=vocab,
        positions=positions,
        head=Head(kind="next token", outputs=vocab, tied=True),
        position_embedding=False,
    )
    return randomised(duat.models.Transformer(config, dtype=dtype, rngs=nnx.Rngs(0)), 0)


OWN = jnp.array([[3, 5, 7, 2, 9, 11], [3, 5, 7, 2, 9, 12]])
OTHER = OWN.at[:, 1].set(6)
COUNT = 1


def score(model, ids):
    logits = np.asarray(model(ids), np.float64)[-2]
    return logits[int(ids[-1])] - np.logaddexp.reduce(logits)


def at(*tokens):
    here = jnp.isin(jnp.arange(OWN.shape[1]), jnp.array(tokens, int))
    return {place: here for place, _ in exchanged.EXCHANGED}


def test_plain_runs_are_the_models_own():
    model = gated_model()
    found = exchanged.scores(model, OWN, OTHER, at(), count=COUNT)
    near(found[exchanged.OWN], score(model, OWN[0]) - score(model, OWN[1]), 1e-9)
    near(found[exchanged.OTHER], score(model, OTHER[0]) - score(model, OTHER[1]), 1e-9)
    for place, group in exchanged.EXCHANGED:
        near(found[f"{place}, {group}"], found[exchanged.OWN], 1e-9)


def scores_by_hand(run):
    """Return the difference of both answers' scores, by a function of the own and the other text."""
    found = []
    for own, other in zip(OWN, OTHER, strict=True):
        logs = np.asarray(run(own, other), np.float64)[-2]
        found.append(logs[int(own[-1])] - np.logaddexp.reduce(logs))
    return found[0] - found[1]


def test_the_function_is_the_others_and_the_input_the_own_and_the_other_way_around():
    model = gated_model()
    found = exchanged.scores(model, OWN, OTHER, at(), count=COUNT)

    def dense(of, x):
        """Return the closed form of one text at the embeddings of another, from its parameters one by one."""
        form = unroll(model.output, model.embed(of))
        x = model.embed(x)
        activations = [form.activate(j, form.inner_map(j)(x) + form.inner_bias(j)) for j in (1, 2)]
        terms = sum(form.outer_map(j)(activation) for j, activation in enumerate(activations, 1))
        return form.input_map()(x) + form.bias() + terms

    near(found[exchanged.FUNCTION], scores_by_hand(lambda own, other: dense(other, own)), 1e-9)
    near(found[exchanged.INPUT], scores_by_hand(lambda own, other: dense(own, other)), 1e-9)
    assert abs(float(found[exchanged.FUNCTION] - found[exchanged.INPUT])) > 1e-6


def test_what_is_exchanged_at_some_tokens_is_set_mark_by_mark():
    model = gated_model()
    places = at(1, 2)
    found = exchanged.scores(model, OWN, OTHER, places, count=COUNT)
    here = np.asarray(places[exchanged.TEXT], float)[:, None]

    def seen(ids, *kinds):
        recording = record(model.output)(model.embed(ids))
        return {site: recording.seen[site] for site in recording.program.of_kind(*kinds)}

    def everything(own, other):
        values = seen(other, marks.HOLD, marks.PRE_ACTIVATION)
        edits = {site: Edit(kept=1.0 - here, added=here * value) for site, value in values.items()}
        return edit(model.output, edits)(model.embed(own))

    def biases(own, other):
        forms = [unroll(model.output, model.embed(ids)) for ids in (own, other)]
        edits = {}
        for j, (site, z) in enumerate(seen(own, marks.PRE_ACTIVATION).items(), 1):
            moved = z + forms[1].inner_bias(j) - forms[0].inner_bias(j)
            edits[site] = Edit(kept=1.0 - here, added=here * moved)
        return edit(model.output, edits)(model.embed(own))

    near(found[f"{exchanged.TEXT}, {exchanged.ALL}"], scores_by_hand(everything), 1e-9)
    near(found[f"{exchanged.TEXT}, {exchanged.BIASES}"], scores_by_hand(biases), 1e-9)
    runs = {round(float(of), 9) for name, of in found.items() if exchanged.TEXT in name}
    assert len(runs) == 5  # no two groups do the same
    same = exchanged.scores(model, OWN, OWN, at(1, 2, 3), count=COUNT)
    near(list(same.values()), same[exchanged.OWN], 1e-9)


def test_with_the_others_weights_held_the_own_words_are_read_anew():
    model = gated_model()
    found = exchanged.scores(model, OWN, OTHER, at(*range(6)), count=COUNT)

    def held(own, other):
        return run_with(model.output, model.embed(own), held_values(model.output, model.embed(other)))

    expected = scores_by_hand(held)
    near(found[f"{exchanged.EVERYWHERE}, {exchanged.WEIGHTS}"], expected, 1e-9)
    assert abs(expected - float(found[exchanged.OWN])) > 1e-6


def test_biases_of_all_terms_come_in_one_pass():
    model = gated_model()
    form = unroll(model.output, model.embed(OWN[0]))
    for j, bias in enumerate(exchanged.parameters_of(form).biases.values(), 1):
        near(bias, form.inner_bias(j), 1e-9)


def test_distances_are_zero_before_what_differs_and_at_equal_texts():
    model = gated_model()
    before = exchanged.distances(model, OWN, OTHER, first=0, last=1)
    after = exchanged.distances(model, OWN, OTHER, first=2, last=5)
    for group in exchanged.HELD:
        near(before[group], 0, 1e-12)
        assert (np.asarray(after[group]) > 1e-6).all()
    near(exchanged.distances(model, OWN, OWN, first=0, last=6)[exchanged.BIASES], 0, 1e-12)


def frames_of(text, words, distances, way=2.0):
    """Return frames in which runs at the text go some share of the way, all others another share; texts differ."""
    runs, apart = [], []
    shares = {name: text if name.startswith(run.TEXT) else words for name in run.RUNS}
    for own, other in itertools.permutations(run.TASKS, 2):
        # One direction goes half of the share, the other one and a half of it.
        side = 0.5 if run.TASKS.index(own) < run.TASKS.index(other) else 1.5
        for parameters, (i, of) in itertools.product(
            (run.ANOTHER_TASK, run.ANOTHER_WORDING), enumerate((0.5, 1.0, 1.5, 1.0))
        ):
            keys = {"prompt": own, "towards": other, "parameters": parameters, "text": i}
            moved = {name: 1 - side * way * of * each for name, each in shares.items()}
            runs.append(keys | {run.OWN: 1.0, run.OTHER: 1 - way * of} | moved)
    for pairs, number in zip((run.PAIRS, run.BETWEEN["wordings"], run.BETWEEN["texts"]), distances, strict=True):
        groups = dict.fromkeys((*exchanged.HELD, exchanged.BIASES), number)
        apart += [{"first": a, "second": b, "text": i} | groups for a, b in pairs for i in range(4)]
    return {"runs": pd.DataFrame(runs), "apart": pd.DataFrame(apart)}


def verdicts(frames):
    return [str(prediction.verdict(frames)) for prediction in run.STUDY.predictions]


@pytest.mark.parametrize(
    ("text", "words", "numbers", "expected"),
    [
        (0.7, 0.3, (0.2, 0.1, 1.0), ["confirmed", "refuted", "refuted", "confirmed", "confirmed"]),
        (0.3, 0.9, (0.1, 0.2, 0.15), ["refuted", "confirmed", "confirmed", "refuted", "refuted"]),
        (0.5, 0.5, (0.3, 0.3, 1.0), ["undecided"] * 5),
    ],
)
def test_verdicts_follow_the_stated_bounds(text, words, numbers, expected):
    assert verdicts(frames_of(text, words, numbers)) == expected


def test_without_a_way_nothing_is_decided():
    frames = frames_of(0.7, 0.3, (0.2, 0.1, 1.0))
    frames["runs"][run.OTHER] = frames["runs"][run.OWN] + (-1.0) ** frames["runs"].text - 0.01
    assert verdicts(frames) == ["undecided"] * 5


def test_an_interval_decides_and_not_a_mean():
    frames = frames_of(0.7, 0.3, (0.2, 0.1, 1.0))
    runs = frames["runs"]  # two texts go most of the way, two hardly any
    runs[f"{run.TEXT}, {run.ALL}"] = runs[run.OWN] - runs.text.map([1.2, 0.05, 1.2, 0.05].__getitem__) * (
        runs[run.OWN] - runs[run.OTHER]
    )
    assert verdicts(frames)[0] == "undecided"


@pytest.mark.slow
def test_the_whole_study_runs_small_and_goes_on(tmp_path, monkeypatch):
    tokenizer = duat.load_tokenizer(smollm2.path())
    prompts = draw_prompts(tokenizer, 2, 8, 0)
    differ = [(prompts.ids[a] != prompts.ids[b]).any(0).sum() for a, b in ((0, 1), (0, 2), (0, 4), (4, 5))]
    assert differ == [3, 1, 3, 3]
    assert (prompts.ids[:, :, prompts.text] == prompts.ids[:1, :, prompts.text]).all()
    model = gated_model(tokenizer.get_vocab_size(), dtype=jnp.float32)
    for name, value in {"TEXTS": 2, "LENGTH": 8, "ANSWER": 2}.items():
        monkeypatch.setattr(run, name, value)
    monkeypatch.setattr(run.duat, "load", lambda path: model)
    columns = {name: {*frame} for name, frame in framework.frames_of("prompts").items()}
    monkeypatch.setattr(framework, "FOLDER", tmp_path)
    framework.run("prompts", run.STUDY)
    frames, kept = framework.frames_of("prompts"), (tmp_path / "prompts.json").read_bytes()
    assert {name: {*frame} for name, frame in frames.items()} == columns
    assert all(render(frames) for render in run.STUDY.tables.values()) and verdicts(frames)
    monkeypatch.setattr(run, "scores", None)  # what is kept isn't measured again
    framework.run("prompts", run.STUDY)
    assert (tmp_path / "prompts.json").read_bytes() == kept
