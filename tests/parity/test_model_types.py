"""Some model types of transformers, others with every commit, have the results that are kept of them."""

import subprocess

import jax
import pytest

from tests.parity.model_types import kept, main, tried
from tests.shown_pages import ROOT

AT_ONCE, LONGEST = 2, 20
"""How many are tried, and the most seconds that one took."""
KEPT = {name: row for name, row in sorted(kept().items()) if row["step"] == "done" and row["seconds"] < LONGEST}
COMMITS = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
FIRST = int(COMMITS or 0) // 3 * AT_ONCE  # CI compares with PyTorch with every third commit
TURN = [list(KEPT)[(FIRST + k) % len(KEPT)] for k in range(AT_ONCE)]
FIELDS = ("class", "input", "step", "secant", "marked", "terms", "not attributed")


@pytest.mark.parametrize("name", TURN)
def test_a_model_type_has_the_kept_result(name):
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        row = tried(name)
    fields = [field for field in FIELDS if field in KEPT[name]]
    assert {field: row.get(field) for field in fields} == {field: KEPT[name][field] for field in fields}


def test_a_name_that_transformers_does_not_have_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["model_types", "--types", "llama", "no_such_model"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.splitlines()[-1].endswith("has no model type no_such_model")
