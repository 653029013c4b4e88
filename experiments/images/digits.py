"""Handwritten digits, and two small classifiers: a residual CNN and a Vision Transformer."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.models.config import Config, Head, Image
from duat_jax.models.residual_network import ResidualNetwork
from duat_jax.models.transformer import Transformer
from duat_jax.nn.config import BlockConfig

Network = TypeVar("Network", bound=Callable[[Any], Any])

CLASSES, SIDE, BRIGHTEST = 10, 8, 16
HELD_OUT = 360
WIDTHS = (16, 16, 32, 32)
VISION = Config(
    family="vit",
    blocks=(BlockConfig(arrangement="pre-norm", features=48, heads=4, neurons=96, causal=False),) * 4,
    vocab=1,
    positions=1 + (SIDE // 2) ** 2,
    image=Image(height=SIDE, width=SIDE, channels=1, patch_height=2, patch_width=2),
    head=Head(kind="classes", outputs=CLASSES, labels=tuple(map(str, range(CLASSES))), bias=True, pool="first"),
)
"""Sixteen patches of 2 × 2 pixels, and a token for the whole."""

NETWORKS: dict[str, Callable[[nnx.Rngs], ResidualNetwork | Transformer]] = {
    "residual CNN": lambda rngs: ResidualNetwork(1, WIDTHS, CLASSES, rngs=rngs),
    "ViT": lambda rngs: Transformer(VISION, rngs=rngs),
}


class Digits(NamedTuple):
    """Images of handwritten digits, from 0 (paper) to 1 (ink), and their labels.

    Args:
        images: to learn from.
        labels: which digits they are.
        held_out_images: to be tried with.
        held_out_labels: which digits they are.
    """

    images: Float[np.ndarray, "images 1 rows columns"]
    labels: Int[np.ndarray, "images"]
    held_out_images: Float[np.ndarray, "held_out 1 rows columns"]
    held_out_labels: Int[np.ndarray, "held_out"]


def load_digits(seed: int = 0) -> Digits:
    """Load scikit-learn's 1,797 digits of 8 × 8 pixels, shuffled, with 360 held out; nothing is downloaded."""
    try:
        from sklearn import datasets
    except ImportError:
        raise DuatError(
            "the digits are those of scikit-learn, which isn't installed: pip install 'duat-jax[images]'"
        ) from None
    pixels, labels = datasets.load_digits(return_X_y=True)
    images = (pixels / BRIGHTEST).reshape(-1, 1, SIDE, SIDE).astype(np.float32)
    order = np.random.default_rng(seed).permutation(len(labels))
    held_out, learned = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[learned], labels[learned], images[held_out], labels[held_out])


def train_classifier(
    network: Network,
    images: Float[np.ndarray, "images channels rows columns"],
    labels: Int[np.ndarray, "labels"],
    *,
    epochs: int = 30,
    batch: int = 32,
    rate: float = 3e-3,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Network:
    """Train a classifier with AdamW on the cross-entropy, with a learning rate that warms up and decays to zero."""
    import optax

    problems = []
    if len(images) != len(labels):
        problems.append(f"there are {len(images)} images and {len(labels)} labels: give one label for each")
    if len(images) < batch:
        problems.append(f"{len(images)} images are fewer than one batch of {batch}")
    if epochs < 2:
        problems.append(f"epochs = {epochs}: the learning rate is warmed up in the first one, so give at least two")
    classes = jax.eval_shape(network, images[:1]).shape[-1]
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        problems.append(
            f"labels are from {labels.min()} to {labels.max()}, but the network's classes from 0 to {classes - 1}"
        )
    if problems:
        raise InvalidInput("; ".join(problems))
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
    for done in range(epochs):
        for rows in random.permutation(len(images))[: steps * batch].reshape(steps, batch):
            parameters, state = step(parameters, state, images[rows], labels[rows])
        progress(done + 1, epochs)
    return nnx.merge(graph, parameters)


def accuracy(
    network: Callable[[Array], Array],
    images: Float[np.ndarray, "images channels rows columns"],
    labels: Int[np.ndarray, "images"],
) -> float:
    """Return the accuracy of a classifier, as a fraction."""
    return float(np.mean(np.asarray(network(jnp.asarray(images)).argmax(-1)) == labels))
