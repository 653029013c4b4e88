"""How the API pages read the code: an `Example:` is code that runs, and all classes have their parameters."""

from typing import Any

from griffe import Class, Extension, Function, Object, Parameter, ParameterKind, Parameters


class House(Extension):
    """This project's docstrings, named tuples and records, put as griffe expects them."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Name the section of examples as Google's style does.

        Args:
            obj: anything that may have a docstring.
            kwargs: what else is said of it.
        """
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Give a named tuple, a record and a class with `__new__` their constructor.

        Args:
            cls: any class.
            kwargs: what else is said of it.
        """
        new = cls.members.get("__new__")
        if isinstance(new, Function) and "__init__" not in cls.members:
            cls.set_member("__init__", Function("__init__", parent=cls, parameters=new.parameters))
        if any(str(base).endswith(("NamedTuple", "Record", "Struct")) for base in cls.bases):
            kind = ParameterKind.positional_or_keyword
            fields = [
                Parameter(name, annotation=field.annotation, kind=kind, default=field.value)
                for name, field in cls.attributes.items()
                if field.annotation is not None and "property" not in field.labels and name != "VERSION"
            ]
            constructor = Function("__init__", parent=cls, parameters=Parameters(Parameter("self", kind=kind), *fields))
            cls.set_member("__init__", constructor)
