"""A number's change along a training run is the sum of the parts of its examples, by the update's formula."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import near, relative
from training_cases import BATCH, EXAMPLES, RATE, STEPS, WHICH, X, Y, batches, first_weights, loss_of, number, terms

import duat_jax as duat
from duat_jax.errors import DuatError
from duat_jax.forms.secant import secant
from duat_jax.training.kept import train
from duat_jax.training.over_examples.compute import influence
from duat_jax.training.run import Run


@pytest.fixture(autouse=True)
def _as_optax_needs_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class Trained:
    """A run in NumPy's hands: weights, gradients of every example, and the secant's multiplier of every segment."""

    def __init__(self, optimiser, every):
        self.weights, state = [first_weights()], optimiser.init(first_weights())
        self.examples = []
        for step in range(STEPS):
            of_each = jax.vmap(jax.grad(loss_of), (None, 0, 0))(self.weights[-1], *batches(step))
            self.examples.append([flat(jax.tree.map(lambda leaf, i=i: leaf[i], of_each)) for i in range(BATCH)])
            gradient = jax.tree.map(lambda leaf: leaf.mean(0), of_each)
            updates, state = optimiser.update(gradient, state, self.weights[-1])
            self.weights.append(optax.apply_updates(self.weights[-1], updates))
        self.gradients = [np.mean(of_step, 0) for of_step in self.examples]
        ends = [*range(0, STEPS, every), STEPS]
        self.multipliers = [
            flat(secant(number)(self.weights[ends[k + 1]], self.weights[ends[k]]).multiplier)
            for step in range(STEPS)
            for k in [step // every]
        ]


def influence_of(optimiser, folder, *, every=3, **settings):
    run = Run(terms, optimiser, batches, STEPS, **settings)
    return influence(train(run, first_weights(), folder, every=every), number)


def assert_sums(found):
    assert found.completeness.verdict == "holds"
    relative(sum(found.parts.values()), found.difference, 1e-12)
    over_weights = sum(part.sum() for part in found.ledger.sums.values()) + found.ledger.discontinuities.sum()
    relative(over_weights, found.difference, 1e-9)


@pytest.mark.parametrize("every", [1, 3, STEPS])
def test_with_gradient_descent_a_part_is_the_step_along_one_gradient(tmp_path, every):
    optimiser = optax.sgd(RATE)
    found, by_hand = influence_of(optimiser, tmp_path, every=every), Trained(optimiser, every)
    for step in range(STEPS):
        expected = [-RATE / BATCH * by_hand.multipliers[step] @ gradient for gradient in by_hand.examples[step]]
        relative(found.examples[step], expected, 1e-9)
    assert_sums(found)


def test_with_momentum_a_gradient_acts_in_all_later_steps(tmp_path):
    optimiser, decay = optax.sgd(RATE, momentum=0.9), 0.9
    found, by_hand = influence_of(optimiser, tmp_path), Trained(optimiser, 3)
    later = np.zeros_like(by_hand.gradients[0])
    for step in reversed(range(STEPS)):
        later = RATE * by_hand.multipliers[step] + decay * later
        expected = [-later @ gradient / BATCH for gradient in by_hand.examples[step]]
        relative(found.examples[step], expected, 1e-9)
    assert_sums(found)


def test_means_from_before_the_recording_have_a_part(tmp_path):
    """Recorded from the third step on, its examples keep their parts, and those before stand in the running mean."""
    optimiser, decay, before = optax.sgd(RATE, momentum=0.9), 0.9, 3
    kept = train(Run(terms, optimiser, batches, STEPS), first_weights(), tmp_path / "whole", every=before)
    (middle, state), _ = kept.read(before)
    rest = Run(terms, optimiser, lambda step: batches(before + step), STEPS - before)
    found = influence(train(rest, middle, tmp_path / "rest", every=before, state=state), number)
    relative(found.examples, influence(kept, number).examples[before:], 1e-9)
    by_hand, later = Trained(optimiser, before), 0.0
    for step in reversed(range(before, STEPS)):
        later = RATE * by_hand.multipliers[step] + decay * later
    gradients = by_hand.gradients[:before]
    mean = sum(decay ** (before - 1 - step) * gradient for step, gradient in enumerate(gradients))
    relative(found.beginning, -decay * later @ mean, 1e-9)
    assert_sums(found)


def test_with_adam_clipped_and_decayed_a_part_follows_the_stated_recursion(tmp_path):
    first, second, small, decay, longest = 0.9, 0.99, 1e-8, 0.1, 0.5
    adam = optax.adamw(RATE, first, second, small, weight_decay=decay)
    optimiser = optax.chain(optax.clip_by_global_norm(longest), adam)
    found, by_hand = influence_of(optimiser, tmp_path), Trained(optimiser, 3)
    scales = [min(1, longest / np.linalg.norm(gradient)) for gradient in by_hand.gradients]
    assert min(scales) < 1
    squares, preconditioners = np.zeros_like(by_hand.gradients[0]), []
    for step, (scale, gradient) in enumerate(zip(scales, by_hand.gradients, strict=True)):
        squares = second * squares + (1 - second) * (scale * gradient) ** 2
        preconditioners.append(1 / (np.sqrt(squares / (1 - second ** (step + 1))) + small))
    later = np.zeros_like(squares)
    for step in reversed(range(STEPS)):
        now = (1 - first) * RATE / (1 - first ** (step + 1)) * preconditioners[step]
        later = now * by_hand.multipliers[step] + first * later
        expected = [-scales[step] / BATCH * later @ gradient for gradient in by_hand.examples[step]]
        relative(found.examples[step], expected, 1e-7)
        of_decay = -RATE * decay * by_hand.multipliers[step] @ flat(by_hand.weights[step])
        relative(found.weights[step], of_decay, 1e-7)
    assert_sums(found)


def test_with_muon_the_gram_matrices_are_held(tmp_path):
    """With one matrix, `orth(m) = Q m`, where `Q` is a product of polynomials in the Gram matrices."""
    rate, decay, coefficients, small = 0.02, 0.9, (3.0, -3.2, 1.2), 1e-8

    def loss(weights, x):
        return (jnp.tanh(x @ weights) ** 2).sum()

    run = Run(
        lambda weights, batch: jax.vmap(loss, (None, 0))(weights, batch),
        optax.contrib.muon(rate, beta=decay, nesterov=False, ns_coeffs=coefficients, ns_steps=3, eps=small),
        lambda step: X[WHICH[step]],
        STEPS,
    )
    first = jax.random.normal(jax.random.key(2), (4, 4))
    last_loss = lambda weights: loss(weights, X[0])  # noqa: E731
    kept = train(run, first, tmp_path, every=STEPS)
    found = influence(kept, last_loss)
    multiplier = np.asarray(secant(last_loss)(kept.last, first).multiplier)
    steps, mean = kept.again(0, STEPS), np.zeros((4, 4))
    maps = []
    for step in steps:
        mean = decay * mean + (1 - decay) * np.asarray(step.gradients)
        corrected = mean / (1 - decay ** (step.number + 1))
        x, product = corrected / (np.linalg.norm(corrected) + small), np.eye(4)
        for _ in range(3):
            gram = x @ x.T
            polynomial = coefficients[0] * np.eye(4) + coefficients[1] * gram + coefficients[2] * gram @ gram
            x, product = polynomial @ x, polynomial @ product
        moved = np.asarray(step.after.weights - step.before.weights)
        relative(moved, -rate * x, 1e-6)
        maps.append(product / (np.linalg.norm(corrected) + small) / (1 - decay ** (step.number + 1)))
    later = np.zeros((4, 4))
    for step in reversed(steps):
        later = -rate * maps[step.number].T @ multiplier + decay * later
        gradients = jax.vmap(jax.grad(loss), (None, 0))(step.before.weights, X[WHICH[step.number]])
        expected = [(1 - decay) * np.sum(later * np.asarray(gradient)) for gradient in gradients]
        relative(found.examples[step.number], expected, 1e-6)
    assert_sums(found)


def test_the_only_example_that_reads_a_weight_alone_moves_it(tmp_path):
    first, rate = jnp.array([1.0, 2.0]), 0.1
    run = Run(lambda w, batch: batch @ w, optax.sgd(rate), [jnp.eye(2), jnp.eye(2)[::-1]], steps=2)
    found = influence(train(run, first, tmp_path), lambda w: w[1] ** 2)
    relative(found.difference, (2 - 2 * rate) ** 2 - 2**2, 1e-9)
    near(found.by_example(np.array([[0, 1], [1, 0]]), 2), [0, found.difference], 1e-12)


def test_duplicates_have_equal_parts(tmp_path):
    x = X[jnp.array([0, 1, 1])]
    run = Run(lambda w, batch: (batch @ w) ** 2, optax.adam(RATE), lambda _: x, STEPS)
    examples = influence(train(run, jnp.ones(4), tmp_path), lambda w: w.sum()).examples
    relative(examples[:, 1], examples[:, 2], 1e-12)


def test_parts_of_tokens_sum_to_those_of_texts(tmp_path):
    optimiser = optax.adam(RATE)
    whole = influence_of(optimiser, tmp_path / "whole")
    halves = Run(lambda w, batch: terms(w, batch)[:, None] * jnp.array([0.25, 0.75]), optimiser, batches, STEPS)
    finer = influence(train(halves, first_weights(), tmp_path / "finer", every=3), number)
    relative(finer.examples.sum(2), whole.examples, 1e-9)
    relative(finer.examples[..., 0], whole.examples / 4, 1e-9)


def test_several_numbers_are_what_each_is_alone(tmp_path):
    kept = train(Run(terms, optax.adam(RATE), batches, STEPS), first_weights(), tmp_path)
    other = lambda weights: (weights["in"] ** 2).sum()  # noqa: E731
    both = influence(kept, {"number": number, "other": other})
    for name, of in (("number", number), ("other", other)):
        alone = influence(kept, of)
        near(both[name].examples, alone.examples, 1e-9)
        assert both[name].difference == alone.difference


def test_what_changes_weights_outside_of_the_optimiser_has_a_part(tmp_path):
    def halved(step, weights):
        return jax.tree.map(lambda leaf: leaf / 2, weights) if step == 4 else weights

    found = influence_of(optax.adam(RATE), tmp_path, between=halved)
    assert np.flatnonzero(found.outside).tolist() == [4]
    assert_sums(found)
    untouched = [found.rounding_of_weights, found.rounding_of_gradients, found.optimiser]
    near(untouched, 0, 1e-12)


def test_what_an_optimiser_adds_has_a_part(tmp_path):
    found = influence_of(optax.noisy_sgd(RATE, key=0), tmp_path)
    assert abs(found.optimiser.sum()) > 1e-3
    assert_sums(found)


def test_rounding_of_weights_has_a_part(tmp_path):
    run = Run(terms, optax.adam(RATE), batches, STEPS)
    found = influence(train(run, first_weights(jnp.bfloat16), tmp_path), number)
    assert abs(found.rounding_of_weights.sum()) > 1e-4
    relative(sum(found.parts.values()), found.difference, 1e-5)


def test_means_of_another_dtype_are_followed(tmp_path):
    found = influence_of(optax.adam(RATE, mu_dtype=jnp.bfloat16), tmp_path)
    relative(sum(found.parts.values()), found.difference, 1e-9)
    near(found.examples, influence_of(optax.adam(RATE), tmp_path / "wide").examples, 0.05)


@pytest.mark.parametrize("optimiser", [optax.radam(RATE), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(RATE))])
def test_a_branch_that_is_not_taken_adds_nothing(tmp_path, optimiser):
    """The first gradient is zero, so that its norm can't be divided by; RAdam's root is of a negative number."""
    run = Run(lambda w, batch: jnp.maximum(w * batch - 1, 0), optimiser, jnp.array([[0.0], [3.0], [2.0]]), steps=3)
    assert_sums(influence(train(run, jnp.array(1.0), tmp_path), lambda w: w**2))


@pytest.mark.slow
def test_ten_thousand_steps_in_single_precision_sum(tmp_path):
    """Within a millionth over weights, and a ten-thousandth over examples, with every part that has a name."""
    steps, draw = 10_000, np.random.default_rng(0)
    which = draw.integers(0, EXAMPLES, (steps, BATCH))
    x, y = (jnp.asarray(each, jnp.float32) for each in (X, Y))
    run = Run(terms, optax.adamw(1e-3, weight_decay=1e-3), lambda step: (x[which[step]], y[which[step]]), steps)
    kept = train(run, first_weights(jnp.float32), tmp_path)
    found = influence(kept, lambda weights: loss_of(weights, x[0], y[0]) + weights["out"][0])
    over_weights = sum(sums.sum() for sums in found.ledger.sums.values())
    near(over_weights, found.difference, 1e-6 * abs(found.difference))
    near(sum(found.parts.values()), found.difference, 1e-4 * abs(found.difference))
    assert abs(found.parts["optimiser"]) + abs(found.parts["rounding_of_gradients"]) < 0.05 * abs(found.difference)


def test_a_small_change_of_a_large_number_holds(tmp_path):
    run = Run(lambda w, batch: (w - batch) ** 2, optax.sgd(1e-4), jnp.ones((5, 2), jnp.float32), steps=5)
    kept = train(run, jnp.array(3.0, jnp.float32), tmp_path)
    assert influence(kept, lambda w: w**2).completeness.verdict != "fails"


def test_a_loss_without_an_axis_is_one_row(tmp_path):
    run = Run(lambda w, batch: (w - batch) ** 2, optax.sgd(0.1), jnp.ones(3), steps=3)
    found = influence(train(run, jnp.array(3.0), tmp_path), lambda w: w)
    assert found.rows.shape == (3, 1) and "step  row" in str(found)
    relative(found.by_example(np.zeros((3, 1), int), 1), [found.difference], 1e-9)
    found.save(tmp_path / "result")
    assert str(duat.open(tmp_path / "result")) == str(found)


def test_a_state_that_was_lost_is_made_again(tmp_path):
    run = Run(terms, optax.adam(RATE), batches, STEPS)
    kept = train(run, first_weights(), tmp_path, every=2)
    content = (lost := tmp_path / "after-00000004.safetensors").read_bytes()
    lost.unlink()
    train(run, first_weights(), tmp_path, every=2)
    assert lost.read_bytes() == content and kept.done == STEPS


def test_an_interrupted_training_ends_with_the_same_states(tmp_path):
    class Killed(Exception):
        pass

    def stop(done, _):
        if done == 5:
            raise Killed

    run = Run(terms, optax.adam(RATE), batches, STEPS)
    whole = train(run, first_weights(), tmp_path / "whole", every=2)
    with pytest.raises(Killed):
        train(run, first_weights(), tmp_path / "killed", every=2, progress=stop)
    done = []
    train(run, first_weights(), tmp_path / "killed", every=2, progress=lambda *numbers: done.append(numbers))
    assert done == [(5, STEPS), (6, STEPS), (7, STEPS)]
    files = sorted(file.name for file in whole.folder.iterdir())
    assert files == sorted(file.name for file in (tmp_path / "killed").iterdir())
    assert all((tmp_path / "killed" / name).read_bytes() == (whole.folder / name).read_bytes() for name in files)


def test_a_run_that_does_not_repeat_is_refused(tmp_path):
    calls = []

    def other_batches(step):
        calls.append(step)
        return X[WHICH[step]] + len(calls), Y[WHICH[step]]

    kept = train(Run(terms, optax.adam(RATE), other_batches, STEPS), first_weights(), tmp_path)
    with pytest.raises(DuatError, match=r"weights.in, .* after 7 steps aren't what they were, bit by bit"):
        influence(kept, number)


def test_a_choice_has_a_part_over_weights_and_over_examples(tmp_path):
    """Where a number chooses by the weights, as a router does, no slope accounts for another choice."""

    def number(weights):
        return jnp.take(weights["values"] ** 2, jnp.argmax(weights["scores"]))

    def losses(weights, batch):
        return (weights["scores"] - batch[:, None]) ** 2 + (weights["values"] - 1.0) ** 2

    weights = {"scores": jnp.array([1.0, 0.9]), "values": jnp.array([0.2, 3.0])}
    fast_and_slow = optax.stateless(
        lambda updates, _: jax.tree.map(lambda update: update * jnp.array([1, 0.1]), updates)
    )
    optimiser = optax.chain(fast_and_slow, optax.sgd(0.2))
    run = Run(lambda w, batch: losses(w, batch).mean(1), optimiser, lambda step: jnp.zeros(2) - step, 4)
    found = influence(train(run, weights, tmp_path, every=2), number)
    assert found.ledger.discontinuities[0] > 1 and not found.ledger.discontinuities[1]
    assert np.flatnonzero(found.discontinuities).tolist() == [1]
    assert_sums(found)
    assert "discontinuities" in str(found.ledger) and "discontinuities" in str(found)
