"""Executors that measure a survey's parts: processes of this machine, or the workers of a Dask scheduler."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context

from duat_jax.errors import DuatError, InvalidInput
from duat_jax.extras import requiring

ANSWERS_WITHIN = 10.0
"""The seconds in which Dask's scheduler has to answer."""


def executor_of(
    workers: int, address: str | None, begin: Callable[[], None], notice: Callable[[str], None]
) -> AbstractContextManager[Executor | None]:
    """Return an executor of several processes, or of the workers of a Dask scheduler; none for one process.

    Args:
        workers: the number of processes.
        address: that of the scheduler.
        begin: called in each process first.
        notice: called with a sentence where the scheduler has no workers yet.
    """
    if address is None:
        if workers == 1:
            return nullcontext()
        return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=begin)
    if workers > 1:
        raise InvalidInput("--workers starts processes here, and --dask has workers of its own: give one of them")
    return _workers_of(address, notice)


@contextmanager
def _workers_of(address: str, notice: Callable[[str], None]) -> Iterator[Executor]:
    """Yield an executor of Dask's workers; what is asked of them and not done is cancelled in the end."""
    with requiring("dask", "--dask"):
        from distributed import Client
        from distributed.comm import connect
    # They print the errors that are raised, and those of a lost connection, with their tracebacks.
    for name in ("distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

    async def reach() -> None:
        async with asyncio.timeout(ANSWERS_WITHIN):  # the client's own limit leaves out a server that says nothing
            await (await connect(address)).close()

    try:
        asyncio.run(reach())
        client = Client(address, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error) or f"no scheduler answers within {ANSWERS_WITHIN:.0f} s"
        raise InvalidInput(f"--dask {address}: {why}; give the address that the scheduler prints") from None
    with client:
        # Clusters that start workers when there is work have none before.
        if not client.nthreads():
            notice(f"{address} has no workers, and the survey waits for one: dask worker {address} --nthreads 1")
        # A part is a file: whether it was measured is what the directory says, not a result that Dask remembers.
        try:
            yield client.get_executor(pure=False)
        except (ImportError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            raise DuatError(
                "Dask's scheduler and workers can't read the task: install this duat-jax there too"
            ) from None
