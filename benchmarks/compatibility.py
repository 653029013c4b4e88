"""Claim: what other packages compute where their versions differ, or where two of them do, is what the page says.

Run `python -m benchmarks.compatibility` with each version of a package: every probe whose package is installed is run,
and its answer is kept under the version. `tests/test_compatibility.py` compares the installed versions with the page.
"""

import json
import warnings
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

import benchmarks.compatibility_readers  # noqa: F401  (adds its probes)
from benchmarks.compatibility_probes import PROBES, Probe

RESULTS = Path(__file__).parent / "results" / "compatibility.json"


def installed(package: str) -> str | None:
    """Return the installed version of a package without its local part, if there is one."""
    try:
        return version(package).split("+")[0]
    except PackageNotFoundError:
        return None


def ordered(number: str) -> tuple[int, ...]:
    """Return what orders versions of numbers alone."""
    return tuple(int(part) for part in number.split(".") if part.isdecimal())


def answer(probe: Probe) -> str:
    """Return what a probe finds, or the name of the error that it meets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return probe.run()
        except Exception as error:
            return type(error).__name__


def expected(probe: Probe, number: str) -> str | None:
    """Return what the kept results say of a version: the answer of the newest kept one that is no newer.

    Args:
        probe: the probe.
        number: the version of its package.
    """
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))[probe.name]
    older = [each for each in kept if ordered(each) <= ordered(number)]
    return kept[max(older, key=ordered)] if older else None


def fields(results: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the table of the documentation page.

    Args:
        results: the kept answers, by probe and version.
    """
    from experiments.markdown import table

    columns = ["package", "what", "answer", "here", "source"]
    rows = [(p.package, p.what, _answers(results[p.name]), p.here, p.source) for p in PROBES.values()]
    return {"table": "\n".join(table(columns, rows))}


def _answers(kept: dict[str, str]) -> str:
    """Return the answers of one probe in the order of versions, those of the same answer together."""
    runs = [[*run] for _, run in groupby(sorted(kept, key=ordered), key=lambda number: kept[number])]
    return "; ".join(f"{run[0]}{f' to {run[-1]}' if run[1:] else ''}: {kept[run[0]]}" for run in runs)


def main() -> None:
    """Run every probe whose package is installed, and keep the answers."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for probe in PROBES.values():
        if number := installed(probe.package):
            kept.setdefault(probe.name, {})[number] = answer(probe)
            print(f"{probe.name}, {probe.package} {number}: {kept[probe.name][number]}")
    kept = {name: dict(sorted(of.items(), key=lambda item: ordered(item[0]))) for name, of in sorted(kept.items())}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
