"""Handwritten digits, and two small classifiers: a residual CNN and a Vision Transformer."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.extras import requiring
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import BlockConfig
from duat_jax.papers.validation import bad_number, refuse, too_small

N = TypeVar("N", bound=Callable[[Any], Any])

CLASSES, SIDE, PATCH, BRIGHTEST = 10, 8, 2, 16
HELD_OUT = 360
WIDTHS = (16, 16, 32, 32)
LAYERS, FEATURES, HEADS, NEURONS = 4, 48, 4, 96


class Digits(NamedTuple):
    """Images of handwritten digits, from 0 (paper) to 1 (ink), and their labels.

    Args:
        images: the training images, `[images, 1, 8, 8]`.
        labels: the digit on each, `[images]`.
        held_out_images: the images that aren't trained on, `[held_out, 1, 8, 8]`.
        held_out_labels: the digit on each, `[held_out]`.
    """

    images: Float[np.ndarray, "images 1 rows columns"]
    labels: Int[np.ndarray, "images"]
    held_out_images: Float[np.ndarray, "held_out 1 rows columns"]
    held_out_labels: Int[np.ndarray, "held_out"]


def load_digits(seed: int = 0) -> Digits:
    """Load scikit-learn's 1,797 digits of 8 × 8 pixels, shuffled, with 360 of them held out.

    Nothing is downloaded: scikit-learn (`pip install scikit-learn`) has the images.

    Args:
        seed: of the order, by which the held-out images are chosen.

    Returns:
        1,437 images to train on and 360 held-out ones, with their labels.

    Raises:
        DuatError: if scikit-learn isn't installed.

    Example:
        >>> import duat_jax as duat
        >>> digits = duat.papers.load_digits()
        >>> digits.images.shape, digits.held_out_labels[:3].tolist()
        ((1437, 1, 8, 8), [6, 6, 6])

    Source: Alpaydin & Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
    """
    with requiring("images", "load_digits"):
        from sklearn import datasets
    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels / BRIGHTEST).reshape(-1, 1, SIDE, SIDE).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, learned = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[learned], labels[learned], images[held_out], labels[held_out])


def residual_cnn(*, rngs: nnx.Rngs | None) -> ResidualNetwork:
    """Return a residual CNN for the digits, with random weights: `x_i = R x_{i−1} + W3 ReLU(W2 x_{i−1} + b2) + b3`.

    It has three layers, whose `W2` and `W3` are convolutions, 16 and then 32 channels, and 38,026 parameters.

    Args:
        rngs: source of the random initial weights; zeros without it.

    Returns:
        A classifier of images, `[..., 1, 8, 8]`, into ten classes.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> from flax import nnx
        >>> duat.papers.residual_cnn(rngs=nnx.Rngs(0))(jnp.zeros((1, 8, 8))).shape
        (10,)

    Source: Wang & Li, Eq. 20; He et al., "Deep Residual Learning for Image Recognition", 2016, Section 4.2.
    """
    return ResidualNetwork(1, WIDTHS, CLASSES, rngs=rngs)


def vision_transformer(*, rngs: nnx.Rngs | None) -> Transformer:
    """Return a Vision Transformer for the digits, with random weights: `y = x + A N₁(x)`, then `y + FFN(N₂(y))`.

    It has four layers of 48 features and 4 heads, and 77,530 parameters. Its tokens are sixteen patches of 2 × 2
    pixels, and one more, from which the class is read.

    Args:
        rngs: source of the random initial weights; zeros without it.

    Returns:
        A classifier of images, `[..., 1, 8, 8]`, into ten classes.

    Example:
        >>> import duat_jax as duat, jax.numpy as jnp
        >>> from flax import nnx
        >>> duat.papers.vision_transformer(rngs=nnx.Rngs(0))(jnp.zeros((1, 8, 8))).shape
        (10,)

    Source: Dosovitskiy et al., "An Image is Worth 16 × 16 Words", 2021; Wang & Li, Section 4.
    """
    block = BlockConfig(arrangement="pre-norm", features=FEATURES, heads=HEADS, neurons=NEURONS, causal=False)
    config = Config(
        family="vit",
        blocks=(block,) * LAYERS,
        vocab=1,
        positions=1 + (SIDE // PATCH) ** 2,
        image=Image(height=SIDE, width=SIDE, channels=1, patch_height=PATCH, patch_width=PATCH),
        head=Head(kind="classes", outputs=CLASSES, labels=tuple(map(str, range(CLASSES))), bias=True, pool="first"),
    )
    return Transformer(config, rngs=rngs)


def train_classifier(
    network: N,
    images: Float[np.ndarray, "images channels rows columns"],
    labels: Int[np.ndarray, "labels"],
    *,
    epochs: int = 30,
    batch: int = 32,
    rate: float = 3e-3,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> N:
    """Train a classifier of images with AdamW on the cross-entropy, `min −Σ_i log softmax(f(x_i))_{y_i}`.

    The learning rate rises in the first epoch and then falls to zero as a cosine; the weight decay is 0.05.

    Args:
        network: a module from images, `[batch, channels, rows, columns]`, to logits, `[batch, classes]`. It isn't
            changed.
        images: the training images, `[images, channels, rows, columns]`.
        labels: the class of each, `[images]`.
        epochs: the number of times that each image is read, at least 2.
        batch: number of images in a step.
        rate: the highest learning rate.
        seed: of the order of the images.
        progress: is called after every epoch with the number of epochs done, and of all.

    Returns:
        The trained network.

    Raises:
        DuatError: if Optax isn't installed.
        InvalidInput: naming everything that doesn't fit: a network that is no Flax NNX module, images without channels,
            images and labels that differ in number, fewer images than a batch, labels that aren't integers or no
            classes of the network, and numbers that are too small.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> from flax import nnx
        >>> images, labels = np.eye(4, dtype=np.float32).reshape(4, 1, 2, 2), np.arange(4)
        >>> network = nnx.Sequential(lambda x: x.reshape(-1, 4), nnx.Linear(4, 4, rngs=nnx.Rngs(0)))
        >>> trained = duat.papers.train_classifier(network, images, labels, epochs=60, batch=4, rate=0.1)
        >>> duat.papers.accuracy(trained, images, labels)
        1.0
    """
    images, labels = np.asarray(images), np.asarray(labels)
    refuse(_unfit(network, images, labels, epochs, batch) + bad_number(rate=rate))
    steps = len(images) // batch
    rule = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, rate, steps, epochs * steps), weight_decay=0.05)
    graph, parameters = nnx.split(network)

    def loss_of(parameters: Any, images: Array, labels: Array) -> Array:
        logits = nnx.merge(graph, parameters)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    # One step a program: in a scan, XLA's convolutions on CPUs take twenty times as long.
    @jax.jit
    def step(parameters: Any, state: Any, images: Array, labels: Array) -> tuple:
        gradient = jax.grad(loss_of)(parameters, images, labels)
        updates, state = rule.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state

    state, random = rule.init(parameters), np.random.default_rng(seed)
    with jax.numpy_dtype_promotion("standard"):  # as optax needs it
        for done in range(epochs):
            for rows in random.permutation(len(images))[: steps * batch].reshape(steps, batch):
                parameters, state = step(parameters, state, images[rows], labels[rows])
            if progress is not None:
                progress(done + 1, epochs)
    return nnx.merge(graph, parameters)


def _unfit(network: Any, images: np.ndarray, labels: np.ndarray, epochs: int, batch: int) -> list[str]:
    """Return a sentence for everything that can't be trained with."""
    problems = too_small(1, batch=batch)
    if not isinstance(network, nnx.Module):
        problems.append(f"the network is of type {type(network).__name__}: give a Flax NNX module")
    if problems:
        return problems
    if len(images) != len(labels):
        problems.append(f"there are {len(images)} images and {len(labels)} labels: give one label for each")
    if len(images) < batch:
        problems.append(f"{len(images)} images are fewer than one batch of {batch}")
    if too_small(2, epochs=epochs):
        problems.append(f"epochs is {epochs!r}: give an integer of at least 2, as the learning rate rises in the first")
    return [*problems, *_unfit_labels(network, images, labels)]


def _unfit_labels(network: Any, images: np.ndarray, labels: np.ndarray) -> list[str]:
    """Return a sentence for everything that tells images or labels from those of a classifier."""
    if not callable(network):
        return [
            f"the network is of type {type(network).__name__}: give a function of images, such as a Flax NNX module"
        ]
    if images.ndim != 4:
        return [
            f"images are {list(images.shape)}: give [images, channels, rows, columns], with 1 channel if they are grey"
        ]
    problems = [] if np.isfinite(images).all() else ["images have entries that aren't finite: give finite numbers"]
    if not np.issubdtype(labels.dtype, np.integer):
        return [*problems, f"labels are of {labels.dtype}: give the number of each image's class, an integer"]
    logits = jax.eval_shape(network, images[:1]).shape
    if len(logits) != 2:
        return [*problems, f"the network returns {list(logits)} for one image: return logits, [images, classes]"]
    if len(labels) and not 0 <= labels.min() <= labels.max() < logits[1]:
        problems.append(
            f"labels are from {labels.min()} to {labels.max()}, but the network's classes from 0 to {logits[1] - 1}"
        )
    return problems


def accuracy(
    network: Callable[[Array], Array],
    images: Float[np.ndarray, "images channels rows columns"],
    labels: Int[np.ndarray, "images"],
) -> float:
    """Return the accuracy of a classifier, as a fraction: how often `argmax f(x_i) = y_i`.

    Args:
        network: a function from images, `[images, channels, rows, columns]`, to logits, `[images, classes]`.
        images: the images, `[images, channels, rows, columns]`.
        labels: the class of each, `[images]`.

    Raises:
        InvalidInput: if there isn't one label for each image, there is no image, an image has no channels or isn't
            finite, or labels are no classes of the network.

    Example:
        >>> import duat_jax as duat, numpy as np
        >>> rows = np.eye(2, dtype=np.float32).reshape(2, 1, 1, 2)
        >>> duat.papers.accuracy(lambda x: x[:, 0, 0], rows, np.array([0, 0]))
        0.5
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if len(images) != len(labels) or not len(images):
        refuse([f"there are {len(images)} images and {len(labels)} labels: give one label for each of some images"])
    refuse(_unfit_labels(network, images, labels))
    return float(np.mean(np.asarray(network(jnp.asarray(images)).argmax(-1)) == labels))
