"""Fine-tuning by low-rank adapters, of all matrices and of everything, with the same data, steps and rule."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from duat_jax.evaluation.running_text import stream, token_losses, windows
from duat_jax.lora.adapter import Adapter, adapt, merge, new_adapters
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import computed_in
from experiments.run import frames_of
from experiments.study import Row
from experiments.table import rows_of
from experiments.texts import manual
from training.corpus import unseen

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STEPS, BATCH, LENGTH = 100, 4, 60
"""Steps of a training, texts of a step, and tokens of a text."""
ALPHA = 16.0
"""The scale of an adapter's product is `ALPHA / rank`, as by default."""
TESTED, TRAINED = 48, 600
"""Test texts of a task, as many as validation texts; and training texts that are made."""
MLPS = ("c_fc", "mlp.c_proj")

Weights = dict[str, Any]
"""Trained numbers by name: arrays, or pairs of factors."""


class Method(NamedTuple):
    """A way to fine-tune.

    Args:
        trained: `"adapters"`, `"biases"` and `"kernels"` of the blocks' linear layers, or `"everything"`.
        rates: the learning rates that are tried.
        rank: the rank of adapters.
        modules: the layers with adapters; all of the blocks if empty.
    """

    trained: str
    rates: tuple[float, ...]
    rank: int = 0
    modules: tuple[str, ...] = ()


ADAPTERS_RATES = 3e-4, 1e-3, 3e-3, 1e-2, 3e-2
FULL_RATES = 3e-5, 1e-4, 3e-4, 1e-3, 3e-3
BIASES_RATES = 3e-3, 1e-2, 3e-2, 1e-1, 3e-1
BIASES, RANKS = "rank 0, biases alone", tuple(f"rank {rank}" for rank in (1, 4, 16, 64))
IN_MLPS, MATRICES, EVERYTHING = "rank 16, MLPs alone", "full, the same matrices", "full, all parameters"
METHODS = {
    BIASES: Method("biases", BIASES_RATES),
    **{name: Method("adapters", ADAPTERS_RATES, int(name.removeprefix("rank "))) for name in RANKS},
    IN_MLPS: Method("adapters", ADAPTERS_RATES, 16, MLPS),
    MATRICES: Method("kernels", FULL_RATES),
    EVERYTHING: Method("everything", FULL_RATES),
}
"""The compared methods. Ranks are of the same 24 stored matrices that `MATRICES` trains whole."""


class Task(NamedTuple):
    """Texts to train on, to choose learning rates by, and to test on.

    Args:
        train: token ids of the training texts.
        validation: those by which learning rates are chosen.
        test: those of the results.
        counted: 1 for every predicted token whose loss counts, of any text.
    """

    train: Int[np.ndarray, "texts tokens"]
    validation: Int[np.ndarray, "texts tokens"]
    test: Int[np.ndarray, "texts tokens"]
    counted: Float[np.ndarray, "predicted"]


def english(tokenizer: "Tokenizer") -> Task:
    """Return the task of predicting Python's reference manual; test chapters share few lines with others."""
    chapters = {str(i): text for i, text in enumerate(dict.fromkeys(manual()))}
    parts = [{name: text for name, text in chapters.items() if int(name) % 4 == rest} for rest in range(4)]
    training = parts[2] | parts[3]
    held_out = unseen(training, parts[1]), unseen(training | parts[1], parts[0])
    validation, test = (windows(stream(tokenizer, of.values()), TESTED, LENGTH, seed=0) for of in held_out)
    train = windows(stream(tokenizer, training.values()), TRAINED, LENGTH, seed=0)
    return Task(train, validation, test, np.ones(LENGTH - 1, np.float32))


def largest(tokenizer: "Tokenizer", further: int = 0) -> Task:
    """Return a task with right answers: the largest or smallest of three digits, as lines of Python."""
    # Digits that are tested occur in training in no order. Only the losses of answers count.
    draw = Random(0)
    digits = [(a, b, c) for a in range(10) for b in range(a, 10) for c in range(b, 10)]
    draw.shuffle(digits)
    fifth = len(digits) // 5

    def line(of: list[tuple[int, int, int]]) -> str:
        chosen, name = draw.sample(draw.choice(of), 3), draw.choice(("max", "min"))
        answer = max(chosen) if name == "max" else min(chosen)
        return f"assert {name}({', '.join(map(str, chosen))}) == {answer}\n"

    def texts(of: list[tuple[int, int, int]], count: int) -> np.ndarray:
        ids = [tokenizer.encode("".join(line(of) for _ in range(5))).ids for _ in range(count)]
        return np.array(ids, np.int32)

    train = texts(digits[2 * fifth :], TRAINED)
    validation, test = texts(digits[:fifth], TESTED), texts(digits[fifth : 2 * fifth], TESTED)
    if further:
        train = np.concatenate([train, texts(digits[2 * fifth :], further)])
    # Of the 12 tokens of a line, the answer is the last but one; the first token of a text isn't predicted.
    counted = (np.arange(1, LENGTH) % 12 == 10).astype(np.float32)
    return Task(train, validation, test, counted)


TASKS = {"English": english, "largest of three": largest}


def leaves_of(model: Transformer) -> dict[str, Array]:
    """Return every parameter of a model by its path."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(model)}


def kernels_of(model: Transformer) -> dict[str, Array]:
    """Return the matrices that adapters can change, by their paths."""
    return {path: leaf for path, leaf in leaves_of(model).items() if ".kernel" in path and ".stack" in path}


def replaced(model: Transformer, weights: dict[str, Array]) -> Transformer:
    """Return a model with some of its parameters replaced."""
    known = leaves_of(model)
    return jax.tree.unflatten(jax.tree.structure(model), list((known | weights).values()))


def initial(model: Transformer, method: Method, seed: int) -> Weights:
    """Return what is trained, before training."""
    if method.trained == "adapters":
        adapters = new_adapters(model, method.modules, rank=method.rank, alpha=ALPHA, seed=seed)
        return {name: adapter.trained for name, adapter in adapters.items()}
    leaves = leaves_of(model)
    if method.trained == "everything":
        return leaves
    kernels = kernels_of(model)
    return kernels if method.trained == "kernels" else {path: leaves[path] for path in map(_bias, kernels)}


def _bias(kernel: str) -> str:
    return kernel.replace(".kernel", ".bias")


def tuned(model: Transformer, method: Method, weights: Weights, *, merged: bool = True) -> Transformer:
    """Return the model with what was trained, of the base's structure unless adapters stay beside their kernels."""
    if method.trained != "adapters":
        return replaced(model, weights)

    def adapter(down: Array, up: Array) -> Adapter:
        return Adapter(down, up, jnp.asarray(ALPHA / method.rank, computed_in(down.dtype)))

    adapters = {name: adapter(*factors) for name, factors in weights.items()}
    return merge(model, adapters) if merged else adapt(model, adapters)


def trained_numbers(weights: Weights) -> int:
    """Return how many numbers are trained."""
    return sum(leaf.size for leaf in jax.tree.leaves(weights))


def rows(texts: int, seed: int) -> Int[np.ndarray, "steps batch"]:
    """Return which texts each step reads: a random order of all, anew in every pass."""
    draw, of_a_pass = np.random.default_rng(seed), texts // BATCH
    passes = [draw.permutation(texts)[: of_a_pass * BATCH] for _ in range(-(-STEPS // of_a_pass))]
    return np.concatenate(passes).reshape(-1, BATCH)[:STEPS]


def train(model: Transformer, task: Task, method: Method, rate: float, seed: int) -> Transformer:
    """Return the model, fine-tuned by Adam with a rate that warms up and decays to zero."""
    (whole,) = train_along(model, task, method, rate, seed, (STEPS,))
    return whole


def train_along(
    model: Transformer, task: Task, method: Method, rate: float, seed: int, stops: Sequence[int]
) -> Iterator[Transformer]:
    """Yield the model after some steps of its fine-tuning."""
    ids = jnp.asarray(task.train[rows(len(task.train), seed)])
    counted, highest = jnp.asarray(task.counted), jnp.asarray(rate, task.counted.dtype)
    weights = initial(model, method, seed)
    state = _rule(highest).init(weights)
    for first, last in pairwise([0, *stops]):
        weights, state = _train(model, weights, state, ids[first:last], counted, highest, method)
        yield tuned(model, method, weights)


def _rule(rate: Array) -> optax.GradientTransformation:
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, STEPS // 10, STEPS)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(),
        optax.scale_by_schedule(lambda step: -rate * shape(step)),
    )


def fit(
    loss: Callable[[Any, Array], Array], weights: Any, state: Any, ids: Int[Array, "steps batch tokens"], rule: Any
) -> tuple[Any, Any]:
    """Minimise the loss of texts in one scan over the steps, and return the weights and the rule's state."""

    def step(carry: tuple[Any, Any], texts: Array) -> tuple[tuple[Any, Any], None]:
        weights, state = carry
        updates, state = rule.update(jax.grad(loss)(weights, texts), state, weights)
        return (optax.apply_updates(weights, updates), state), None

    return jax.lax.scan(step, (weights, state), ids)[0]


@partial(jax.jit, static_argnames="method")
def _train(
    model: Transformer, weights: Weights, state: Any, ids: Array, counted: Array, rate: Array, method: Method
) -> tuple[Weights, Any]:
    def loss(weights: Weights, texts: Array) -> Array:
        return text_losses(tuned(model, method, weights, merged=False), texts, counted).mean()

    return fit(loss, weights, state, ids, _rule(rate))


@jax.jit
def text_losses(
    model: Transformer, ids: Int[Array, "texts tokens"], counted: Float[Array, "predicted"]
) -> Float[Array, "texts"]:
    """Return every text's mean loss over the tokens that count, in nats."""
    return token_losses(model, ids) @ counted / counted.sum()


@jax.jit
def text_accuracies(
    model: Transformer, ids: Int[Array, "texts tokens"], counted: Float[Array, "predicted"]
) -> Float[Array, "texts"]:
    """Return for every text the share of the tokens that count which are the most probable ones."""
    right = model(ids[:, :-1]).argmax(-1).astype(ids.dtype) == ids[:, 1:]
    return right.astype(counted.dtype) @ counted / counted.sum()


def rate_of(task: str, name: str) -> float:
    """Return a method's best learning rate, of the kept results of `lora_why`."""
    return float(rows_of(frames_of("lora_why")["methods"], task=task, trained=name).rate.iloc[0])


def kept_runs(task: str, name: str) -> tuple[Row, list[Row]]:
    """Return what `lora_why` keeps of the base, and of every seed's model by a method at its best rate."""
    frames = frames_of("lora_why")
    (base,) = rows_of(frames["base"], task=task).to_dict("records")
    return base, rows_of(frames["runs"], task=task, trained=name, at="best").to_dict("records")
