"""Claim: a survey of ten million tokens whose process is killed at random moments ends in the same bytes.

Run `python -m benchmarks.killed_survey` (five minutes of processor time).

A tiny model and random words.  The process of the survey gets SIGKILL after a number of parts and a part of a second
that are drawn, or while it starts, and is started again, as a user would.  Another survey runs undisturbed.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import duat_jax as duat
from duat_jax.survey.run import PART
from experiments.environment import environment
from experiments.markdown import Fields
from fuzzing import models

RESULTS = Path(__file__).parent / "results" / "killed_survey.json"
TOKENS, KILLS = 10_000_000, 12
WINDOW, TEXT = 128, 1000
"""The tokens of a window, and of a text."""
MODEL = 5
"""The number that the checkpoint is drawn from: one layer of Llama's family."""
OF_START = 4
"""Each fourth kill comes while the process starts, at most so many seconds after its beginning."""


def survey(model: Path, tokens: int, directory: Path) -> None:
    """Survey random words, or go on with it.

    Args:
        model: a checkpoint.
        tokens: their number.
        directory: the survey's.
    """
    words, chance = np.array(models.WORDS[1:]), np.random.default_rng(0)
    texts = [" ".join(words[chance.integers(len(words), size=TEXT)]) for _ in range(tokens // TEXT)]
    duat.survey.survey(model, texts, directory, tokens=WINDOW)


def files(directory: Path) -> dict[Path, bytes]:
    """Return the content of every file of a survey, but of temporary ones.

    Args:
        directory: the survey's.
    """
    found = (path for path in directory.rglob("[!.]*") if path.is_file())
    return {path.relative_to(directory): path.read_bytes() for path in found}


def _started(model: Path, tokens: int, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-m", __name__ if __name__ != "__main__" else "benchmarks.killed_survey"]
    return subprocess.Popen([*command, "--tokens", str(tokens), "--worker", str(model), str(directory)])


def _parts(directory: Path) -> int:
    return len(list(directory.glob("parts/[!.]*")))


def measured(tokens: int, kills: int, seed: int = 0) -> dict[str, Any]:
    """Survey with kills and without, and return how they went and whether their files are the same.

    Args:
        tokens: the number of tokens.
        kills: how often the process is killed, if it isn't done before.
        seed: what decides when.
    """
    chance, parts = np.random.default_rng(seed), -(-tokens // WINDOW // PART)
    with tempfile.TemporaryDirectory() as folder:
        model, killed, whole = (Path(folder) / name for name in ("model", "killed", "whole"))
        models.write(model, MODEL, WINDOW)
        there = list[int]()
        for number in range(kills):
            process = _started(model, tokens, killed)
            if number % OF_START == OF_START - 1:
                time.sleep(chance.uniform(0, OF_START))
            else:
                enough = _parts(killed) + chance.integers(1, 2 * parts // (kills + 1) + 1)
                while process.poll() is None and _parts(killed) < enough:
                    time.sleep(0.02)
                time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
            if process.wait() == 0:
                break  # it was done before
            there.append(_parts(killed))
        for directory in (killed, whole):
            if _started(model, tokens, directory).wait() != 0:
                raise RuntimeError(f"the survey in {directory} failed")
        return {
            "tokens": tokens,
            "parts": parts,
            "parts at each kill": there,
            "temporary files left": len([path for path in killed.rglob(".*") if path.is_file()]),
            "same": files(killed) == files(whole),
        }


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: the kept results.
    """
    same = "the same bytes" if results["same"] else "other bytes"
    return {
        "tokens": f"{results['tokens']:,}",
        "kills": str(len(results["parts at each kill"])),
        "same": same,
    }


def main() -> None:
    """Measure and keep the result; or run one survey, as the process that is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--worker", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        survey(arguments.worker[0], arguments.tokens, arguments.worker[1])
        return
    results = {"environment": environment(), **measured(arguments.tokens, arguments.kills)}
    print(results)
    if arguments.tokens >= TOKENS:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
