"""The fields of `config.json` that the reference implementation reads, derived from its source.

Run as a program it writes the table of the package: `python -m tests.parity.fields`, with the reference installed.
"""

import ast
import json
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from duat_jax.models.checkpoint.reference_fields import FILE

from .families import FAMILIES

SHARED = """
    activations cache_utils configuration_utils integrations.heterogeneity.configuration_utils integrations.moe
    masking_utils modeling_layers modeling_rope_utils modeling_utils models.auto.auto_factory pytorch_utils
    quantizers.auto
"""
"""The modules that models of several families call."""

EVERY = {"PreTrainedModel", "PreTrainedConfig", "_BaseAutoModelClass"}
"""What every checkpoint goes through: the base classes of a model and a configuration, and the choice of both."""

CONFIG, PARAMETERS = ("config",), ("rope_parameters", "rope_parameters_dict", "rope_scaling")
"""The names of configurations and of their nested objects in the source."""

NO_FIELDS = {"get", "pop", "items", "keys", "setdefault", "copy", "update", "setter", "validate"}
"""Other attributes of such objects."""

Definitions = dict[str, ast.AST]
Fields = dict[str, Any]


def _root() -> Path:
    spec = find_spec("transformers")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _definitions(path: Path) -> Definitions:
    """Return the classes, functions and constants at the top of a module by name."""
    found: Definitions = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
    return found


@cache
def _shared() -> Definitions:
    paths = (_root() / f"{module.replace('.', '/')}.py" for module in SHARED.split())
    return {name: node for path in paths for name, node in _definitions(path).items()}


def _reached(start: set[str], known: Definitions, stop: set[str]) -> list[ast.AST]:
    """Return some definitions and all that they name, directly or through others."""
    reached: Definitions = {}
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached.keys() | stop:
            reached[name] = known[name]
            waiting += [node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name)]
    return list(reached.values())


def _literal(node: ast.AST | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _accesses(tree: ast.AST, objects: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes and keys that are read of objects with some names, and the defaults that stand there."""

    def named(node: ast.AST) -> bool:
        return (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) in objects

    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=place, attr=name, ctx=ast.Load()) if named(place):
                yield name, None
            case ast.Subscript(value=place, slice=ast.Constant(value=str(name))) if named(place):
                yield name, None
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"), args=[place, ast.Constant(value=str(name)), *default]
            ) if named(place):
                yield name, _literal(default[0]) if default else None
            case ast.Call(
                func=ast.Attribute(value=place, attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value=str(name)), *default],
            ) if named(place):
                yield name, _literal(default[0]) if default else None


def _declared(config: ast.ClassDef) -> Fields:
    """Return the fields that a class of configurations declares, and their defaults."""
    fields: Fields = {}
    for node in config.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = node.value
            if isinstance(default, ast.Call):  # interval(min=0.0, max=1.0)(default=0.02)
                default = next((word.value for word in default.keywords if word.arg == "default"), None)
            if "ClassVar" not in ast.unparse(node.annotation):
                fields[node.target.id] = _literal(default)
    return fields


def _attribute(config: ast.ClassDef, name: str) -> Any:
    """Return a constant of a class."""
    for node in config.body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) == name for target in node.targets):
            return _literal(node.value)
    return None


def _table(reached: list[ast.AST], configs: list[ast.ClassDef], *objects: str) -> dict[str, Any]:
    """Return the fields that are read, with the values that change nothing, and those that are only declared."""
    declared: Fields = {}
    names: dict[str, str] = {}
    for config in configs:
        declared |= _declared(config)
        names |= _attribute(config, "attribute_map") or {}
    read: Fields = {}
    places = [(node, (*CONFIG, *PARAMETERS)) for node in reached] + [(node, ("self", *objects)) for node in configs]
    for node, named in places:
        for name, default in _accesses(node, named):
            read[name] = read.get(name) if default is None else default
    read |= {other: None for pair in names.items() for one, other in (pair, pair[::-1]) if one in read}
    methods = [node for tree in (*configs, *_bases()) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    set_too = {node.name for node in methods if any(ast.unparse(d).endswith(".setter") for d in node.decorator_list)}
    no_fields = {node.name for node in methods} - set_too - declared.keys() | NO_FIELDS
    read = {
        name: declared.get(name, read[name]) for name in sorted(read.keys() - no_fields) if not name.startswith("__")
    }
    return {"read": read, "unread": sorted((declared.keys() | names.keys()) - read.keys() - no_fields)}


def _bases() -> list[ast.AST]:
    names = ("PreTrainedConfig", "RotaryEmbeddingConfigMixin", "HeterogeneousConfigMixin")
    return [_shared()[name] for name in names]


def _generation() -> list[str]:
    """Return the fields that say how texts are sampled, which the reference takes out of a `config.json`."""
    tree = ast.parse((_root() / "generation" / "configuration_utils.py").read_text(encoding="utf-8"))
    config = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GenerationConfig")
    return [name for name, _ in _accesses(config, ("kwargs",)) if name not in NO_FIELDS and not name.startswith("_")]


def derive() -> dict[str, Any]:
    """Return the table: of every model and of each family the fields that are read, and those that aren't."""
    base = [node for node in _bases() if isinstance(node, ast.ClassDef)]
    every = _table(_reached(EVERY, _shared(), set()), base)
    every["unread"] = sorted({*every["unread"], *_generation()} - every["read"].keys())
    families: dict[str, Any] = {}
    for family, case in FAMILIES.items():
        paths = [
            path
            for path in sorted((_root() / "models").glob("*/configuration_*.py"))
            if f'model_type = "{family}"' in path.read_text(encoding="utf-8")
        ]
        assert len(paths) == 1, (family, paths)
        [path] = paths
        configs = {name: node for name, node in _definitions(path).items() if isinstance(node, ast.ClassDef)}
        config = next(node for node in configs.values() if _attribute(node, "model_type") == family)
        modelling = _definitions(path.with_name(path.name.replace("configuration_", "modeling_")))
        reached = _reached(set(case.heads.values()), _shared() | modelling, EVERY | {"PreTrainedConfig"})
        families[family] = table = _table(reached, [config], "kwargs")
        table["read"] = {name: value for name, value in table["read"].items() if name not in every["read"]}
        table["unread"] = sorted(set(table["unread"]) - every["read"].keys() - set(every["unread"]))
    return {"transformers": version("transformers"), "every model": every, "families": families}


def written() -> str:
    """Return the table as the package keeps it."""
    return json.dumps(derive(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
