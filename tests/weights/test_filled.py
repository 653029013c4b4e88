"""A pruned model beside the one that it was made from: the same function in the larger shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.pruning.checkpoint import save_pruned
from duat_jax.pruning.layers import remove_layers
from duat_jax.pruning.resizing import resized, with_biases
from duat_jax.weights.filled import filled, is_pruned

TEXT = "for i in range(10"
IDS = np.arange(40, dtype=np.int32).reshape(2, 20)


def loss_of(model, ids):
    logs = jax.nn.log_softmax(model(jnp.asarray(ids))[:-1])
    return -float(np.mean([logs[i, token] for i, token in enumerate(ids[1:])]))


def without_neurons(model):
    draw = np.random.default_rng(0)
    return resized(model, {layer: draw.random(model.config.blocks[0].neurons) < 0.5 for layer in (0, 3)})


PRUNED = {
    "neurons": without_neurons,
    "neurons, with biases": lambda model: with_biases(without_neurons(model)),
    "layers": lambda model: remove_layers(model, IDS, [2, 3], compensation="none"),
    "layers, compensated": lambda model: remove_layers(model, IDS, [1, 4], compensation="refit"),
    "both": lambda model: remove_layers(without_neurons(model), IDS, [2], compensation="mean"),
    "rounded": lambda model: jax.tree.map(
        lambda leaf: leaf.astype("float16").astype("float32"), remove_layers(without_neurons(model), IDS, [2])
    ),
}


@pytest.mark.parametrize("how", PRUNED)
def test_the_parts_of_a_pruned_model_sum(how):
    model = duat.load()
    tokenizer = model.tokenizer
    after = PRUNED[how](model)
    ids = tokenizer.encode(TEXT).ids
    found = duat.diff(after, ids, reference=model, top=2, tokenizer=tokenizer)
    near([found.reference_value, found.value], [loss_of(model, ids), loss_of(after, ids)], 1e-4)
    assert found.completeness[0].verdict == "holds"
    near(found.again[-1].part, sum(row.part for row in found.again[:-1]), 1e-5)
    back = duat.diff(model, ids, reference=after, top=0, tokenizer=tokenizer)
    near(back.difference, -found.difference, 1e-5)


def test_only_what_is_gone_has_a_part():
    model = duat.load()
    tokenizer = model.tokenizer
    kept = np.arange(model.config.blocks[0].neurons) % 3 > 0
    found = duat.diff(resized(model, {2: kept}), TEXT, reference=model, top=0, tokenizer=tokenizer)
    for name, part in found.neurons.items():
        gone = ~kept if name.startswith("layers.2.") else np.zeros_like(kept)
        assert not part[~gone].any() and part[gone].any() == gone.any()


def test_models_that_are_not_pruned_ones_are_told_apart():
    model = duat.load()
    assert filled(model, model) == (model, model)
    smaller = without_neurons(model)
    assert is_pruned(smaller.config, model.config) and not is_pruned(model.config, smaller.config)
    other = jax.tree.map(lambda leaf: jnp.roll(leaf, 7, -1), smaller)
    with pytest.raises(duat.DuatError, match="isn't the larger one with less of it: neuron of layer 0"):
        duat.diff(other, TEXT, reference=model, tokenizer=duat.load_tokenizer())


def test_the_command_takes_a_pruned_checkpoint(tmp_path):
    after = without_neurons(duat.load())
    save_pruned(after, None, tmp_path / "pruned", dtype=np.float32)
    arguments = ["diff", str(tmp_path / "pruned"), TEXT, "--reference", "embedded", "--top", "0", "--json", "-"]
    run = CliRunner().invoke(application, arguments)
    assert run.exit_code == 0, run.output
    ids = duat.load_tokenizer().encode(TEXT).ids
    near(duat.schemas.read(run.stdout).value, loss_of(after, ids), 1e-4)
