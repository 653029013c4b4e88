"""The list of slow test cases: those that took longer than a limit, except the quickest case of each test.

Run `pytest -p tests.slow_cases -n auto -m "not slow" --durations=0 > LOG`, and `python -m tests.slow_cases LOG`; it
writes slow_cases.txt, which `conftest.py` reads.  Empty the file first to measure every case anew.
"""

import os
import re
import sys
from collections import defaultdict
from pathlib import Path

from _pytest import timing

LIST = Path(__file__).with_suffix(".txt")
LIMIT, LIMIT_OF_THE_QUICKEST = 0.7, 4.0
"""Seconds of the processor for a case; of the quickest case of a test, which stands for the others in `make test`."""


def pytest_configure() -> None:
    """As a plugin, let durations be those of the processor and of ended processes, whatever else runs."""
    timing.perf_counter = lambda: sum(os.times()[:4])


def listed() -> frozenset[str]:
    """Return the names of the cases that are slow."""
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())


def slow_cases(log: str) -> set[str]:
    """Return the names of the slow cases.

    Args:
        log: what pytest printed.
    """
    of_tests: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for seconds, name in re.findall(r"^([\d.]+)s call +(.*\S)$", log, re.MULTILINE):
        of_tests[name.partition("[")[0]].append((float(seconds), name))
    return {
        name
        for cases in of_tests.values()
        for i, (seconds, name) in enumerate(sorted(cases))
        if seconds > (LIMIT if i else LIMIT_OF_THE_QUICKEST)
    }


if __name__ == "__main__":
    found = listed() | slow_cases(Path(sys.argv[1]).read_text(encoding="utf-8"))
    LIST.write_text("".join(f"{name}\n" for name in sorted(found)), encoding="utf-8")
