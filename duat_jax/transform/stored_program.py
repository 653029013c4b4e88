"""Programs of questions on disk: a new process asks again without tracing the model."""

import dataclasses
import enum
import hashlib
import inspect
import os
import pickle
import platform
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial, wraps
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export, lax
from jaxtyping import Int

from duat_jax.files import write_file
from duat_jax.memory import check_program
from duat_jax.transform.compiled import KEPT

PACKAGES = ("flax", "jax", "jaxlib", "jaxtyping", "ml_dtypes", "numpy", "optax")
"""Packages whose functions are known by their version; this one's are by the times of its files."""


def numbers_as_data(count: int) -> tuple[Int[np.ndarray, ""], ...]:
    """Return the numbers from 0, each as an argument of a program.

    Where layers differ by their number alone, XLA compiles their kernels once, if it doesn't know the number.
    """
    return tuple(np.array(number, np.int32) for number in range(count))


_fitting: set[int] = set()
"""Hashes, which keep nothing alive, of functions, shapes and static arguments whose programs had enough memory."""


class _Unknown(Exception):
    """A program depends on something whose content can't be told."""


def folder() -> Path | None:
    """Return where programs are kept, with `DUAT_PROGRAMS=1`, which commands set: beside those that JAX compiled."""
    kept: str | None = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if os.environ.get("DUAT_PROGRAMS") != "1" or kept is None or not os.path.isdir(kept):
        return None
    return Path(kept)


def stored_program(fn: Callable[..., Any], *, static_argnames: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Compile a question as `jax.jit` does, and keep what it traced on disk where `folder()` says so.

    A program is kept under a digest of what it was made from: the function, the shapes of its arguments and what is
    static in them, JAX's settings, and the versions of `PACKAGES`. Where that includes code of anyone else, such as a
    target of one's own, or several devices, nothing is kept.

    Before a program first runs on a CPU, the memory that it needs is compared with what is free.
    """

    @wraps(fn)
    def strongly_typed(*arguments: Any, **named: Any) -> Any:
        # A program that was written doesn't know which of its results were weakly typed.
        return jax.tree.map(lambda leaf: lax.convert_element_type(leaf, leaf.dtype), fn(*arguments, **named))

    def flat(leaves: list[Any], tree: Any, static: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> Any:
        return strongly_typed(**jax.tree.unflatten(tree, leaves), **dict(static))

    flat.__name__ = fn.__name__  # which is a program's name, too
    jitted = jax.jit(flat, static_argnums=(1, 2, 3))  # 1, 1.0 and True are equal, and differ in type
    signature = inspect.signature(fn)

    @lru_cache(maxsize=KEPT)
    def program(place: Path, tree: Any, avals: tuple[Any, ...], static: Any, settings: Any) -> Any:
        """Return the program of flat lists and the structure of its result; if it isn't kept, none."""
        try:
            content = _content((fn, tree, avals, static, settings, _versions()))
        except _Unknown:
            return None
        digest = hashlib.sha256(repr(content).encode()).hexdigest()
        file = place / f"{fn.__name__.strip('_')}-{digest}.program"
        if (kept := _read(file)) is None:
            if (written := _written(partial(strongly_typed, **dict(static)), tree, avals)) is None:
                return None
            with suppress(OSError):
                write_file(file, written)
            kept = _restored(written)
        exported, skeleton = kept
        return jax.jit(exported.call), jax.tree.structure(skeleton)

    @wraps(fn)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        given = dict(bound.arguments)
        static = tuple((name, given.pop(name)) for name in static_argnames)
        leaves, tree = jax.tree.flatten(given)
        kept = None
        if (place := folder()) is not None and (settings := _settings(leaves)) is not None:
            kept = program(place, tree, tuple(map(jax.typeof, leaves)), static, settings)
        run, structure = kept or (jitted, None)
        further = () if kept else (tree, static, tuple(type(value) for _, value in static))
        shapes = ((np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in leaves)
        asked = hash((fn, structure, tree, static, *shapes))
        if asked not in _fitting and _platform(leaves) == "cpu":
            check_program(run.lower(leaves, *further).compile(), leaves)  # JAX keeps it for the next line
            _fitting.add(asked)
        result = run(leaves, *further)
        return jax.tree.unflatten(structure, result) if kept else result

    call.jitted = jitted  # type: ignore[attr-defined]  # whose programs can be counted
    return call


def _platform(leaves: list[Any]) -> str | None:
    """Return the platform of the only device; none inside of a trace or on several devices."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    disabled: bool = jax.config.jax_disable_jit  # type: ignore[attr-defined]
    if disabled or any(isinstance(array, jax.core.Tracer) for array in arrays):
        return None
    devices = {device for array in arrays for device in array.devices()}
    return devices.pop().platform if len(devices) == 1 else None


def _settings(leaves: list[Any]) -> tuple[Any, ...] | None:
    """Return the platform of the only device and JAX's settings; none inside of a trace or on several devices."""
    if (platform := _platform(leaves)) is None:
        return None
    return platform, *((name, getattr(jax.config, name, None)) for name in sorted(jax.config.values))


def _written(fn: Callable, tree: Any, avals: tuple[Any, ...]) -> bytes | None:
    """Return what is written of a program: what JAX makes of it, and its result with numbers in the place of leaves.

    Nothing, if that can't be read again as it was.
    """
    skeleton: Any = None

    @jax.jit
    def flat(leaves: list[Any]) -> list[Any]:
        nonlocal skeleton
        flattened, structure = jax.tree.flatten(fn(**jax.tree.unflatten(tree, leaves)))
        skeleton = jax.tree.unflatten(structure, range(len(flattened)))
        return flattened

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
    flat.trace(shapes)  # what is wrong with the question is said here
    try:
        exported = export.export(flat)(shapes)
        written = pickle.dumps((bytes(exported.serialize()), skeleton))
        again, same = _restored(written)
    except Exception:  # JAX writes programs of some operations, and Python some objects
        return None
    structure: Any = jax.tree.structure(skeleton)
    unchanged = again.out_avals == exported.out_avals and structure == jax.tree.structure(same)
    return written if unchanged else None


def _restored(written: bytes) -> tuple[export.Exported, Any]:
    """Return a program, and its result with numbers in the place of leaves, from what was written."""
    serialized, skeleton = pickle.loads(written)
    return export.deserialize(bytearray(serialized)), skeleton


def _read(file: Path) -> tuple[export.Exported, Any] | None:
    """Return a program that was kept, if there is one."""
    try:
        return _restored(file.read_bytes())
    except Exception:  # what isn't whole is made again
        return None


@cache
def _versions() -> tuple[str, ...]:
    """Return the versions of Python and of packages, and a digest of the state of this package's files."""
    package = Path(__file__).parent.parent
    states = [(str(f), (state := f.stat()).st_mtime_ns, state.st_size) for f in sorted(package.rglob("*.py"))]
    of_files = hashlib.sha256(repr(states).encode()).hexdigest()
    return platform.python_version(), *map(version, PACKAGES), of_files


def _content(value: Any) -> Hashable:
    """Describe a value by what it is made of, alike in every process."""
    kind = type(value)
    if value is None or value is type(None) or kind in (bool, int, float, complex, str, bytes):
        return kind.__name__, repr(value)
    if kind in (tuple, list):
        return kind.__name__, *map(_content, value)
    if kind in (frozenset, set):
        return kind.__name__, *sorted(repr(_content(item)) for item in value)
    if isinstance(value, Mapping):
        return _named(kind), *((_content(key), _content(item)) for key, item in value.items())
    if kind is jax.tree_util.PyTreeDef:
        return "tree", _content(value.node_data()), *map(_content, value.children())
    if isinstance(value, jax.core.ShapedArray):
        return "shape", value.shape, str(value.dtype), value.weak_type
    if isinstance(value, np.dtype):
        return "dtype", str(value)
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return "array", value.shape, str(value.dtype), value.tobytes()
    if isinstance(value, partial):
        return "partial", *map(_content, (value.func, value.args, value.keywords))
    if isinstance(value, enum.Enum):
        return _named(kind), value.name
    if isinstance(value, tuple):
        return _named(kind), *map(_content, value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = [field.name for field in dataclasses.fields(value) if field.compare]
        return _named(kind), *((name, _content(getattr(value, name))) for name in compared)
    return _named(value)


def _named(value: Any) -> Hashable:
    """Describe a function or a type of a known package by its name."""
    module, name = str(getattr(value, "__module__", "")), getattr(value, "__qualname__", "")
    if module.partition(".")[0] not in ("builtins", "duat_jax", *PACKAGES):
        raise _Unknown
    try:
        found = attrgetter(name)(inspect.getmodule(value))
    except AttributeError:  # an object, or a function in another
        raise _Unknown from None
    if value not in (found, getattr(found, "__wrapped__", None)):
        raise _Unknown
    return module, name
