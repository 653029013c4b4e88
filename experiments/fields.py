"""Fields of pages: the numbers, sentences and tables that a study or a benchmark gives them, from its kept results."""

from functools import cache
from importlib import import_module

from experiments.findings import study_fields
from experiments.kept_results import ROOT, kept
from experiments.markdown import Fields
from experiments.studies import converted, module_of, studies


@cache
def fields_of(name: str) -> Fields:
    """Return the fields of a study, of a benchmark, or of another module here, by its name."""
    if name in converted():
        return study_fields(name)
    if name in studies():  # its fields aren't those of a record yet
        return dict(module_of(name).fields(kept(name)))
    folder = "experiments" if (ROOT / "experiments" / f"{name}.py").exists() else "benchmarks"
    fields: Fields = import_module(f"{folder}.{name}").fields(kept(name))
    return fields
