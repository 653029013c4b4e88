"""A ranking optimised on the metric: a step by the gradient of the pass by hand, what it gains, on which prompts."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command import run as command
from helpers import close
from jaxtyping import TypeCheckError

from duat_jax.errors import InvalidInput, NotFinite
from duat_jax.evaluation.circuit_csv import to_csv
from duat_jax.evaluation.circuit_curve import FRACTIONS, STATISTICS, Curve
from duat_jax.evaluation.circuit_study import Study, study
from duat_jax.evaluation.circuit_table import circuit_lines
from duat_jax.evaluation.circuits import AT_ONCE, UNITS, corrupted_values, run, top
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.refined_ranking import RATE, refine
from duat_jax.evaluation.task_circuit import Refinement, task_circuits
from tests.evaluation.test_circuits import (
    LAYERS,
    TOKENS,
    by_hand,
    fixed,
    language_model,
    one_of,
    preference,
    prompts_of,
)
from tests.evaluation.test_task_circuit import COUNT, EXAMPLE, circuit_of, with_streams

SHAPES = {
    "neuron x position": (LAYERS, TOKENS, 10),
    "head x position": (LAYERS, TOKENS, 2, 1),
    "neuron": (LAYERS, 1, 10),
    "layer x token": (LAYERS + 1, TOKENS, 1),
}


@pytest.fixture(scope="module")
def model():
    return language_model(activation="gelu")


def replaced_of(model, prompts, kind):
    of = corrupted_values(model, prompts, {kind: UNITS[kind]}, mean=False)
    return jnp.stack([of(ids)[kind] for ids in prompts.corrupted])


def scores_of(kind):
    return np.random.default_rng(1).normal(size=SHAPES[kind])


@pytest.mark.parametrize("kind", ["neuron x position", "head x position", "neuron"])
def test_a_step_follows_the_gradient_of_the_pass_by_hand(kind, model):
    prompts, scores = prompts_of(AT_ONCE), scores_of(kind)
    prompt = one_of(prompts)
    same = jax.tree.map(lambda leaf: jnp.stack([leaf] * AT_ONCE), prompt)  # whichever are drawn
    before, after = (
        refine(model, same, UNITS[kind], scores, replaced_of(model, same, kind), steps) for steps in (0, 1)
    )
    random = np.random.default_rng(0)
    random.integers(AT_ONCE, size=AT_ONCE)
    sizes = np.exp(random.uniform(*np.log([FRACTIONS[0], FRACTIONS[-1]]), size=AT_ONCE))
    wanted = preference(model, prompt.clean, prompt)

    def distance(mask):
        heads, neurons = (
            (mask, jnp.ones(SHAPES["neuron x position"])) if "head" in kind else (jnp.ones((2, 5, 2, 1)), mask)
        )
        return (wanted - by_hand(model, prompt, heads, neurons)) ** 2

    order = np.argsort(-np.abs(scores), axis=None)
    gradient = 0
    for size in sizes:
        count = max(1, round(size * scores.size))
        mask = np.zeros(scores.size)
        mask[order[:count]] = 1
        slope = 1 / (2 + 2 * np.cosh(before - before.flat[order[count - 1]]))  # of the sigmoid
        gradient += jax.grad(distance)(jnp.asarray(mask.reshape(scores.shape))) * slope
    expected = before - RATE * gradient / jnp.abs(gradient).max()
    close(after, expected - expected.min() + 1)


@pytest.mark.parametrize("kind", UNITS)
def test_no_step_keeps_the_ranking_and_some_bring_circuits_closer(kind, model):
    prompts, scores, units = prompts_of(2 * AT_ONCE), scores_of(kind), UNITS[kind]
    replaced = replaced_of(model, prompts, kind)

    def distance(ranking):
        live = jnp.asarray(top(np.asarray(ranking)))
        runs = [
            run(model, one_of(prompts, i), units, live, replaced[i])
            - preference(model, prompts.clean[i], one_of(prompts, i))
            for i in range(2 * AT_ONCE)
        ]
        return float((np.array(runs) ** 2).mean())

    same, refined = (refine(model, prompts, units, scores, replaced, steps) for steps in (0, 20))
    np.testing.assert_array_equal(top(same), top(scores))
    assert same.min() == refined.min() == 1
    # Of a stream behind one that is replaced nothing is left, so that most have no gradient.
    assert distance(refined) < (1 if kind == "layer x token" else 0.8) * distance(scores)


def test_half_of_the_prompts_rank_and_the_others_measure(model, tmp_path):
    prompts, kinds, half = prompts_of(COUNT), tuple(UNITS), COUNT // 2
    first, second = (
        jax.tree.map(lambda leaf, part=part: leaf[part], prompts) for part in (slice(half), slice(half, None))
    )
    journal = Journal(tmp_path / "work", {})
    found = task_circuits(model, prompts, "fixed", with_streams, kinds, steps=3, journal=journal)
    again = task_circuits(model, prompts, "fixed", fixed, kinds, steps=3, journal=Journal(tmp_path / "work", {}))
    scored = task_circuits(model, first, "fixed", with_streams, kinds)
    for kind, circuit in found.items():
        refinement = circuit.refinement
        assert refinement.prompts == half and refinement.steps == 3
        close(circuit.scores, scored[kind].scores)
        close(refinement.ranking, refine(model, first, UNITS[kind], circuit.scores, replaced_of(model, first, kind), 3))
        replaced = replaced_of(model, second, kind)
        for curve, ranking in ((refinement.before, circuit.scores), (circuit.curve, refinement.ranking)):
            for i in range(COUNT - half):
                kept = run(model, one_of(second, i), UNITS[kind], jnp.asarray(top(ranking)), replaced[i])
                close(curve.kept[i], kept)
            assert len(curve.clean) == len(curve.kept) == COUNT - half
        assert [unit.inside for unit in circuit.units()] == [True] * circuit.circuit.sum()
        np.testing.assert_array_equal(again[kind].curve.kept, circuit.curve.kept)
        np.testing.assert_array_equal(again[kind].refinement.ranking, refinement.ranking)


def test_means_are_of_the_prompts_that_are_optimised_on(model):
    prompts, kind, half = prompts_of(6), "head x position", 3
    first, second = (
        jax.tree.map(lambda leaf, part=part: leaf[part], prompts) for part in (slice(half), slice(half, None))
    )
    circuit = task_circuits(model, prompts, "fixed", fixed, (kind,), steps=1, mean=True)[kind]
    mean = replaced_of(model, first, kind).mean(0)
    for i in range(half):
        kept = run(model, one_of(second, i), UNITS[kind], jnp.asarray(top(circuit.ranking)), mean)
        close(circuit.curve.kept[i], kept)


def test_ranks_of_a_model_in_bfloat16_are_all_different(model):
    scores = np.random.default_rng(0).normal(size=(4, 25, 40))
    prompts = prompts_of(2)
    ranking = refine(model, prompts, UNITS["neuron x position"], scores, jnp.zeros((2, *scores.shape), jnp.bfloat16), 0)
    np.testing.assert_array_equal(top(ranking), top(scores))


def test_what_cant_be_refined_says_so(model):
    kind = "head x position"
    for steps, count, said in (
        (-1, 4, "-1 steps: give a whole number"),
        (2.5, 4, "2.5 steps"),
        (2, 1, "at least 2 prompts"),
    ):
        with pytest.raises((InvalidInput, TypeCheckError), match=said if isinstance(steps, int) else "steps"):
            task_circuits(model, prompts_of(count), "fixed", fixed, (kind,), steps=steps, size=0.2)
    with pytest.raises(InvalidInput, match="no task 'chess'.*-1 steps: give a whole number"):
        study(model, ["chess"], ["secant"], [kind], prompts=4, progress=nullcontext, steps=-1)
    prompts = prompts_of(2)
    replaced = replaced_of(model, prompts, kind).at[0].set(jnp.nan)
    with pytest.raises(NotFinite, match="step 1"):
        refine(model, prompts, UNITS[kind], scores_of(kind), replaced, 2)


def test_what_is_said_of_it_tells_what_it_was_optimised_on():
    circuit = circuit_of()
    before = Curve(np.ones(4), np.zeros(4), *np.full((2, 4, len(FRACTIONS)), 0.25))
    ranking = np.random.default_rng(1).random(circuit.scores.shape) + 1
    refined = circuit._replace(refinement=Refinement(ranking, 20, 8, before))
    said = " ".join(circuit_lines(refined, EXAMPLE, chosen=False))
    assert "The ranking by secant was optimised on the difference between the logits of the two answers" in said
    assert "in 20 steps with 8 of the 12 prompts" in said and "0.250 before" in said
    assert f"keeps {STATISTICS['logf'](refined.kept, refined.removed):.3f} of the effect" in said
    assert "on prompts that it wasn't optimised on" in said and "the 20 highest-ranked units" in said
    np.testing.assert_array_equal(refined.circuit, top(ranking)[FRACTIONS.index(refined.size)])
    places = [(unit.layer, unit.position, unit.unit) for unit in refined.units(every=True)]
    assert [ranking[place] for place in places] == sorted(ranking.flat, reverse=True)
    rows = to_csv(Study({}, {"task": ("a", "b")}, {}, {"task": {refined.kind: refined}})).splitlines()[1:]
    assert [row.endswith(",1") for row in rows] == [unit.inside for unit in refined.units(every=True)]
    assert refined.refinement.as_dict()["kept"] == [0.25] * len(FRACTIONS)


@pytest.mark.slow
def test_the_command_says_that_it_is_refined(tmp_path):
    asked = ("circuit", "--task", "parameter", "--prompts", 4, "--units", "head x position", "--method", "secant")
    result = command(*asked, "--refine", 2, "--json", tmp_path / "found.json")
    assert result.exit_code == 0 and "the circuit of secant, refined" in result.stdout
    assert '"refinement":' in (tmp_path / "found.json").read_text()
