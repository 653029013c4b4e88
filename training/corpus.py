"""The training text: the sources of Python's own standard library, split into training and held-out files."""

import hashlib
import sysconfig
from pathlib import Path

HELD_OUT_ONE_IN = 25


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


def fingerprint(texts: dict[str, str]) -> str:
    """Return a hash of names and contents, to tell whether two machines train on the same text."""
    digest = hashlib.sha256()
    for name, text in texts.items():
        digest.update(name.encode() + b"\0" + text.encode() + b"\0")
    return digest.hexdigest()[:16]
