"""Strict numerics and checked shapes for the whole suite; the examples in docstrings run as a user would run them."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from itertools import filterfalse
from pathlib import Path
from zlib import crc32

# No test leaves a process behind, but the tests of that.
os.environ["DUAT_RESIDENT"] = "0"
# JAX 0.10.0 prints two lines of the compiler's for every program that it kept itself.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The newer of the compiler's two ways to make programs for a CPU takes almost twice the time for such small ones; later
# versions have no other and don't know the switch.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false" * (version("jaxlib") < "0.11")
)

# A test may replace a function of the library, of which a program that was traced before knows nothing.
os.environ["DUAT_PROGRAMS"] = "0"

import hypothesis
import jax
import jaxtyping
import pytest
from jax._src.interpreters import mlir

from tests.checked import checked
from tests.slow_cases import listed

# JAX makes a context of the compiler's anew for every program, in 5 ms, and every program that stays keeps its own, of
# 2 MB.  One context holds them all.  Each thread has its own, since the compiler adds to it; and a program that is made
# while another is being written takes a new one, or it would be written into the other.
if hasattr(mlir, "make_ir_context"):  # no promise of JAX's
    _context_of_thread = cache(lambda thread, make=mlir.make_ir_context: make())

    def _context(make: Callable[[], mlir.ir.Context] = mlir.make_ir_context) -> mlir.ir.Context:
        return make() if mlir.ir.Context.current else _context_of_thread(threading.get_ident())

    mlir.make_ir_context = _context
# Tracing makes many objects that stay: looking for garbage after every 700 of them takes a tenth of the suite's time.
gc.set_threshold(50_000, 20, 100)
# An example in which a program is compiled on a busy machine may take any time.
hypothesis.settings.register_profile("untimed", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("untimed")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
# The suite compiles thousands of small programs, takes half its time for that, and runs each once or twice: they are
# optimised less, and kept from one process and one run to the next, beside the user's own.  A process that reads one of
# which another has written half finds that out, warns, and compiles it (`tests/test_kept_programs.py`).
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent / ".pytest_cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)

# Every annotation of a shape is checked while the suite runs.  What walks programs has none, and many small functions.
_ROOMS = (
    *("attribution", "display", "evaluation", "forms", "in_context", "inputs", "interpret", "live", "lora"),
    *("models", "nn", "operators", "papers", "pruning", "reference", "training", "transform.marks", "verification"),
)
jaxtyping.jaxtyped = lambda typechecker: checked  # what the hook writes above every function
jaxtyping.install_import_hook(
    ["experiments.approximation", "experiments.images", *(f"duat_jax.{room}" for room in _ROOMS)], "beartype.beartype"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a part of the tests be chosen: `--part 2/3` is the second of three, by the tests' names."""
    parser.addoption("--part", default="1/1", help="which part of the tests, such as 2/3")


def pytest_collection_finish() -> None:
    """Look for no garbage among modules and tests, which stay."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases that were measured to be slow, and leave out the tests of other parts."""
    slow = listed()
    for item in items:
        if item.nodeid in slow:
            item.add_marker("slow")
    part, parts = map(int, config.getoption("part").split("/"))

    def elsewhere(item: pytest.Item) -> bool:
        return crc32(item.nodeid.encode()) % parts != part - 1

    config.hook.pytest_deselected(items=list(filter(elsewhere, items)))
    items[:] = filterfalse(elsewhere, items)


@pytest.fixture(autouse=True)
def _as_a_user(request: pytest.FixtureRequest) -> Iterator[None]:
    if isinstance(request.node, pytest.DoctestItem):
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            yield
    else:
        yield


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile with all optimisations, as a user does."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def compiled_anew() -> Iterator[None]:
    """Forget compiled programs before and after a test that replaces a part of the library."""
    jax.clear_caches()
    yield
    jax.clear_caches()


MAPS, MOST_MAPS = Path("/proc/self/maps"), 30_000
"""Where Linux lists a process's pieces of memory, of which it may have 65,530; every compiled program takes several."""
SECONDS = 5
"""How often they are counted, which takes some hundredths of a second: few tests add thousands."""
counted = time.monotonic()


@pytest.fixture(autouse=True)
def _programs_forgotten() -> Iterator[None]:
    global counted
    yield
    if time.monotonic() - counted > SECONDS and MAPS.exists():
        if MAPS.read_bytes().count(b"\n") > MOST_MAPS:
            jax.clear_caches()
        counted = time.monotonic()
