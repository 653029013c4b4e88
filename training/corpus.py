"""The training text: the sources of Python's own standard library, split into training and held-out files."""

import hashlib
import sysconfig
from pathlib import Path

HELD_OUT_ONE_IN = 25
SHORT_LINE, FEW = 20, 0.1


def sources() -> dict[str, str]:
    """Return every distinct UTF-8 source file of the running Python's standard library, by its relative path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if "site-packages" in name or "dist-packages" in name:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if text and text not in seen:
            seen.add(text)
            texts[name] = text
    return texts


def split(texts: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split into training and held-out files by the hash of their names, so that the split is the same everywhere."""

    def is_held_out(name: str) -> bool:
        return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0

    training = {name: text for name, text in texts.items() if not is_held_out(name)}
    held_out = {name: text for name, text in texts.items() if is_held_out(name)}
    return training, held_out


def known_lines(text: str, known: set[str]) -> float:
    """Return the share of a file's characters in lines that a set of lines contains; short lines don't count.

    Args:
        text: the file.
        known: stripped lines.
    """
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) > SHORT_LINE]
    return sum(len(line) for line in lines if line in known) / max(1, sum(map(len, lines)))


def unseen(training: dict[str, str], held_out: dict[str, str]) -> dict[str, str]:
    """Return the held-out files of which less than a tenth stands, line by line, in the training files too.

    Args:
        training: files that a model was trained on, by their names.
        held_out: others, by their names.
    """
    known = {line.strip() for text in training.values() for line in text.splitlines()}
    return {name: text for name, text in held_out.items() if known_lines(text, known) < FEW}


def fingerprint(texts: dict[str, str]) -> str:
    """Return a hash of names and contents, to tell whether two machines train on the same text."""
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(name.encode() + b"\0" + text.encode() + b"\0")
    return digest.hexdigest()[:16]
