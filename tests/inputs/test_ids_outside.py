"""Token ids outside of a model's vocabulary: every public function that takes some refuses them."""

import inspect
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import duat_jax as duat
from duat_jax import circuits, edits, evaluation, in_context, lora, pruning
from duat_jax.models.ids import require_ids

TAKEN = re.compile(r"OneInput|Int\[.*(tokens|length)|\bPrompt$|\bTask$|FewShotQuestion")
"""The annotations of parameters that hold token ids."""
IDS = np.arange(40, dtype=np.int32).reshape(2, 20)
TEXT, SETTINGS = [5, 6, 7], lora.TrainingSettings(steps=1, batch=2)
PRUNER = pruning.Pruner("random", "none", 0.5)
UNREAD = {"evaluation.windows tokens", "in_context.exchange question", "in_context.exchange reference"}
"""They have no model, and read nothing."""


@pytest.fixture(scope="module")
def model():
    return duat.load()


def few_shot(ids):
    return in_context.FewShotQuestion(ids, np.arange(20) < 10, (3,), "")


def task(ids):
    return in_context.Task(jnp.asarray(ids), jnp.arange(20) < 10, jnp.array([19]), jnp.array([3]))


def prompt(ids):
    return circuits.Prompt(jnp.asarray(IDS), jnp.asarray(ids), jnp.array([1, 2]), jnp.array([3, 4]))


def removal(model, ids):
    return pruning.measure_removal(model, pruning.without(model, pruning.Terms(neurons={1: [3]})), jnp.asarray(ids))


CALLS = {
    "attribute inputs": lambda m, ids: duat.attribute(m, ids[1], IDS[0]),
    "attribute reference": lambda m, ids: duat.attribute(m, IDS[0], ids[1]),
    "contrast inputs": lambda m, ids: duat.contrast(m, ids[1], IDS[0]),
    "contrast reference": lambda m, ids: duat.contrast(m, IDS[0], ids[1]),
    "diff inputs": lambda m, ids: duat.diff(m, ids[1], reference=m),
    "explain inputs": lambda m, ids: duat.explain(m, ids[1]),
    "explain_attention inputs": lambda m, ids: duat.explain_attention(m, ids[1], layer=0, head=0, key=1),
    "graph inputs": lambda m, ids: duat.graph(m, ids[1]),
    "intervene inputs": lambda m, ids: duat.intervene(m, ids[1], edits.Edit(edits.Neurons(0, [1]), 0)),
    "lora.lora_change inputs": lambda m, ids: lora.lora_change(m, lora.new_adapters(m), ids[1]),
    "lora.moved_parameters inputs": lambda m, ids: lora.moved_parameters(m, lora.new_adapters(m), ids[1]),
    "lora.train ids": lambda m, ids: lora.train(m, lora.new_adapters(m), ids, SETTINGS),
    "circuits.measure prompts": lambda m, ids: circuits.measure(m, prompt(ids), circuits.METHODS),
    "evaluation.mean_loss ids": lambda m, ids: evaluation.mean_loss(m, ids),
    "evaluation.token_losses ids": lambda m, ids: evaluation.token_losses(m, jnp.asarray(ids)),
    "in_context.ledger task": lambda m, ids: in_context.ledger(m, task(ids[1])),
    "in_context.replies questions": lambda m, ids: in_context.replies(m, [few_shot(ids[1])], [3, 4]),
    "in_context.measure_reach ids": lambda m, ids: in_context.measure_reach(m, jnp.asarray(ids[1])),
    "pruning.prune ids": lambda m, ids: pruning.prune(m, ids, 0.5),
    "pruning.prune_layers ids": lambda m, ids: pruning.prune_layers(m, ids, 0.5, method="random", compensation="none"),
    "pruning.losses_of ids": lambda m, ids: pruning.losses_of(m, [PRUNER], ids, IDS),
    "pruning.losses_of held_out": lambda m, ids: pruning.losses_of(m, [PRUNER], IDS, ids),
    "pruning.measure_removal ids": removal,
}
AGAINST = {"attribute", "contrast", "diff", "explain", "graph", "intervene", "lora.lora_change"}
"""Functions with another text of an encoder; this model is none, and refuses any."""
OTHERS = {
    "the model": lambda m, ids: m(jnp.asarray(ids)),
    "its embeddings": lambda m, ids: m.embed(jnp.asarray(ids)),
    "padded texts": lambda m, ids: m(jnp.asarray(ids), jnp.asarray(IDS < 39)),
    "answers": lambda m, ids: in_context.replies(m, [few_shot(IDS[1])], [3, int(ids[1, 7])]),
    "a copied text": lambda m, ids: in_context.measure_copying(m, ids[1].tolist(), 4),
}


def public_parameters():
    for name in dir(duat):
        value = getattr(duat, name)
        inside = vars(value).items() if inspect.ismodule(value) else [("", value)]
        for key, each in inside:
            if inspect.isfunction(each) and not key.startswith("_"):
                called = f"{name}.{key}".rstrip(".")
                yield from ((called, parameter) for parameter in inspect.signature(each).parameters.values())


def test_every_parameter_of_token_ids_has_a_case():
    found = {
        f"{called} {parameter.name}"
        for called, parameter in public_parameters()
        if TAKEN.search(inspect.formatannotation(parameter.annotation).strip("'\""))
    }
    assert found == {*CALLS} | UNREAD | {f"{name} against" for name in AGAINST}


@pytest.mark.parametrize("outside", [4096, -1])
@pytest.mark.parametrize("call", CALLS | OTHERS)
def test_an_id_outside_the_vocabulary_is_refused(model, call, outside):
    ids = IDS.copy()
    ids[1, 7] = outside
    with pytest.raises(duat.InvalidInput, match=rf"token id {outside}, but.*0 to 4095|token ids from 0 to 4095"):
        (CALLS | OTHERS)[call](model, ids)


def test_ids_that_are_no_whole_numbers_are_refused(model):
    with pytest.raises(duat.InvalidInput, match="the text: token ids must be whole numbers, not float64"):
        require_ids(model.config, {"the text": IDS.astype(np.float64)})


@pytest.mark.parametrize("ids", [IDS[:0], IDS[:, :1]], ids=["no text", "texts of one token"])
def test_texts_in_which_nothing_is_predicted_are_refused(model, ids):
    with pytest.raises(duat.InvalidInput, match="give at least one text of two tokens"):
        evaluation.mean_loss(model, ids)


def test_padding_may_be_any_number(model):
    ids, mask = IDS.copy(), np.arange(20) < [[20], [12]]
    ids[~mask] = -100
    expected = model(jnp.asarray(np.where(mask, IDS, 0)), jnp.asarray(mask))
    chex.assert_trees_all_equal(model(jnp.asarray(ids), jnp.asarray(mask))[mask], expected[mask])


def test_ids_in_a_traced_program_are_no_concern(model):
    losses = jax.jit(evaluation.token_losses)(model, jnp.asarray(IDS))
    chex.assert_trees_all_close(losses, evaluation.token_losses(model, jnp.asarray(IDS)), rtol=1e-5)
