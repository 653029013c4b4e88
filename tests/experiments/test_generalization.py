"""Functions that a prompt gives: the tasks, the networks that mix tokens in five ways, and frozen parameters."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import close, near, relative
from studies import filled_tables, run_small

from duat_jax.papers import dense_parameters
from duat_jax.verification.networks import randomised
from experiments.generalization import measures, plan, run
from experiments.generalization.frozen import GROUPS, frozen, spread
from experiments.generalization.measures import COUNTS, UNSEEN_COUNTS
from experiments.generalization.networks import (
    FIXED,
    KINDS,
    MOVING,
    Convolution,
    LinearAttention,
    Mean,
    Sizes,
    count,
    drawn,
)
from experiments.generalization.picture import draw_errors
from experiments.generalization.plan import Choice, Functions
from experiments.generalization.ratios import Ratio, deciding, known, large, needed
from experiments.generalization.tasks import CONTENT, FAMILIES, Demonstrated, Named, least_squares, nearest
from experiments.generalization.training import Budget, each, error, outputs, train

NAMED, LINEAR = Named(digits=2, base=3), Demonstrated(family="linear", demonstrations=5)
MIXING = [kind for kind in KINDS if kind not in ("one layer", "perceptron")]
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def as_optax_promotes():
    with jax.numpy_dtype_promotion("standard"):
        yield


def sizes_of(kind, norms=True):
    return Sizes(kind=kind, norms=norms, layers=2, features=8, neurons=6)


def network_of(kind, task, norms=True):
    return randomised(drawn(sizes_of(kind, norms), task, KEY), 3, scale=0.5)


def test_each_function_moves_numbers_and_changes_signs_as_no_other_does():
    matrices = np.asarray(NAMED.matrices())
    assert len({matrix.tobytes() for matrix in matrices}) == NAMED.functions == 9
    close(np.abs(matrices).sum(1), np.ones((9, CONTENT)))
    close(np.abs(matrices).sum(2), np.ones((9, CONTENT)))


def test_dense_functions_are_orthogonal():
    matrices = replace(NAMED, dense=True).matrices()
    close(matrices @ matrices.swapaxes(1, 2), np.broadcast_to(np.eye(CONTENT), matrices.shape))
    assert float(jnp.abs(matrices).min()) < 0.5 < float(jnp.abs(matrices).max()) < 1


def test_a_prompt_names_its_function_in_digits():
    """Seven is two threes and a one."""
    contents = jax.random.normal(KEY, (1, CONTENT))
    inputs, mask, targets, _ = NAMED.named(jnp.array([7]), contents)
    assert inputs[0, :2].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]] and mask.all()
    close(inputs[0, 2:, 3], contents[0])
    close(targets[0], NAMED.matrices()[7] @ contents[0])


def test_rarest_function_has_its_share():
    shares = np.asarray(Named(digits=2, base=3, rarest=0.01).shares())
    close(shares.sum(), 1.0)
    ordered = np.sort(shares)[::-1]
    close(ordered[1:] / ordered[:-1], np.full(8, 0.01 ** (1 / 8)))
    close(ordered[-1] / ordered[0], 0.01)
    assert shares.tolist() != ordered.tolist()


def test_blind_error_is_that_of_the_mean_of_all_targets():
    contents = jax.random.uniform(KEY, (4000, CONTENT), minval=-1.0)
    targets = np.einsum("fij,nj->fni", NAMED.matrices(), contents)
    relative(NAMED.blind(), np.sqrt(((targets - targets.mean(0)) ** 2).mean()), within=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_values_have_variance_one(family):
    targets = Demonstrated(family=family, demonstrations=2).draw(KEY, 20_000).targets
    near((targets**2).mean(), 1.0, within=0.06)


def test_the_value_that_is_asked_for_is_hidden_and_absent_demonstrations_are_zero():
    inputs, mask, targets, _ = LINEAR.draw_with(KEY, 4, 3)
    assert mask.tolist() == [[False, False, True, True, True, True]] * 4
    assert not inputs[:, :2].any() and not inputs[:, -1, -2].any()
    assert inputs[..., -1].tolist() == [[0, 0, 0, 0, 0, 1]] * 4
    close(least_squares(LINEAR.draw_with(KEY, 4, 5)), LINEAR.draw_with(KEY, 4, 5).targets, layers=30)


def test_functions_of_a_pool_come_again():
    """Of two linear functions of three numbers, each example's five demonstrations determine which one it is."""
    inputs, mask, *_ = replace(LINEAR, pool=2).draw(KEY, 200)
    weights = {
        tuple(np.linalg.lstsq(x[:-1, :-2], x[:-1, -2])[0].round(3))
        for x, m in zip(inputs, mask, strict=True)
        if m.all()
    }
    assert len(weights) == 2


def test_other_functions_have_the_same_points():
    inputs = LINEAR.other_functions(KEY, 3).inputs
    close(inputs[:, :, :-2], jnp.broadcast_to(inputs[:1, :, :-2], inputs[:, :, :-2].shape))
    assert len(set(inputs[:, 0, -2].tolist())) == 3


def test_nearest_demonstration_is_found():
    examples = LINEAR.draw_with(KEY, 6, 4)
    for x, mask, y in zip(examples.inputs, examples.mask, nearest(examples), strict=True):
        distances = [np.linalg.norm(x[i, :-2] - x[-1, :-2]) if mask[i] else np.inf for i in range(len(x) - 1)]
        close(y[0], x[int(np.argmin(distances)), -2])


@pytest.mark.parametrize("kind", MIXING)
def test_absent_tokens_are_not_read(kind):
    network = network_of(kind, LINEAR)
    examples = LINEAR.draw_with(KEY, 3, 3)
    noise = jnp.where(examples.mask[..., None], 0, 7.0)
    close(outputs(network, examples._replace(inputs=examples.inputs + noise)), outputs(network, examples))


def test_linear_attention_is_a_double_sum():
    mixer = randomised(LinearAttention(8, 4), 1, scale=1.0)
    x, mask = np.asarray(jax.random.normal(KEY, (4, 8))), np.array([False, True, True, True])
    query, key, value = (x @ np.asarray(part.kernel[...]) for part in (mixer.query, mixer.key, mixer.value))
    y = np.zeros_like(x)
    for i in range(4):
        for j in range(1, 4):
            for head in range(mixer.heads):
                of = slice(2 * head, 2 * head + 2)
                y[i, of] += query[i, of] @ key[j, of] / 2**0.5 / 3 * value[j, of]
    close(mixer(jnp.asarray(x), jnp.asarray(mask)), y @ np.asarray(mixer.output.kernel[...]))


@pytest.mark.parametrize("dilation", [1, 3])
def test_convolution_is_a_band_of_matrices(dilation):
    mixer = randomised(Convolution(3, 2, dilation), 1, scale=1.0)
    x, kernel = np.asarray(jax.random.normal(KEY, (7, 3))), np.asarray(mixer.kernel[...])
    dense = np.zeros((7, 3, 7, 3))
    for t in range(7):
        for shift in range(-2, 3):
            if 0 <= t + dilation * shift < 7:
                dense[t, :, t + dilation * shift, :] = kernel[3 * (shift + 2) : 3 * (shift + 3)].T
    close(mixer(jnp.asarray(x), None), np.einsum("tosi,si->to", dense, x))


def test_mean_is_of_present_tokens():
    mixer = randomised(Mean(8), 1, scale=1.0)
    x, mask = np.asarray(jax.random.normal(KEY, (4, 8))), np.array([False, True, True, True])
    y = x[1:].mean(0) @ np.asarray(mixer.value.kernel[...]) @ np.asarray(mixer.output.kernel[...])
    close(mixer(jnp.asarray(x), jnp.asarray(mask)), np.broadcast_to(y, x.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_every_output_reads_every_token(kind):
    """Of the longest named prompts and the longest demonstrations."""
    for task in (Named(digits=4, base=4), Demonstrated(family="linear", demonstrations=16)):
        network, examples = network_of(kind, task), task.draw(KEY, 1)
        slopes = jax.jacobian(network)(examples.inputs[0], jnp.ones(task.tokens, bool))
        assert (jnp.abs(slopes).max(-1) > 0).all()


@pytest.mark.parametrize("name", run.FUNCTIONS)
def test_networks_have_as_many_parameters(name):
    of = run.FUNCTIONS[name]
    for width in of.widths:
        counts = [count(of.sizes(kind, width, norms), of.task) for kind in KINDS for norms in plan.norms_of(kind)]
        relative(np.array(counts), np.full(len(counts), counts[-1]), within=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_frozen_at_their_own_values_change_nothing(kind):
    network, examples = network_of(kind, NAMED), NAMED.draw(KEY, 1)
    for written in frozen(network, examples.inputs).values():
        close(written, outputs(network, examples), layers=30)


def test_frozen_patterns_are_the_mean_of_those_of_all_examples():
    """One layer of linear attention without an MLP's effect, written out."""
    sizes = Sizes(kind="linear attention", norms=False, layers=1, features=8, neurons=1)
    network, inputs = randomised(drawn(sizes, LINEAR, KEY), 3, scale=0.5), LINEAR.draw_with(KEY, 5, 5).inputs
    block = network.stack.blocks[0]
    block.mlp.output.kernel[...] *= 0
    mixer, x = block.attention, np.asarray(jax.vmap(network.embed)(inputs))
    query, key, value = (
        (x @ np.asarray(part.kernel[...])).reshape(5, 6, 4, 2) for part in (mixer.query, mixer.key, mixer.value)
    )
    pattern = (np.einsum("nqhd,nkhd->nhqk", query, key) / 2**0.5 / 6).mean(0)
    mixed = np.einsum("hqk,nkhd->nqhd", pattern, value).reshape(5, 6, 8) @ np.asarray(mixer.output.kernel[...])
    y = np.asarray(jax.vmap(network.read)(jnp.asarray(x + mixed) + block.mlp.output.bias[...]))
    close(frozen(network, inputs)["patterns"], y, layers=30)


@pytest.mark.parametrize("kind", FIXED)
def test_without_norms_only_biases_move_where_mixing_is_fixed(kind):
    network, examples = network_of(kind, NAMED, norms=False), NAMED.draw(KEY, 6)
    written = frozen(network, examples.inputs)
    close(written["weights"], outputs(network, examples), layers=30)
    assert float(jnp.abs(written["biases"] - outputs(network, examples)).max()) > 1e-3
    moved = {symbol for symbol, spread_of in spread(network, examples.inputs).items() if spread_of > 1e-6}
    assert moved == {"c2"}


def test_spread_is_the_share_of_the_mean_square_about_the_mean():
    network, inputs = network_of("transformer", NAMED), NAMED.draw(KEY, 4).inputs
    dense = [np.asarray(dense_parameters(network.states, network.embed(x)).inners[1]) for x in inputs]
    about = sum(((a - np.mean(dense, 0)) ** 2).sum() for a in dense)
    relative(spread(network, inputs)["B2"], (about / sum((a**2).sum() for a in dense)) ** 0.5, within=1e-4)


def test_parameters_needed_are_within_the_sizes_that_were_tried():
    sizes = np.array([10.0, 100.0, 1000.0])
    assert needed(sizes, np.array([0.9, 0.5, 0.2]), 0.1) == (1000.0, np.inf)
    assert needed(sizes, np.array([0.1, 0.5, 0.2]), 0.1) == (0.0, 10.0)
    relative(needed(sizes, np.array([0.9, 0.4, 0.1]), 0.2), np.full(2, 10**2.5), within=1e-9)


def case(ratio, spread=0.01):
    return known("a case", np.log(ratio) + spread * np.array([-1.0, 0.0, 1.0]))


def verdict(cases):
    return large(deciding(cases))


def test_verdicts_need_all_cases_or_a_counterexample():
    assert verdict([case(2.2), case(3.0)]) == "confirmed"
    assert verdict([case(2.2), case(1.5)]) == "undecided"
    assert verdict([case(2.2), case(1.1)]) == "refuted"
    assert verdict([case(2.2, spread=0.5)]) == "undecided"
    # A case that refutes counts before one that is less certain.
    assert verdict([case(1.0, spread=1.0), case(1.1)]) == "refuted"


def test_unknown_sizes_decide_only_by_their_bounds():
    """A rival that never reaches the target is known to need more than the largest size, and no more than that."""
    never = Ratio("a case", np.log(np.full(3, 1.3)), np.full(3, np.inf))
    assert verdict([never]) == "undecided" and not never.bounded
    assert verdict([Ratio("a case", np.log(np.full(3, 2.5)), np.full(3, np.inf))]) == "confirmed"
    assert verdict([Ratio("a case", np.full(3, -np.inf), np.log(np.full(3, 1.1)))]) == "refuted"


def test_training_learns():
    sizes = Sizes(kind="linear attention", norms=True, layers=2, features=32, neurons=32)
    keys = jnp.stack([KEY, jax.random.key(1), KEY])
    trained = list(each(train(sizes, LINEAR, Budget(150, 32), keys, jnp.array([1e-2, 1e-2, 1e-4]))))
    examples = LINEAR.draw_with(jax.random.key(1), 500, 5)
    errors = [float(error(outputs(network, examples), examples)) for network in trained]
    assert max(errors[:2]) < 0.8 * error(0 * examples.targets, examples) < errors[2]


def test_two_steps_of_training_are_those_of_adam_by_hand():
    """The rate is zero in the first step and highest in the second, so both gradients are taken at the same weights."""
    sizes, budget, rate = Sizes(kind="mean", norms=False, layers=2, features=4, neurons=4), Budget(2, 8), 1e-2
    (trained,) = each(train(sizes, LINEAR, budget, KEY[None], jnp.array([rate])))
    weights_key, examples_key = jax.random.split(KEY)
    before = drawn(sizes, LINEAR, weights_key)
    examples = [LINEAR.draw(jax.random.fold_in(examples_key, i), budget.batch) for i in range(2)]
    gradients = [
        jax.grad(lambda network, of=of: ((outputs(network, of) - of.targets) ** 2).mean())(before) for of in examples
    ]
    scales = [min(1.0, 1 / float(jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(g))))) for g in gradients]

    def after(weight, first, second):
        mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
        square = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
        return weight - rate * mean / (jnp.sqrt(square) + 1e-8)

    expected = jax.tree.map(lambda w, a, b: after(w, scales[0] * a, scales[1] * b), before, *gradients)
    for got, wanted in zip(*map(jax.tree.leaves, (trained, expected)), strict=True):
        close(got, wanted, layers=9)


@pytest.mark.slow
def test_networks_are_tuned_trained_and_measured(monkeypatch, tmp_path):
    """Two tasks and three networks, from the choice of a rate on."""
    functions = {
        "9 functions": Functions(NAMED, (8,), 4),
        "linear": Functions(replace(LINEAR, demonstrations=16), (8,), 4),
    }
    kinds = ("one layer", "perceptron", "transformer")
    for module, changes in {
        run: {"FUNCTIONS": functions, "KINDS": kinds, "LONGER": ("linear",), "TIMES": 2},
        plan: {"KINDS": kinds, "BATCH": 4, "SEEDS": 2},
        measures: {"TESTED": 64},
    }.items():
        for name, value in changes.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(run, "closest", lambda chosen, name: "perceptron")
    monkeypatch.setattr(run, "WIDEST", 8)
    frames = run_small(run.STUDY, tmp_path, monkeypatch)
    tuning, networks = frames["tuning"], frames["networks"]
    for (name, kind), of in networks.groupby(["functions", "network"]):
        tried = tuning[(tuning.functions == name) & (tuning.network == kind)]
        best = tried.loc[tried.error.idxmin()]
        assert set(zip(of.norms, of.rate, strict=True)) == {(best.norms, best.rate)}
    assert len(networks) == 2 * (len(functions) * len(kinds) + 1)
    assert networks.error.nunique() == len(networks)
    once = networks[networks.times == 1]
    assert once[[f"frozen: {group}" for group in ("none", *GROUPS)]].notna().all(axis=None)
    assert networks[networks.times == 2][["functions", "network"]].drop_duplicates().to_numpy().tolist() == [
        ["linear", "perceptron"]
    ]
    assert set(frames["references"].reference) == {"nearest", "least squares"} and len(frames["blind"]) == 1


def test_the_closest_network_of_fixed_mixing_is_that_of_tuning():
    chosen = {("a task", kind): Choice(False, 0.01, 1.0 + i) for i, kind in enumerate(KINDS[::-1])}
    assert run.closest(chosen, "a task") == "convolution"


def made_up(better):
    """Return measurements in which attention's errors are those of all others divided by a number, on all functions."""
    random, rows = np.random.default_rng(0), []

    def measured(task, kind, width):
        number = 0.4 * 0.7 ** np.log2(width) / (better if kind in MOVING else 1) * random.uniform(0.99, 1.01)
        row = {"error": number} | {f"frozen: {group}": number for group in ("none", *GROUPS)}
        if isinstance(task, Named):
            return row | {"by function": [number] * task.functions, "distance": 1.0, "distance of rarest": 1.0}
        counts = {f"after {count}": number * (1 + 0.1 * (count > 16)) for count in (*COUNTS, *UNSEEN_COUNTS)}
        return row | counts | {"as in training": number}

    for name, of in run.FUNCTIONS.items():
        for kind in KINDS:
            for width in of.widths:
                parameters = count(of.sizes(kind, width, norms=False), of.task)
                keys = {"functions": name, "network": kind, "width": width, "times": 1, "parameters": parameters}
                rows += [{**keys, "seed": seed, **measured(of.task, kind, width)} for seed in range(5)]
    longer = [
        row | {"times": run.TIMES}
        for row in rows
        if row["functions"] in run.LONGER and row["network"] == "mean" and row["width"] == 32
    ]
    references = [
        {"functions": "linear", "reference": "nearest"} | {f"after {n}": 1.0 for n in (*COUNTS, *UNSEEN_COUNTS)}
    ]
    return {"networks": pd.DataFrame(rows + longer), "references": pd.DataFrame(references)}


def verdicts_of(frames, name):
    """Return the verdicts on a prediction for both networks that move, against every group of rivals."""
    return [of.verdict(frames) for of in run.STUDY.predictions if of.name.startswith(name)]


@pytest.mark.parametrize(("better", "expected"), [(3.0, "confirmed"), (1.0, "refuted"), (1.6, "undecided")])
def test_page_says_what_invented_results_decide(better, expected):
    """Errors that fall little with size: of parameters only errors can decide, where nothing reaches the target."""
    frames = made_up(better)
    for name in ("many functions", "new functions"):
        assert verdicts_of(frames, name) == 4 * [expected]
    assert len(verdicts_of(frames, "rare functions")) == 4
    assert verdicts_of(frames, "longer prompts") == 2 * ["refuted"]
    assert verdicts_of(frames, "the opposite view") == 2 * ["undecided" if better == 1.0 else "refuted"]
    filled_tables(run.STUDY, frames)


def test_the_picture_shows_named_and_demonstrated_functions():
    figure = draw_errors(run.numbers_for_picture())
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[:2] == ["64 functions, named", "256 functions, named"] and len(titles) == 6
