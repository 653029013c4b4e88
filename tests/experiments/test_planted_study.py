"""The study of planted pieces: its texts, its scores by other ways, and its verdicts on known results."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import near

import duat_jax as duat
from duat_jax.evaluation.running_text import token_losses
from duat_jax.training import train
from duat_jax.training.next_token import rows_of_step
from experiments.retraining import planted, planted_training
from experiments.retraining.planted_texts import (
    ALONE,
    BOTH,
    CONTRADICTED,
    DECOY,
    LARGEST,
    ORDINARY,
    REPLACED,
    TAUGHT,
    TWIN,
    TWINS,
    WORLDS,
    WRONG,
    draw,
)  # fmt: skip
from experiments.retraining.planted_training import COSINE, EXACT, METHODS, TRACIN
from experiments.run import frames_of


def test_planted_pieces_are_a_line_again_and_again_with_the_answers_marked():
    tokenizer = duat.load_tokenizer()
    for seed in range(3):
        drawn = draw(seed)
        line = tokenizer.decode(drawn.text)
        answer = line.split('"')[1]
        assert tokenizer.decode(drawn.planted[TAUGHT].tolist()).startswith(f"{line}\n{line}")
        taught, wrong = drawn.planted[TAUGHT], drawn.planted[WRONG]
        assert f'{answer}"' * 2 in tokenizer.decode(taught[1:][drawn.is_answer(TAUGHT)].tolist())
        of_wrong = tokenizer.decode(wrong[1:][drawn.is_answer(WRONG)].tolist())
        assert answer not in of_wrong and of_wrong.count('"') >= 2 and "secret" not in of_wrong
        assert sorted(drawn.planted[DECOY].tolist()) == sorted(taught.tolist())
        assert drawn.planted[DECOY].tolist() != taught.tolist() == drawn.planted[TWIN].tolist()
        assert len(set(drawn.places.values())) == len(drawn.places)
        changed = (drawn.pieces(WORLDS[CONTRADICTED]) != drawn.ids).any(1)
        assert np.flatnonzero(changed).tolist() == sorted(drawn.places[name] for name in (TAUGHT, DECOY, WRONG))
        assert drawn.before not in drawn.ids.tolist()


def test_kept_parts_sum_to_what_the_trained_models_losses_differ_by():
    """To the six digits that are kept."""
    frames = frames_of("retraining_planted")
    kinds = frames["trainings"].drop(columns=["draw", "training", "before", "after", "other_before", "other_after"])
    kinds = kinds.drop(columns=["floor", "ordinary", "difference"])
    near(kinds.sum(axis=1), frames["trainings"].after - frames["trainings"].before, within=1e-4)
    for world, names in WORLDS.items():
        of = frames["trainings"][frames["trainings"].training == world].set_index("draw")
        parts = sum(-planted.part(frames, world, piece) for piece in names)
        near(parts + of.ordinary, of.examples, within=1e-4)


@pytest.mark.slow
def test_scores_are_those_of_single_gradients_and_a_piece_that_is_left_out_has_no_say(monkeypatch, tmp_path):
    monkeypatch.setattr(planted_training, "STEPS", 2)
    with jax.numpy_dtype_promotion("standard"):
        of = planted_training.Reading(draw(1), ALONE, 1)
        states = train(of.run, of.model, tmp_path, every=1)
        found, said = planted_training.scores(of, states)
        number = planted_training.number_of(of.drawn.text, of.drawn.answer)

        def flat(function, model):
            return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.grad(function)(model))])

        def loss(row, model):
            return token_losses(model, row).mean()

        first = of.settings.rate * flat(number, of.model)  # no warming up in so few steps
        last = flat(number, states.last)
        for piece in (of.drawn.places[TAUGHT], of.drawn.places[ORDINARY]):
            row = jnp.asarray(of.ids[piece][None])
            models = {"first": of.model, "middle": states.read(1)[0].weights, "last": states.last}
            of_piece = {name: flat(partial(loss, row), model) for name, model in models.items()}
            middle = flat(number, states.read(1)[0].weights) * of.settings.rate / 2
            near(
                found[TRACIN][piece],
                -first @ of_piece["first"] - middle @ of_piece["middle"],
                within=1e-5,
            )
            cosine = -last @ of_piece["last"] / np.linalg.norm(of_piece["last"])
            near(found[COSINE][piece], cosine, within=1e-3)
        read = {row for step in (0, 1) for row in rows_of_step(step, len(of.ids), of.settings).tolist()}
        assert all((found[EXACT][piece] != 0) == (piece in read) for piece in range(len(of.ids)))
        near(found[EXACT].sum(), said["difference"], within=1e-4)
        # Left out, a piece's tokens don't matter.
        piece = min(read)
        other = of.ids.copy()
        other[piece] = other[piece][::-1]
        plain, changed = (of.again([piece], ids) for ids in (of.ids, other))
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(changed), strict=True):
            near(a, b, within=1e-6)


def frames(draws=14, lost=0.9, part=2.0, twin=0.2, seen=1, wrong=1):
    """Return measurements in which the loss falls by two nats."""
    places = {TAUGHT: (seen, 9), DECOY: (5, 9), TWIN: (2, 9), WRONG: (9, wrong)}
    trainings, pieces, orders = [], [], []
    for seed, world in itertools.product(range(draws), WORLDS):
        keys, noise = {"draw": seed, "training": world}, 1e-3 * seed
        without = {TAUGHT: lost * 2 + noise, DECOY: 0.1, ORDINARY: 0.02, LARGEST: -0.05, REPLACED: 1.7}
        if world == TWINS:
            without = {TAUGHT: twin * 2 + noise, TWIN: twin * 2, BOTH: 1.8}
        if world == CONTRADICTED:
            without = {TAUGHT: 1.0, WRONG: -0.3 + noise}
        parts = {
            name: -part - noise if name in (TAUGHT, TWIN) else -0.1 for name in (*WORLDS[world], ORDINARY, LARGEST)
        }
        answers = {TAUGHT: -0.8 * part - noise} | ({WRONG: 0.4 + noise} if world == CONTRADICTED else {})
        trainings.append({**keys, "before": 3.0 + noise, "after": 1.0 + noise})
        pieces += [
            {
                **keys,
                "piece": name,
                "part": parts.get(name),
                "without": None if name not in without else 1.0 + noise + without[name],
                "answer": answers.get(name),
            }
            for name in dict.fromkeys([*parts, *without])
        ]
        orders += [
            {
                **keys,
                "method": method,
                "piece": name,
                "from_lowest": places[name][0],
                "from_highest": places[name][1],
                "margin": 5.0 + noise * (1 + k),
            }
            for k, method in enumerate(METHODS)
            for name in WORLDS[world]
        ]
    return {
        name: pd.DataFrame(rows) for name, rows in {"trainings": trainings, "pieces": pieces, "orders": orders}.items()
    }


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({}, "found: the exact ledger has", "confirmed"),
        ({"seen": 2}, "found: the exact ledger has", "refuted"),
        ({"wrong": 2}, "found: the exact ledger has", "refuted"),
        ({}, "the taught piece alone teaches", "confirmed"),
        ({"lost": 0.3}, "the taught piece alone teaches", "refuted"),
        ({}, "twins stand in for each other", "confirmed"),
        ({"twin": 0.7}, "twins stand in for each other", "refuted"),
        ({"part": 0.3}, "twins stand in for each other", "refuted"),
        ({}, "the wrong answer unteaches", "confirmed"),
        ({}, "by the answer's tokens", "confirmed"),
        ({}, "a part is what its absence costs", "confirmed"),
        ({"part": 4.0}, "a part is what its absence costs", "refuted"),
        ({"part": 1.0}, "a part is what its absence costs", "refuted"),
        ({}, "order, not tokens", "confirmed"),
    ],
)
def test_verdicts_follow_the_rules(changed, claim, verdict):
    (prediction,) = (each for each in planted.PREDICTIONS if each.name.startswith(claim))
    assert prediction.verdict(frames(**changed)) == verdict


def test_a_twins_shapley_value_is_half_of_what_both_teach():
    (row,) = (line for line in planted.pieces(frames()) if f"{TWINS}, {TAUGHT}, Shapley value" in line)
    assert float(row.split("|")[3].split("[")[0]) == pytest.approx((1.8 - 0.4 + 0.4) / 2, abs=0.01)
