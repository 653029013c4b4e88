"""Apply small mistakes to a copy of the sources, one at a time, and require that the tests named beside each fail.

Run `python -m tests.mutation`, or `python -m tests.mutation bias norm` for the mistakes in which one of these words
stands.  The mistakes are in mutations.toml: a file, its text before and after, and the fast tests that must see it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """A small mistake, where it is made, and the fast tests that must see it."""

    mistake: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def made(self) -> str:
        """Return the file's text with the mistake in it.

        Raises:
            ValueError: if the text before doesn't stand in the file exactly once.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} has {self.before!r} {count} times, not once: change tests/mutations.toml")
        return text.replace(self.before, self.after)


def mutations() -> list[Mutation]:
    """Return every mistake of mutations.toml."""
    tables = tomllib.loads(Path(__file__).with_name("mutations.toml").read_text(encoding="utf-8"))
    return [Mutation(**{**table, "tests": tuple(table["tests"])}) for table in tables["mutation"]]


def copy_of_sources(folder: Path) -> None:
    """Copy every file of the repository that git doesn't ignore, and share the tests' compiled programs."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (ROOT / ".pytest_cache").mkdir(exist_ok=True)
    (folder / ".pytest_cache").symlink_to(ROOT / ".pytest_cache")


def fail(folder: Path, tests: Iterable[str]) -> bool:
    """Return whether a fast test of a copy fails.

    Raises:
        RuntimeError: if the tests couldn't be run.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Modules that Python kept are known by the second and the size of their source, which a mistake may not change.
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}
    run = subprocess.run([*command, *tests], cwd=folder, env=variables, capture_output=True, text=True)
    if run.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(tests)} couldn't be run:\n{run.stdout}{run.stderr}")
    return run.returncode == 1


def main(words: list[str]) -> None:
    """Make every mistake, or those in which one of the words stands, and say which the tests see.

    Args:
        words: of the command line.
    """
    chosen = [each for each in mutations() if not words or any(word in f"{each.mistake} {each.file}" for word in words)]
    changed = {each: each.made() for each in chosen}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        copy_of_sources(folder)
        if fail(folder, sorted({test for each in chosen for test in each.tests})):
            sys.exit("the tests fail without a mistake: mend them first")
        unseen = 0
        for mutation, text in changed.items():
            file = folder / mutation.file
            correct = file.read_text(encoding="utf-8")
            file.write_text(text, encoding="utf-8")
            seen = fail(folder, mutation.tests)
            file.write_text(correct, encoding="utf-8")
            unseen += not seen
            print(f"{'seen' if seen else 'NOT SEEN':8}  {mutation.file}: {mutation.mistake}", flush=True)
    print(f"{len(chosen) - unseen} of {len(chosen)} mistakes are seen")
    sys.exit(bool(unseen))


if __name__ == "__main__":
    main(sys.argv[1:])
