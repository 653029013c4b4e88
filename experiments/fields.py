"""Fields of pages: the numbers, sentences and tables that a study or a benchmark gives them, from its kept results."""

from functools import cache

from experiments.findings import study_fields
from experiments.kept_results import kept
from experiments.markdown import Fields
from experiments.studies import converted, module_of


@cache
def fields_of(study: str) -> Fields:
    """Return the fields of a study or benchmark by its name."""
    return study_fields(study) if study in converted() else module_of(study).fields(kept(study))
