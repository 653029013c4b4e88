"""Where parts miss a value, the value in double precision tells whose fault it is: the parts' or the forward pass'."""

import jax
import numpy as np
import pytest
from accounts import account
from flax import nnx

import duat_jax as duat
from duat_jax.cli.errors import DoesNotHold, require_holding
from duat_jax.forms.completeness import REMEDY
from duat_jax.in_context import compute as context
from duat_jax.interpret.attention import compute as attends
from duat_jax.interpret.contrast import compute as contrast
from duat_jax.interpret.explain import compute as run
from duat_jax.interpret.intervene import compute as intervention
from duat_jax.lora import change as lora
from duat_jax.lora import new_adapters
from duat_jax.lora.change import lora_change
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig

IDS, OTHER, TOKEN, LARGE = [1, 2, 3], [1, 4, 3], 5, 2.0**20


def make_model(large=LARGE):
    """Return a model in which two features of a head hold the same large number, and the next map subtracts them."""
    block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=4)
    head = Head(kind="next token", outputs=11, tied=True)
    config = duat.models.Config(family="gpt2", blocks=(block, block), vocab=11, positions=8, head=head)
    model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
    model.embedding.token[...] *= 30
    for layer in model.stack.blocks:
        values, output = layer.attention.value.kernel, layer.attention.output.kernel
        # Another feature stands between the two, so that it is lost in their sum in whatever order a processor adds.
        values[...] = values[...].at[:, 2].set(0).at[4].set(0).at[4, np.array([0, 2])].set(large)
        output[...] = output[...].at[2].set(-output[0])
    return model


def change(model):
    adapters = new_adapters(model, ["c_attn"], rank=2)
    return lora_change(model, {name: one._replace(up=one.up + 1) for name, one in adapters.items()}, IDS, TOKEN)


ASK = {
    "explain": (run, lambda model: duat.explain(model, IDS, TOKEN)),
    "contrast": (contrast, lambda model: duat.contrast(model, IDS, OTHER, TOKEN)),
    "intervene": (intervention, lambda model: duat.intervene(model, IDS, duat.edits.Heads(0, 1).set(0), TOKEN)),
    "attends": (attends, lambda model: duat.explain_attention(model, IDS, layer=1, head=0, key=1)),
    "lora": (lora, change),
    "ledger": (context, account),
}
"""Questions, and where each is split."""


@pytest.fixture(autouse=True)
def single_precision():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def no_double_precision(_):
    raise AssertionError("computed in double precision though the verdict holds")


def nearer_to_the_sum(completeness):
    exact = completeness.in_float64
    return exact is not None and abs(float(completeness.sum) - exact) < abs(float(completeness.value) - exact)


@pytest.mark.parametrize("name", ASK)
def test_what_holds_is_computed_once(name, monkeypatch):
    monkeypatch.setattr("duat_jax.forms.completeness.in_double_precision", no_double_precision)
    completeness = ASK[name][1](make_model(large=1.0)).completeness
    assert completeness.verdict == "holds" and completeness.note is None


@pytest.mark.parametrize("name", ASK)
def test_a_forward_pass_that_cancels_large_numbers_is_named(name):
    # Value and sum are both rounded, and of which large number the value suffers more depends on the processor.
    answers = (ASK[name][1](make_model(large)) for large in 2.0 ** np.arange(18, 24, 0.1))
    found = next(each for each in answers if nearer_to_the_sum(each.completeness))
    completeness = found.completeness
    assert completeness.verdict == "fails"
    assert "ill-conditioned in float32" in completeness.note
    assert completeness.note in " ".join(str(found).split())
    told = found.as_dict() if name == "ledger" else found.as_dict("a model")
    assert told["completeness"]["note"] == completeness.note
    with pytest.raises(DoesNotHold, match="ill-conditioned"):
        require_holding("the table", completeness)


@pytest.mark.parametrize("name", ASK)
def test_a_wrong_part_is_not_the_forward_passs_fault(name, monkeypatch):
    where, ask = ASK[name]
    split = {"lora": "_closure", "attends": "split_scores_at"}.get(name, "_split")
    right = getattr(where, split)

    def more(found):
        if name == "lora":
            return found._replace(sum=found.sum + 1, error=found.error + 1)
        return found._replace(
            completeness=found.completeness._replace(sum=found.completeness.sum + 1, error=found.completeness.error + 1)
        )

    def wrong(*given, **named):
        found = right(*given, **named)
        if name == "explain":
            return [parts._replace(table=more(parts.table)) for parts in found[0]], found[1]
        if name == "ledger":
            return found._replace(parameters=more(found.parameters))
        return found._replace(score=more(found.score)) if name == "attends" else more(found)

    monkeypatch.setattr(where, split, wrong)
    completeness = ask(make_model(large=1.0)).completeness
    assert completeness.verdict == "fails"
    assert completeness.in_float64 == pytest.approx(float(completeness.value), abs=1e-3)
    assert completeness.note == REMEDY
