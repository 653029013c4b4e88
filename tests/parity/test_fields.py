"""The package's table of the fields that the reference reads is derived from the installed reference, and complete."""

import json
from copy import deepcopy

import pytest
import torch
import transformers

from duat_jax.models.checkpoint.reference_fields import FILE, reference_of

from .cases import make_case
from .families import FAMILIES
from .fields import written

NO_FIELDS = {"rope_scaling", "use_return_dict", "keys_to_ignore_at_inference", "has_no_defaults_at_init"}
"""Attributes that are properties of other fields or constants of a class."""


def test_the_table_is_that_of_the_installed_reference():
    """Where this fails, run `python -m tests.parity.fields` and read what changed."""
    assert FILE.read_text(encoding="utf-8") == written()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_that_a_forward_pass_reads_is_in_the_table(family, monkeypatch):
    for head, architecture in FAMILIES[family].heads.items():
        settings = deepcopy(make_case(family, {}, head).settings)  # the reference writes into nested ones
        config = transformers.AutoConfig.for_model(**settings, attn_implementation="eager")
        fields, read = set(json.loads(config.to_json_string(use_diff=False))), set()

        usual = type(config).__getattribute__

        def recorded(self, name, *, read=read, usual=usual):
            read.add(name)
            return usual(self, name)

        monkeypatch.setattr(type(config), "__getattribute__", recorded)
        model = getattr(transformers, architecture)(config).eval()
        given = (
            {"pixel_values": torch.zeros(1, 3, *[settings["image_size"]] * 2)}
            if family == "vit"
            else {"input_ids": torch.tensor([[5, 6, 7]])}
        )
        model(**given)
        monkeypatch.undo()
        reference = reference_of(family)
        assert read & fields - reference.read.keys() - reference.unread - NO_FIELDS == set(), (family, head)
