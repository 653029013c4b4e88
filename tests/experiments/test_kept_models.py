"""What is kept of a model isn't measured again unless its settings have changed."""

import json
from typing import NamedTuple

from experiments.kept_models import measure_models


class Settings(NamedTuple):
    """Settings of a model."""

    prompts: int
    tasks: tuple[str, ...] = ("one", "two")


def test_only_what_isnt_kept_with_its_settings_is_measured(tmp_path):
    path, asked = tmp_path / "results.json", []

    def measure(name):
        asked.append(name)
        return {"found": len(asked)}

    measure_models(path, {"a": Settings(3), "b": Settings(4)}, measure)
    measure_models(path, {"a": Settings(3), "b": Settings(5)}, measure)
    assert asked == ["a", "b", "b"]
    models = json.loads(path.read_text())["models"]
    assert models["a"]["found"] == 1 and models["b"]["found"] == 3
    assert models["b"]["settings"] == {"prompts": 5, "tasks": ["one", "two"]}
