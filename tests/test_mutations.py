"""The mistakes of `tests/mutation.py` still fit the sources, and the tests that must see them are fast ones."""

import ast
import re

import pytest

from tests.mutation import ROOT, mutations
from tests.slow_cases import listed

MUTATIONS = mutations()


def test_there_are_mistakes_in_every_part_of_the_house():
    rooms = {mutation.file.split("/")[1] for mutation in MUTATIONS}
    assert len(MUTATIONS) >= 30 and len(rooms) >= 20
    assert len({mutation.mistake for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.mistake)
def test_a_mistake_can_be_made_once_and_has_a_fast_test_that_sees_it(mutation):
    made = mutation.made()
    ast.parse(made)
    assert made != (ROOT / mutation.file).read_text(encoding="utf-8") and mutation.tests
    for test in mutation.tests:
        file, name = re.fullmatch(r"(\S+\.py)::(\w+)(?:\[.*\])?", test).groups()
        assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")
        assert test not in listed()
