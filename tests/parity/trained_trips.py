"""Round trips of language models and adapters at the end of a short training."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import duat_jax as duat
from duat_jax.lora import merge, new_adapters, save_adapters, save_merged
from duat_jax.lora import train as train_adapters
from duat_jax.models.saver import save_model
from duat_jax.training import train
from duat_jax.training.next_token import TrainingSettings, next_token_run

from . import hugging_face
from .adapter_trips import beside
from .cases import Case
from .comparison import DTYPES, parameters
from .derived_trips import read_back

SETTINGS = TrainingSettings(steps=3, batch=2, rate=1e-2)
PIECES = np.random.default_rng(0).integers(4, 60, (6, 8)).astype(np.int32)


def trained(case: Case, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the cells of a trained language model, of a trained adapter, and of the model that this is merged with.

    Args:
        case: the base model.
        folder: an empty folder.
    """
    kind = type(hugging_face.make(folder / "base", case.architecture, case.settings))
    base = duat.load(folder / "base")
    if base.config.head.kind != "next token":
        return
    last = train(next_token_run(PIECES, SETTINGS), base, folder / "states").last
    form = "copy of a trained model"
    save_model(last, folder / "base", folder / form)
    require_moved(base, last)
    yield from read_back(folder / form, kind, parameters(last))

    adapters, _ = train_adapters(base, new_adapters(base, rank=2), PIECES, SETTINGS)
    save_adapters(folder / "trained adapter", adapters, base)
    for dtype in DTYPES:
        yield "PEFT adapter trained here", dtype, beside(kind, folder, "trained adapter", dtype, adapters)
    form = "copy with a trained adapter"
    save_merged(folder / form, adapters, base, folder / "base")
    merged = merge(base, adapters)
    require_moved(base, merged)
    yield from read_back(folder / form, kind, parameters(merged))


def require_moved(before: duat.models.Transformer, after: duat.models.Transformer) -> None:
    """Raise unless a training has changed numbers.

    Args:
        before: the model before it.
        after: the model after it.
    """
    old, new = parameters(before), parameters(after)
    if all(np.array_equal(old[name], new[name]) for name in old):
        raise AssertionError("the training has changed nothing")
