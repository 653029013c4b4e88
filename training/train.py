"""Train the embedded language model and write it as a GPT-2 checkpoint.

Run `python -m training.train --output duat_jax/models/embedded`.

Stops and resumes: run the same command again and it goes on from its last orbax checkpoint in `--work`.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from duat_jax.models.config import Config, Head
from duat_jax.models.transformer import Transformer
from duat_jax.nn import BlockConfig
from training.corpus import fingerprint, sources, split
from training.export import write_gpt2

END_OF_TEXT = "<|endoftext|>"
CONFIG = Config(
    family="gpt2",
    blocks=(BlockConfig(arrangement="pre-norm", features=192, heads=4, neurons=768, activation="gelu_tanh"),) * 6,
    vocab=4096,
    positions=256,
    head=Head(kind="next token", outputs=4096, tied=True),
)
BATCH = 16


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Return a byte-pair tokenizer learned from the training text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG.vocab,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Return all texts as one stream of tokens, each text ended by the end-of-text token."""
    end = [tokenizer.token_to_id(END_OF_TEXT)]
    return np.array(
        list(itertools.chain.from_iterable(e.ids + end for e in tokenizer.encode_batch(texts))), dtype=np.uint16
    )


def batches(stream: np.ndarray, start: int) -> Iterator[jax.Array]:
    """Yield batches of windows from step `start` on: each pass over the stream is cut anew at a random phase."""
    length = CONFIG.positions
    for epoch in itertools.count():
        random = np.random.default_rng(epoch)
        phase = int(random.integers(length))
        starts = random.permutation(np.arange(phase, len(stream) - length - 1, length))
        for rows in starts[: len(starts) // BATCH * BATCH].reshape(-1, BATCH):
            if start > 0:
                start -= 1
                continue
            yield jnp.asarray(stream[rows[:, None] + np.arange(length + 1)], jnp.int32)


def loss_of(model: Transformer, windows: jax.Array) -> jax.Array:
    """Return the mean cross-entropy in nats per token."""
    logits = model(windows[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()


def optimizer(steps: int, *, decays: bool = True) -> optax.GradientTransformation:
    """Return Muon for the matrices inside the blocks and Adam for everything else, warmed up and decayed to zero.

    Args:
        steps: length of the training.
        decays: whether the learning rate falls after it was warmed up; else it stays.
    """

    def schedule(peak: float) -> optax.Schedule:
        return optax.warmup_cosine_decay_schedule(
            0.0, peak, min(100, steps // 10), steps, 0.02 * peak if decays else peak
        )

    def dimensions(parameters: nnx.State) -> nnx.State:
        def find_dimensions(path: tuple, leaf: jax.Array) -> optax.contrib.MuonDimensionNumbers | None:
            if "kernel" not in jax.tree_util.keystr(path) or leaf.ndim < 2:
                return None
            # The last two axes are a matrix's, those before count several.
            return optax.contrib.MuonDimensionNumbers(leaf.ndim - 2, leaf.ndim - 1)

        return jax.tree_util.tree_map_with_path(find_dimensions, parameters)

    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            schedule(0.02),
            weight_decay=0.05,
            adam_learning_rate=schedule(4e-3),
            adam_b2=0.98,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def train(stream: np.ndarray, steps: int, work: Path, save_every: int, *, stop_after: int | None = None) -> Transformer:
    """Train on the token stream, resuming from `work` where it holds a checkpoint.

    Args:
        stream: the tokens.
        steps: length of the whole training, on which the learning rate depends.
        work: directory of the orbax checkpoints.
        save_every: steps between two of them.
        stop_after: stop at this step, to be resumed later.

    Returns:
        The trained model.
    """
    model = Transformer(CONFIG, rngs=nnx.Rngs(0))
    graph, values = nnx.split(model)
    parameters = nnx.to_pure_dict(values)
    rule = optimizer(steps)
    state = rule.init(parameters)

    def loss_of_parameters(parameters: dict, windows: jax.Array) -> jax.Array:
        return loss_of(nnx.merge(graph, nnx.State(parameters)), windows)

    @jax.jit
    def step(parameters: dict, state: optax.OptState, windows: jax.Array) -> tuple:
        loss, gradient = jax.value_and_grad(loss_of_parameters)(parameters, windows)
        updates, state = rule.update(gradient, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    columns = (
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s"),
        TimeRemainingColumn(),
    )
    last = steps if stop_after is None else stop_after
    with ocp.CheckpointManager(work.absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        done = manager.latest_step() or 0
        if done:
            restored = manager.restore(done, args=ocp.args.StandardRestore((parameters, state)))
            parameters, state = restored
        with Progress(*columns) as progress:
            task = progress.add_task("train", total=steps, completed=done, loss=float("nan"), speed=0.0)
            began, first = time.perf_counter(), done
            for windows in itertools.islice(batches(stream, done), last - done):
                parameters, state, loss = step(parameters, state, windows)
                done += 1
                speed = (done - first) * BATCH * CONFIG.positions / (time.perf_counter() - began)
                progress.update(task, completed=done, loss=float(loss), speed=speed)
                if done % 50 == 0 and not progress.console.is_terminal:
                    print(f"step {done}/{steps} loss {float(loss):.3f} {speed:,.0f} tokens/s", flush=True)
                if done % save_every == 0 or done == last:
                    manager.save(done, args=ocp.args.StandardSave((parameters, state)))
    return nnx.merge(graph, nnx.State(parameters))


def main() -> None:
    """Train the tokenizer and the model, and write the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="directory of the GPT-2 checkpoint")
    parser.add_argument("--work", type=Path, default=Path("training/work"), help="directory of the orbax checkpoints")
    parser.add_argument("--steps", type=int, default=2800, help="optimiser steps")
    parser.add_argument("--save-every", type=int, default=200, help="steps between two orbax checkpoints")
    arguments = parser.parse_args()

    training, held_out = split(sources())
    tokenizer = train_tokenizer(list(training.values()))
    stream = encode(tokenizer, list(training.values()))
    size = sum(len(text.encode()) for text in training.values())
    print(f"{len(training)} files, {size:,} bytes, {len(stream):,} tokens; {len(held_out)} files held out", flush=True)
    model = train(stream, arguments.steps, arguments.work, arguments.save_every)
    write_gpt2(model, tokenizer, arguments.output)
    record = {"steps": arguments.steps, "batch": BATCH, "training_bytes": size, "training_tokens": len(stream)}
    record |= {"training_text": fingerprint(training), "held_out_text": fingerprint(held_out)}
    (arguments.output / "training.json").write_text(json.dumps(record, indent=2, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
