"""Every question is exact on every family: the table and the collapse part by part, the closed form, every layer."""

import jax.numpy as jnp
import pytest
from cases import GOLDEN, Case
from helpers import close, weights_of
from lies import answers, collapsed_answers, disagreement, how
from test_parity import CHECKPOINTS, agree, golden

import duat_jax as duat
from duat_jax.forms.completeness import HOLDS
from duat_jax.nn import CARRIERS

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
    for answer in (answers, collapsed_answers):
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
@pytest.mark.parametrize("carries", CARRIERS)
@pytest.mark.parametrize("name", ["llama", "mixtral", "gemma2"])
def test_every_gauge_of_a_gated_term_is_exact(name, carries):
    model = duat.load(GOLDEN / name, dtype=jnp.float64, carries=carries)
    assert {block.carries for block in model.config.blocks} == {carries}
    _, given, outputs = golden(name)
    assert jnp.allclose(model(given), outputs["float64"], rtol=0, atol=1e-10)
    require_exact(case_of(model, given), name)


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
