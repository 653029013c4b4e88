"""Digits, a residual CNN and a Vision Transformer: loaded, trained, and exact from the pixels on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import near, numbers, striped, unchecked

import duat_jax as duat
from duat_jax import papers
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.verification.networks import randomised

NETWORKS = {"residual CNN": papers.residual_cnn, "ViT": papers.vision_transformer}


def network():
    return randomised(ResidualNetwork(1, (2, 2, 3), 4, dtype=jnp.float64, rngs=nnx.Rngs(0)))


@pytest.fixture
def in_single_precision():
    with jax.enable_x64(False):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epochs"), [("residual CNN", 60), ("ViT", 20)])
def test_what_can_be_learned_is_learned_and_what_was_there_stays(name, epochs, in_single_precision):
    images, labels = striped(96)
    before = NETWORKS[name](rngs=nnx.Rngs(0))
    leaves = [np.asarray(leaf).copy() for leaf in jax.tree.leaves(before)]
    done = []
    after = papers.train_classifier(before, images, labels, epochs=epochs, progress=lambda *args: done.append(args))
    for leaf, kept in zip(jax.tree.leaves(before), leaves):
        np.testing.assert_array_equal(leaf, kept)
    assert papers.accuracy(before, images, labels) < 0.5
    assert papers.accuracy(after, *striped(60, seed=1)) == 1
    assert done == [(i, epochs) for i in range(1, epochs + 1)]
    again = papers.train_classifier(before, images, labels, epochs=epochs)
    for leaf, same in zip(jax.tree.leaves(after), jax.tree.leaves(again)):
        np.testing.assert_array_equal(leaf, same)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), [("residual CNN", jnp.float32), ("ViT", jnp.float64)])
def test_both_networks_are_exact_from_the_pixels_on(name, dtype):
    model = jax.tree.map(lambda leaf: leaf.astype(dtype), randomised(NETWORKS[name](rngs=nnx.Rngs(0))))
    x = jnp.asarray(numbers(8, 8, 1), dtype)

    def logits(x):
        return model(jnp.moveaxis(x, -1, 0))

    form = duat.unroll(logits, x)
    assert {form.completeness(i).verdict for i in (None, *range(len(form.streams)))} == {"holds"}
    assert duat.collapse(logits, x).completeness.verdict == "holds"
    parts = duat.decompose(lambda x: logits(x)[3], x)
    found = duat.secant(lambda x: logits(x)[3])(x, jnp.zeros_like(x))
    assert parts.completeness.verdict == found.completeness.verdict == "holds"
    eps = jnp.finfo(dtype).eps
    near(parts.completeness.sum, logits(x)[3], within=2e3 * eps * parts.completeness.largest)
    near(found.parts.sum(), logits(x)[3] - logits(jnp.zeros_like(x))[3], within=2e3 * eps * found.completeness.largest)


@pytest.mark.parametrize(
    ("count", "labels", "options", "words"),
    [
        (3, [0, 1], {"epochs": 1}, ("3 images and 2 labels", "one batch of 32", "epochs is 1")),
        (2, [0, 4], {"batch": 2}, ("labels are from 0 to 4, but the network's classes from 0 to 3",)),
        (2, [-1, 3], {"batch": 2}, ("labels are from -1 to 3",)),
        (0, [], {}, ("0 images are fewer",)),
        (2, [0, 1], {"batch": 0}, ("batch is 0: give an integer of at least 1",)),
        (2, [0, 1], {"batch": 2, "rate": -1.0}, ("rate is -1.0: give a finite number of at least 0",)),
    ],
)
def test_what_cant_be_learned_from_is_refused(count, labels, options, words):
    with pytest.raises(duat.InvalidInput) as caught:
        papers.train_classifier(network(), np.zeros((count, 1, 4, 6)), np.array(labels, int), **options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(duat.DuatError, match="pip install 'scikit-learn>="):
        papers.load_digits()


def test_the_digits_are_all_there_and_none_twice():
    from sklearn import datasets

    found, pixels = papers.load_digits(), datasets.load_digits()
    images = np.concatenate([found.images, found.held_out_images]).reshape(-1, 64)
    labels = np.concatenate([found.labels, found.held_out_labels])
    assert len(found.held_out_labels) == 360

    def ordered(pixels, labels):
        return sorted(map(tuple, np.column_stack([pixels, labels]).astype(int)))

    assert ordered(images * 16, labels) == ordered(pixels.data, pixels.target)


def test_labels_that_are_no_integers_and_labels_of_other_images_are_refused():
    images, labels = np.zeros((2, 1, 4, 6)), np.zeros(2)
    with pytest.raises(duat.InvalidInput, match="labels are of float64: give the number of each image's class"):
        unchecked(papers.train_classifier)(network(), images, labels, batch=2)
    with pytest.raises(duat.InvalidInput, match="2 images and 1 labels"):
        unchecked(papers.accuracy)(network(), images, np.zeros(1, int))


def test_networks_are_as_large_as_is_said():
    counts = [sum(leaf.size for leaf in jax.tree.leaves(made(rngs=None))) for made in NETWORKS.values()]
    said = [made.__doc__.partition(" parameters.")[0].split()[-1] for made in NETWORKS.values()]
    assert [f"{count:,}" for count in counts] == said


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (np.zeros((2, 1, 4, 6)), [0, 4], "labels are from 0 to 4, but the network's classes from 0 to 3"),
        (np.full((2, 1, 4, 6), np.nan), [0, 1], "images have entries that aren't finite"),
        (np.zeros((0, 1, 4, 6)), np.zeros(0, int), "0 images and 0 labels"),
        (np.zeros((2, 4, 6)), [0, 1], r"images are \[2, 4, 6\]: give \[images, channels, rows, columns\]"),
    ],
)
def test_what_has_no_accuracy_is_refused(images, labels, words):
    with pytest.raises(duat.InvalidInput, match=words):
        unchecked(papers.accuracy)(network(), images, np.asarray(labels))


def test_what_is_no_network_is_refused():
    images, labels = np.zeros((2, 1, 4, 6)), np.array([0, 1])
    with pytest.raises(duat.InvalidInput, match="the network is of type int"):
        unchecked(papers.accuracy)(3, images, labels)
    with pytest.raises(duat.InvalidInput, match="the network is of type function: give a Flax NNX module"):
        papers.train_classifier(lambda x: x, images, labels, batch=2)
    with pytest.raises(duat.InvalidInput, match=r"images are \[2, 4, 6\]"):
        unchecked(papers.train_classifier)(network(), images[:, 0], labels, batch=2)


def test_logits_of_one_class_for_all_images_are_refused():
    with pytest.raises(duat.InvalidInput, match=r"the network returns \[1\] for one image"):
        papers.accuracy(lambda x: x[:, 0, 0, 0], np.zeros((2, 1, 4, 6)), np.array([0, 0]))


def test_images_that_arent_finite_arent_trained_on():
    with pytest.raises(duat.InvalidInput, match="aren't finite"):
        papers.train_classifier(network(), np.full((2, 1, 4, 6), np.inf), np.array([0, 1]), batch=2)
