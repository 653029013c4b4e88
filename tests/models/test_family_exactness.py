"""Every question is exact on every family: the table and the collapse part by part, the closed form, every layer."""

from functools import partial

import jax.numpy as jnp
import pytest
from cases import Case
from golden_checkpoints import CHECKPOINTS, agree, golden
from held_gradient import collapsed_parts
from helpers import close, weights_of
from lies import answers, collapsed_answers, disagreement, how

import duat_jax as duat
from duat_jax.forms.affine_form import GATE_RULES, KINDS, collapsed_contributions
from duat_jax.forms.completeness import HOLDS
from duat_jax.transform.recording import record_kinds

QUICK = ("mixtral", "bert-masked")
"""Rotary positions, grouped heads, gates and experts; a head's own term and its norm."""
ASKED = [name for name in CHECKPOINTS if "-" not in name or name.endswith(("-classes", "-masked"))]
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in ASKED]


def case_of(model, given):
    """Return a read-out of everything that a model returns."""
    x = model.embed(given)
    readout = weights_of(model.output(x).shape)
    return Case(lambda x: jnp.vdot(readout, model.output(x)), x)


def require_exact(case, name):
    """Every part is the reference's, and they sum."""
    # A factor with a limit bends: its gate carries.
    collapsed = partial(collapsed_answers, share=0.0 if name.startswith("gpt_oss") else 0.5)
    for answer in (answers, collapsed):
        with how(name):
            found = answer(case)
        assert {label: off for label, off in disagreement(found.parts, found.reference).items() if off > 1} == {}
        assert found.completeness.verdict == HOLDS


@pytest.mark.parametrize("name", EACH)
def test_table_and_collapse_are_the_reference_part_by_part(name):
    model, given, _ = golden(name)
    require_exact(case_of(model, given), name)


@pytest.mark.parametrize("name", EACH)
def test_the_closed_form_is_the_forward_pass_at_every_layer(name):
    model, given, _ = golden(name)
    form = duat.unroll(model, given)
    assert form.completeness().verdict == HOLDS
    for layer in range(1, model.config.layers + 1):
        assert form.layer_completeness(layer).verdict == HOLDS


@pytest.mark.slow
@pytest.mark.parametrize("gate_rule", GATE_RULES)
@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma2"])
def test_every_gauge_of_a_gated_term_is_exact(name, gate_rule):
    model, given, _ = golden(name)
    case = case_of(model, given)
    found = collapsed_contributions(record_kinds(case.fn, case.x, KINDS), gate_rule=gate_rule)
    reference = collapsed_parts(case.fn, case.x, share=GATE_RULES[gate_rule])
    assert found.completeness.verdict == HOLDS
    close(found.input, reference.parts["input[0]"], layers=9)


LONG = ("llama", "gemma2", "mistral-window", "modernbert", "gpt_oss", "vit")
"""Grouped heads; caps and windows; a window of every layer; windows both ways; sinks; no causality."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "gemma2")) for name in LONG])
def test_without_a_stored_pattern_everything_is_the_same(name, monkeypatch):
    model, given, outputs = golden(name)
    attention = model.stack.blocks[0].attention
    stored = duat.record(model.output)(model.embed(given)).dynamics.held
    monkeypatch.setattr("duat_jax.nn.attention.LONGEST_STORED", 1)
    agree(model(given), outputs["float64"])
    held = duat.record(model.output)(model.embed(given)).dynamics.held
    assert not any("pattern" in str(key) for key in held)
    again = attention.pattern(*(held[f"layers.0.attention.{part}"] for part in ("queries", "keys")))
    close(again, stored["layers.0.attention.pattern"])
    require_exact(case_of(model, given), name)
