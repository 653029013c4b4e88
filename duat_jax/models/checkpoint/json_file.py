"""JSON files of a checkpoint."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.limits import CONFIGURATION, check_limit
from duat_jax.models.checkpoint.problems import SHOWN_PROBLEMS, quoted


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        doubled = [quoted(name) for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        more = f" and {len(doubled) - SHOWN_PROBLEMS} more" if len(doubled) > SHOWN_PROBLEMS else ""
        raise ValueError(f"{', '.join(doubled[:SHOWN_PROBLEMS])}{more} is given twice")
    return values


def read_json(file: Path, most: int = CONFIGURATION) -> Any:
    """Parse a JSON file."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise BadCheckpoint(f"{file}: can't be read ({error})") from None
    check_limit(file, "bytes", size, most)
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{file}: not JSON ({error}); copy it again") from None
