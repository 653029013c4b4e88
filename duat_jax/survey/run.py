"""The run of a survey: parts of a corpus, measured here or by any executor, each kept as a file."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from duat_jax.errors import BadCheckpoint, DuatError, InvalidInput
from duat_jax.evaluation.journal import fingerprint
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.files import path_of, write_file
from duat_jax.inputs.baselines import Reference, baseline_of
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.inputs.question import ask_once
from duat_jax.models.checkpoint.hub import PREFIX
from duat_jax.models.loader import load, load_config, skeleton
from duat_jax.models.targets.logit import Logit
from duat_jax.models.tokenizer import load_tokenizer
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_layers
from duat_jax.sealed import digest_of, seal, unseal_file
from duat_jax.survey.explained import Explained
from duat_jax.survey.measure import measure
from duat_jax.survey.size import Size, bytes_of_part, bytes_of_tables
from duat_jax.survey.state import flat, merge_all, nested
from duat_jax.survey.tables import Survey, read, require_tables, write

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CORPUS = "corpus.safetensors"
"""The file of the corpus' windows, and of their baselines."""

PART = 64
"""The number of windows in one part."""

VERSION = 3
"""The version of the parts: of their format, and of how their sums round."""

AGAIN = "remove it, and run the same again"
"""The remedy for a file that is damaged or another survey's."""

KILLED, LOST = "KilledWorker", ("ClosedClientError", "CommClosedError")
"""Dask's errors of workers that died and of a scheduler that is gone, by their names: it needn't be installed."""

_PROCESS = os.getpid()
"""The process that imported this module; another one that runs it was forked."""


class _Surveyed(NamedTuple):
    """The surveyed model, as a worker finds it: its path, the dtype of its parameters, and its hash."""

    name: str | None
    dtype: str
    fingerprint: str


def survey(
    model: Path | str | None,
    texts: Sequence[str],
    directory: Path | str,
    *,
    target: int | str | None = None,
    contrast: int | str | None = None,
    baseline: str | None = None,
    tokens: int = 128,
    dtype: str = "float32",
    add_special_tokens: bool = True,
    shard: tuple[int, int] = (1, 1),
    executor: "Executor | None" = None,
    on_start: Callable[[Size], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Survey | None:
    """Measure over a corpus what every neuron, head and bias of a language model does for the tokens that stand there.

    The texts are cut into windows of one length. In each, the sum over its places of the *margin*, the logit of the
    next token minus that of the most probable other one, is split exactly over neurons, embeddings and biases; or that
    of a given target's logit; or the difference of these sums between the window and a baseline. Sums, sums of squares,
    counts, extremes and random tokens are kept in parts of 64 windows, each a file. What is there already isn't
    computed again, and the tables are the same bytes from one worker or from many.

    Args:
        model: a checkpoint's path, as in `duat.load`; the embedded model if `None`.
        texts: the corpus.
        directory: where parts and tables are kept; it is created, or holds the same survey, begun before.
        target: the token whose logit is explained at every place but a window's last, by its text or id; the margin is
            if absent.
        contrast: the token whose logit is subtracted from the target's.
        baseline: `"mask"`, `"pad"` or `"mean"`, as in `duat.contrast`: of every window the exact difference from this
            baseline is split, by the secant, instead of the number at the window itself.
        tokens: the length of a window.
        dtype: dtype of the parameters, as in `duat.load`.
        add_special_tokens: whether each text of the corpus has the model's special tokens, as in `load_tokenizer`.
        shard: `(i, n)` measures every n-th part, from the i-th on, 1 ≤ i ≤ n, for several machines that share the
            directory; the tables are written by whichever finishes last.
        executor: measures the parts, for example Dask's, or
            `ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn"))`, since JAX hangs in a
            process that was forked; its workers read the model and the directory by their paths. Here, one after the
            other, if absent.
        on_start: called with the survey's size before the first part is measured.
        progress: called then, and after each part, with the number of parts that are there, and of all in this shard.

    Returns:
        The survey's tables; nothing where other shards' parts are missing.

    Raises:
        InvalidInput: if the texts are too short, the model has no such token or baseline, or the directory holds
            another survey.
        DuatError: if the model predicts no next token or has experts, a part is damaged, or a worker died.
        NotFinite: if what the model says of a window is NaN or infinite.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     found = survey(None, ["for i in range(10): print(i) " * 20], directory, tokens=32)
        >>> found.neurons.columns[:3].tolist()
        ['layer', 'neuron', 'contribution']
    """
    place, (index, count) = path_of(directory, "a survey's directory"), shard
    name = None if model is None else _absolute(str(path_of(model, "a checkpoint")))
    require_tables()
    if not 1 <= index <= count:
        raise InvalidInput(
            f"shard {index}/{count} isn't there: give the first as 1/{count}, the last as {count}/{count}"
        )
    config = load_config(name)
    require_layers(config)
    if config.head.kind != "next token":
        raise DuatError(f"the model's head is {config.head.kind!r}: only models of the next token are surveyed")
    if any(block.experts is not None for block in config.blocks):
        raise DuatError("the model has experts, and each token chooses others: only neurons of all tokens are surveyed")
    if not 2 <= tokens <= config.positions:
        raise InvalidInput(f"windows of {tokens} tokens: the model reads from 2 to {config.positions}")
    tokenizer = load_tokenizer(name, add_special_tokens=add_special_tokens)
    corpus = windows(stream(tokenizer, texts), None, tokens)
    explained = _explained(skeleton(config, dtype), corpus[0], target, contrast, tokenizer)
    arrays = {"windows": corpus}
    if baseline is not None:
        reference = baseline_of(config, _inputs(corpus), baseline, tokenizer)
        arrays |= {"baseline": reference.inputs.given, "averaged": reference.averaged}
    loaded = load(name, dtype=dtype)
    number = -(-len(corpus) // PART)
    manifest: dict[str, Any] = {
        "version": VERSION,
        "family": config.family,
        "model": fingerprint(loaded, config),
        "corpus": sha256(corpus.tobytes()).hexdigest(),
        "dtype": dtype,
        **explained._asdict(),
        "baseline": baseline,
        "tokens": tokens,
        "windows": len(corpus),
        "parts": number,
    }
    _begin(place, manifest, arrays)
    parts = range(index - 1, number, count)
    missing = [part for part in parts if not _file(place, part).exists()]
    done = len(parts) - len(missing)
    if on_start is not None:
        size = bytes_of_part(config), bytes_of_tables(config, corpus.shape)
        on_start(Size(corpus.size, len(corpus), number, len(parts), done, *size))
    report = progress or (lambda done, total: None)
    report(done, len(parts))
    surveyed = _Surveyed(name, dtype, manifest["model"])
    for _ in _measured(loaded, surveyed, explained, place, missing, executor):
        done += 1
        report(done, len(parts))
    if not all(_file(place, part).exists() for part in range(number)):
        return None
    state = merge_all(nested(_read(_file(place, part), manifest, part)) for part in range(number))
    write(place, state, manifest, corpus, tokenizer)
    return read(place)


def _explained(
    model: Transformer, window: Int[np.ndarray, "tokens"], target: Any, contrast: Any, tokenizer: "Tokenizer"
) -> Explained:
    """Return the number that is explained, its tokens validated."""
    if target is None and contrast is not None:
        raise InvalidInput("contrast is the token whose logit is subtracted from a target's: give target too")
    if target is None:
        return Explained()
    checked = ask_once(model, window, Logit(target, contrast), tokenizer=tokenizer).target
    assert isinstance(checked, Logit)
    return Explained(checked.token, checked.contrast)


def _inputs(windows: Int[np.ndarray, "windows tokens"]) -> Inputs:
    return Inputs(windows, np.ones(windows.shape, bool), None)


def _begin(place: Path, manifest: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Make the directory of a survey, or check that it holds this one."""
    file, corpus = place / "manifest.json", seal(arrays, _head(manifest, "corpus"))
    if not file.exists():
        # Another shard may be doing the same.
        known = {file.name, "parts", CORPUS}
        if place.exists() and any(there.name not in known and there.suffix != ".part" for there in place.iterdir()):
            raise InvalidInput(f"{place} isn't empty, and holds no survey: give a new directory")
        if (place / CORPUS).exists() and (place / CORPUS).read_bytes() != corpus:
            raise InvalidInput(
                f"{place} holds the corpus of another survey, without its manifest: give a new directory"
            )
        place.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # it is that of a shard that began meanwhile
            write_file(file, (json.dumps(manifest, indent=1) + "\n").encode(), new=True)
    _require_same(file, manifest)
    (place / "parts").mkdir(exist_ok=True)
    if not (place / CORPUS).exists():
        write_file(place / CORPUS, corpus)


def _require_same(file: Path, manifest: dict[str, Any]) -> None:
    try:
        there = json.loads(file.read_bytes())
    except ValueError:
        there = None
    if not isinstance(there, dict):
        raise InvalidInput(f"{file} isn't a survey's manifest: give another directory")
    if different := [name for name in manifest if there.get(name) != manifest[name]]:
        raise InvalidInput(
            f"{file.parent} holds a survey with another {' and another '.join(different)}: give another one"
        )


def _file(place: Path, part: int) -> Path:
    return place / "parts" / f"{part:06}.safetensors"


def _head(manifest: dict[str, Any], name: int | str) -> dict[str, Any]:
    """Return what a file of a survey belongs to: the survey, by its manifest, and its part's number or its name."""
    return {"survey": digest_of(manifest), "part": name}


def _read(file: Path, manifest: dict[str, Any], name: int | str) -> dict[str, np.ndarray]:
    """Return the arrays of a survey's file."""
    return unseal_file(file, _head(manifest, name), AGAIN)[1]


def _absolute(name: str) -> str:
    """Return the name of a model that means the same in workers, which may run in other directories."""
    return name if name.startswith(PREFIX) else str(Path(name).absolute())


@lru_cache(maxsize=1)
def _model(surveyed: _Surveyed) -> Transformer:
    """Load the surveyed model in a worker, once; again if it has changed since another survey."""
    model = load(surveyed.name, dtype=surveyed.dtype)
    if fingerprint(model, model.config) != surveyed.fingerprint:
        raise BadCheckpoint(f"{surveyed.name} is another model where a worker runs: copy the surveyed one there")
    return model


def _measure_part(surveyed: _Surveyed, explained: Explained, place: str, part: int) -> int:
    """Measure a part in a worker, which reads the model once."""
    if os.getpid() != _PROCESS:
        raise DuatError(
            "the executor's workers are forked, and JAX stands still in a forked process: give"
            ' ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn"))'
        )
    with _numbers_of(surveyed.dtype):
        model = _model(surveyed)
    _measure_with(model, surveyed.dtype, explained, Path(place), part)
    return part


def _measure_with(model: Transformer, dtype: str, explained: Explained, place: Path, part: int) -> None:
    manifest = json.loads((place / "manifest.json").read_bytes())
    windows, baseline = _rows(part, _read(place / CORPUS, manifest, "corpus"))
    with _numbers_of(dtype):
        state = measure(model, windows, part * PART, explained, baseline)
    write_file(_file(place, part), seal(flat(state), _head(manifest, part)))


def _rows(part: int, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, Reference | None]:
    """Return the windows of a part, and their baselines if there are some."""
    rows = {name: array[part * PART : (part + 1) * PART] for name, array in arrays.items()}
    baseline = Reference(_inputs(rows["baseline"]), rows["averaged"]) if "baseline" in rows else None
    return rows["windows"], baseline


def _numbers_of(dtype: str) -> AbstractContextManager[None]:
    """Let JAX have float64 if the parameters have it, however the process that measures is configured."""
    return jax.enable_x64(dtype == "float64")


def _measured(
    model: Transformer,
    surveyed: _Surveyed,
    explained: Explained,
    place: Path,
    parts: Sequence[int],
    executor: Executor | None,
) -> Iterator[int]:
    """Measure parts, and yield each that is kept."""
    if executor is None:
        for part in parts:
            _measure_with(model, surveyed.dtype, explained, place, part)
            yield part
        return
    submitted = list[Future[int]]()
    try:
        for part in parts:
            submitted.append(executor.submit(_measure_part, surveyed, explained, str(place.absolute()), part))
        for finished in as_completed(submitted):
            yield finished.result()
    except Exception as error:
        again = "run the same again, and what is left is measured then"
        if isinstance(error, BrokenExecutor) or type(error).__name__ == KILLED:
            raise DuatError(f"a worker died: {again}") from None
        if isinstance(error, CancelledError) or type(error).__name__ in LOST:
            raise DuatError(
                f"the parts were cancelled, since the scheduler ended or the executor was shut down: {again}"
            ) from None
        raise
    finally:
        for future in submitted:
            future.cancel()
