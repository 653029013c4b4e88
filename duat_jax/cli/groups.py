"""Groups of options that several commands share: a dataclass whose fields are the options."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer


class Fields:
    """The fields of a group that a command takes, in their order, some with a help of their own.

    Args:
        names: the names of the fields.
        hidden: whether the help leaves them out.
        helps: the help of a field that isn't the group's.
    """

    def __init__(self, *names: str, hidden: bool = False, **helps: str) -> None:
        self.names, self.hidden, self.helps = names, hidden, helps


class OldName(NamedTuple):
    """The old name of an option.

    Args:
        option: the old name, such as `--versus`.
    """

    option: str


class Options:
    """The options of a command, one by one, and how its function takes them.

    Args:
        question: the function; a parameter that is annotated by a dataclass is a group of options.
    """

    def __init__(self, question: Callable[..., Any]) -> None:
        self.parameters: list[Parameter] = []
        self._groups: dict[str, tuple[Any, list[str]]] = {}
        self._renamed: dict[str, str] = {}
        for parameter in signature(question, eval_str=True).parameters.values():
            kind, chosen = _unwrapped(parameter.annotation)
            if is_dataclass(kind):
                group = list(_fields(kind, *(each for each in chosen if isinstance(each, Fields))))
                self._groups[parameter.name] = kind, [field.name for field in group]
            else:
                group = [parameter]
            for option in group:
                self._add(option)

    def _add(self, option: Parameter) -> None:
        """Add one option, and a hidden one for its old name."""
        self.parameters.append(option.replace(kind=Parameter.KEYWORD_ONLY))
        kind, metadata = _unwrapped(option.annotation)
        for old in (each.option for each in metadata if isinstance(each, OldName)):
            name = old.strip("-").replace("-", "_")
            self._renamed[name] = option.name
            hidden = typer.Option(old, hidden=True, help=f"The old name of {flag(option.name)}.")
            self.parameters.append(_parameter(name, kind, [hidden], None))

    def kinds(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the types of those of some options that the help shows, by name."""
        taken = {each.name: _unwrapped(each.annotation) for each in self.parameters}
        return {name: taken[name][0] for name in names if name in taken and not taken[name][1][0].hidden}

    def current(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by the options' names, and say on standard error which were given by an old name."""
        values = {name: value for name, value in given.items() if name not in self._renamed}
        for old, new in self._renamed.items():
            if given[old] is not None and given[old] != []:
                say_renamed(flag(old), flag(new))
                values[new] = given[old]
        return values

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the function."""
        groups = {
            name: group(**{field: values[field] for field in names}) for name, (group, names) in self._groups.items()
        }
        grouped = {field for _, names in self._groups.values() for field in names}
        return groups | {name: value for name, value in values.items() if name not in grouped}


def say_renamed(old: str, new: str) -> None:
    """Say on standard error that a command or an option has another name."""
    typer.echo(f"{old} is called {new} now; the old name goes with the next release", err=True)


def flag(name: str) -> str:
    """Return the option of a parameter."""
    return f"--{name.replace('_', '-')}"


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """Return a type and what an annotation says beside it."""
    if get_origin(annotation) is not Annotated:
        return annotation, []
    kind, *metadata = get_args(annotation)
    return kind, metadata


def _fields(group: Any, chosen: Fields | None = None) -> Iterator[Parameter]:
    """Yield the chosen fields of a group as parameters; all of them without a choice."""
    known = {field.name: field for field in fields(group)}
    chosen = chosen or Fields(*known)
    for name in chosen.names:
        kind, metadata = _unwrapped(known[name].type)
        option = copy(next(each for each in metadata if not isinstance(each, OldName)))
        option.help, option.hidden = chosen.helps.get(name, option.help), chosen.hidden or option.hidden
        others = [each for each in metadata if isinstance(each, OldName)]
        default = Parameter.empty if known[name].default is MISSING else known[name].default
        yield _parameter(name, kind, [option, *others], default)


def _parameter(name: str, kind: Any, metadata: list[Any], default: Any) -> Parameter:
    """Return a parameter that is given by its name."""
    annotation = Annotated[(kind, *metadata)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
