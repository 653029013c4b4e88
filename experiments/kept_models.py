"""Results of a study that are kept model by model, and measured again only where their settings have changed."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.environment import environment


def measure_models(path: Path, settings: Mapping[str, Any], measure: Callable[[str], dict[str, Any]]) -> None:
    """Measure what isn't kept yet, and store it after every model."""
    results = (
        json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"environment": environment(), "models": {}}
    )
    for name, of_model in settings.items():
        asked = json.loads(json.dumps(of_model._asdict()))
        if results["models"].get(name, {}).get("settings") == asked:
            continue
        results["models"][name] = {"settings": asked, **measure(name)}
        path.write_text(json.dumps(results, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
