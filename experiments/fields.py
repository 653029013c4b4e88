"""Fields of pages: the numbers, sentences and tables that a study or a benchmark gives them, from its kept results."""

from functools import cache
from importlib import import_module

from experiments.findings import study_fields
from experiments.kept_results import ROOT, kept
from experiments.markdown import Fields
from experiments.studies import studies


@cache
def fields_of(name: str) -> Fields:
    """Return the fields of a study, of a benchmark, or of another module here, by its name."""
    if name in studies():
        return study_fields(name)
    folder = "experiments" if (ROOT / "experiments" / f"{name}.py").exists() else "benchmarks"
    fields: Fields = import_module(f"{folder}.{name}").fields(kept(name))
    return fields
