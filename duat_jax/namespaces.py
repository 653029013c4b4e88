"""The names of a package that is a namespace of public functions."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from duat_jax.deprecation import new_name


def public_names(namespace: Mapping[str, Any]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a package: the names that its `__init__.py` imports, without its modules.

    Example:
        >>> import duat_jax as duat
        >>> dir(duat.operators)[-3:]
        ['frobenius', 'singular_triplets', 'token_norms']
    """

    def is_public(name: str, value: Any) -> bool:
        if isinstance(value, ModuleType):  # of another package where it is listed
            return value.__name__.startswith("duat_jax.") and value.__name__ != f"{namespace['__name__']}.{name}"
        return not name.startswith("_")

    return lambda: sorted(name for name, value in namespace.items() if is_public(name, value))


def old_names(namespace: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a namespace in which names have changed."""

    def read(name: str) -> Any:
        return namespace[new_name(f"{namespace['__name__'].partition('.')[2]}.{name}").rpartition(".")[2]]

    return read
