"""The studies, by name."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

from experiments.kept_results import ROOT
from experiments.study import Study


def name_of(file: Path) -> str:
    """Return the name of a study: of the folder's `run.py` its folder, of another module `folder_module`.

    Example:
        >>> name_of(Path("experiments/pruning/run.py")), name_of(Path("experiments/pruning/layers.py"))
        ('pruning', 'pruning_layers')
    """
    return file.parent.name if file.stem == "run" else f"{file.parent.name}_{file.stem}"


@cache
def studies() -> dict[str, str]:
    """Return the question of every study by its name: the first line of a module that names a `STUDY`."""
    questions = {}
    for file in sorted((ROOT / "experiments").glob("*/*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        if any(isinstance(target, ast.Name) and target.id == "STUDY" for target in targets):
            questions[name_of(file)] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return questions


def study_of(name: str) -> Study:
    """Return a study by its name."""
    folder, _, part = name.rpartition("_")
    whole = (ROOT / "experiments" / name / "run.py").exists()
    study: Study = import_module(f"experiments.{name}.run" if whole else f"experiments.{folder}.{part}").STUDY
    return study
