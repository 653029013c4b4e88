"""One text after several prompts: what is exchanged, and the verdicts."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import modern, near

import duat_jax as duat
from duat_jax.forms.closed_form import unroll
from duat_jax.models.config import Head
from duat_jax.verification.networks import randomised
from experiments import smollm2
from experiments.frozen_parameters import held_values, run_with
from experiments.prompts import exchanged, report, run
from experiments.prompts.texts import INSTRUCTIONS, draw_prompts


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


def test_at_the_token_that_differs_everything_exchanged_leaves_the_input_alone():
    """What later tokens read of it is the other's, but for its own embedding on the linear path."""
    model = gated_model()
    found = exchanged.scores(model, OWN, OTHER, at(1), count=COUNT)
    x, y = model.embed(OWN[0]), model.embed(OTHER[0])
    far_from_own = abs(float(found[f"{exchanged.TEXT}, {exchanged.ALL}"] - found[exchanged.OWN]))
    assert far_from_own > 1e-6
    same = exchanged.scores(model, OWN, OWN, at(1, 2, 3), count=COUNT)
    near(list(same.values()), same[exchanged.OWN], 1e-9)
    form = unroll(model.output, y)
    near(form.apply(y), model.output(y), 1e-9)
    assert np.abs(np.asarray(form.apply(x) - model.output(x))).max() > 1e-6


def test_with_the_others_weights_held_the_own_words_are_read_anew():
    """Patterns, scales and factors are set by hand, mark by mark, in a run of the own text."""
    model = gated_model()
    found = exchanged.scores(model, OWN, OTHER, at(*range(6)), count=COUNT)
    scores = []
    for own, other in zip(OWN, OTHER, strict=True):
        logits = run_with(model.output, model.embed(own), held_values(model.output, model.embed(other)))
        logs = np.asarray(logits, np.float64)[-2]
        scores.append(logs[int(own[-1])] - np.logaddexp.reduce(logs))
    near(found[f"{exchanged.EVERYWHERE}, {exchanged.WEIGHTS}"], scores[0] - scores[1], 1e-9)
    assert abs(scores[0] - scores[1] - float(found[exchanged.OWN])) > 1e-6


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


def results_of(text, words, distances):
    """Return results in which every run at the text goes some share of the way, at the words another."""
    tasks = list(INSTRUCTIONS)
    shares = {run: words if report.WORDS in run else text for run in report.RUNS}
    plain = [{report.OWN: 1.0, report.OTHER: -1.0} | {run: 1 - 2 * of for run, of in shares.items()}] * 4
    found = {f"answers, {task} {wording}": [[1], [2], [3], [4]] for task in tasks for wording in (0, 1)}
    for own in tasks:
        for other in tasks:
            found |= {f"{own} to {other}": plain, f"{own} to {other}, {report.WORDING}": plain}
            found[f"apart, {own}, {other}"] = distances["tasks"]
        for kind in ("wordings", report.BETWEEN_TEXTS):
            found[f"apart, {own}, {kind}"] = distances[kind]
    return {"pieces": found}


def of_groups(number):
    return {group: [number] * 4 for group in (*exchanged.HELD, exchanged.BIASES)}


@pytest.mark.parametrize(
    ("text", "words", "numbers", "expected"),
    [
        (0.7, 0.3, (0.2, 0.1, 1.0), ["confirmed", "confirmed", "confirmed", "refuted", "confirmed"]),
        (0.3, 0.9, (0.1, 0.2, 0.15), ["refuted", "refuted", "refuted", "confirmed", "refuted"]),
        (0.5, 0.5, (0.3, 0.3, 1.0), ["undecided"] * 5),
    ],
)
def test_verdicts_follow_the_stated_bounds(text, words, numbers, expected):
    kinds = ("tasks", "wordings", report.BETWEEN_TEXTS)
    distances = {kind: of_groups(number) for kind, number in zip(kinds, numbers, strict=True)}
    results = results_of(text, words, distances)
    assert [row[1] for row in report.verdicts(results)] == expected
    assert "### Distances of parameters at the text" in report.fields(results)["tables"]


@pytest.mark.slow
def test_the_whole_study_runs_small_and_goes_on(tmp_path):
    tokenizer = duat.load_tokenizer(smollm2.path())
    prompts = draw_prompts(tokenizer, 2, 8, 0)
    differ = [(prompts.ids[a] != prompts.ids[b]).any(0).sum() for a, b in ((0, 1), (0, 2), (0, 4), (4, 5))]
    assert differ == [3, 1, 3, 3]
    assert (prompts.ids[:, :, prompts.text] == prompts.ids[:1, :, prompts.text]).all()
    model = gated_model(tokenizer.get_vocab_size(), dtype=jnp.float32)
    sizes = run.Sizes(texts=2, length=8, answer=2)
    found = run.main(sizes, tmp_path, model, tokenizer)
    assert "| a task moves more than a wording |" in report.fields(found)["tables"]
    journal = (tmp_path / "prompts").read_bytes()
    assert run.main(sizes, tmp_path, model, tokenizer)["pieces"] == found["pieces"]
    assert (tmp_path / "prompts").read_bytes() == journal
