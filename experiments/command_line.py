"""Tables of the options of every command, for docs/reference/command-line.md and docs/reference/commands/."""

import re
from collections import Counter
from collections.abc import Iterator
from enum import EnumType
from inspect import signature
from typing import Any, get_args

import typer

from duat_jax.cli import application
from duat_jax.cli.errors import EXIT_STATUS
from experiments.markdown import Fields, table


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the commands below a command with their names after `duat`."""
    if not hasattr(command, "commands"):
        yield name, command
    for word, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {word}".strip())


def _choices(annotation: object) -> Iterator[str]:
    """Yield the values of enumerations in an annotation."""
    if isinstance(annotation, EnumType):
        yield from (f"`{choice.value}`" for choice in annotation)  # type: ignore[var-annotated]
    for part in get_args(annotation):
        yield from _choices(part)


COMMON = 8
"""An option that at least as many commands have, with the same meaning, is documented once."""


def _rows(command: Any) -> Iterator[tuple[str, str]]:
    """Yield each argument and option with its meaning, its choices and its default."""
    annotations = {name: parameter.annotation for name, parameter in signature(command.callback).parameters.items()}
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name not in annotations:
            continue
        is_option = parameter.opts[0].startswith("--")
        meaning = [re.sub(r"--[a-z-]+", r"`\g<0>`", parameter.help.replace("<", "&lt;"))]
        if choices := ", ".join(_choices(annotations[parameter.name])):
            meaning.append(f"One of {choices}.")
        if parameter.required:
            meaning.append("Required.")
        elif parameter.default is not None and parameter.default is not False:
            meaning.append(f"Default: `{parameter.default}`.")
        yield f"`{parameter.opts[0] if is_option else parameter.name.upper()}`", " ".join(meaning)


def fields(kept: dict[str, Any]) -> Fields:
    """Return a table of options of each command, by the command's name, one of common options, and the exit status.

    Example:
        >>> print(fields({})["lora merge"])
        | option | meaning |
        |---|---|
        | `ADAPTER` | Directory with adapter_config.json and adapter_model.safetensors. Required. |
        | `--output` | New directory for the merged model. Required. |
        | common | `--model` ([meaning](../command-line.md#common-options)) |
    """
    every = {name: list(_rows(command)) for name, command in commands(typer.main.get_command(application))}
    counted = Counter(row for rows in every.values() for row in rows)
    common = [row for row, number in counted.items() if number >= COMMON]
    tables = {}
    for name, rows in every.items():
        own = [row for row in rows if row not in common]
        if shared := ", ".join(row[0] for row in rows if row in common):
            own.append(("common", f"{shared} ([meaning](../command-line.md#common-options))"))
        tables[name] = "\n".join(table(("option", "meaning"), own))
    return tables | {"common options": "\n".join(table(("option", "meaning"), common)), "exit status": EXIT_STATUS}
