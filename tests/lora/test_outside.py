"""Adapters of embedding and read-out, and weights that are stored whole, against dense algebra."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import IDS, TOKEN, random_adapters, small_model
from cases import GOLDEN
from helpers import close
from safetensors.numpy import load_file, save_file
from test_lora import said

import duat_jax as duat
from duat_jax.lora.adapter import Adapter, adapt, merge
from duat_jax.lora.change import lora_change
from duat_jax.lora.merged import save_merged
from duat_jax.lora.peft import load_adapters, save_adapters
from duat_jax.lora.replacement import Replacement
from duat_jax.models.config import Head
from duat_jax.weights.validation import alike_models

WHOLE = ["classifier", "score"]
SCALE, RANK = 2.0, 3
# A checkpoint, the layers with adapters, those stored whole, and what PEFT writes into `modules_to_save`.
CASES = {
    "tied read-out": ("llama", True, ["lm_head"], [], None),
    "tied embedding": ("llama", True, ["model.embed_tokens"], [], None),
    "both, tied": ("gemma3_text", True, ["model.embed_tokens", "lm_head"], [], None),
    "both, untied": ("llama", False, ["model.embed_tokens", "lm_head"], [], None),
    "whole read-out, tied": ("llama", True, [], ["lm_head.weight"], ["lm_head"]),
    "whole embedding, tied": ("llama", True, [], ["model.embed_tokens.weight"], ["embed_tokens"]),
    "whole embedding, untied": ("llama", False, ["lm_head"], ["model.embed_tokens.weight"], ["embed_tokens"]),
    "score": ("llama-classes", True, [], ["score.weight"], WHOLE),
    "classifier": ("bert-classes", True, [], ["classifier.weight", "classifier.bias"], WHOLE),
    "classifier with a dense layer": (
        "roberta-classes",
        True,
        [],
        [f"classifier.{part}.{kind}" for part in ("dense", "out_proj") for kind in ("weight", "bias")],
        WHOLE,
    ),
    "two dense layers": (
        "distilbert-classes",
        True,
        [],
        [f"{part}.{kind}" for part in ("pre_classifier", "classifier") for kind in ("weight", "bias")],
        WHOLE,
    ),
}


def write(folder, name):
    """Write a checkpoint, adapters in PEFT's layout, and the checkpoint with everything added to it, in NumPy."""
    checkpoint, tied, low_rank, whole, modules = CASES[name]
    settings = json.loads((GOLDEN / checkpoint / "config.json").read_text())
    base = load_file(GOLDEN / checkpoint / "model.safetensors")
    random, stored = np.random.default_rng(0), {}
    settings |= {"tie_word_embeddings": tied}
    base = {n: tensor for n, tensor in base.items() if n != "lm_head.weight"}
    if not tied:
        base["lm_head.weight"] = random.normal(size=base["model.embed_tokens.weight"].shape).astype(np.float32)
    merged = {n: np.float64(tensor) for n, tensor in base.items()}
    if any("lm_head" in each or "embed_tokens" in each for each in (*low_rank, *whole)):
        merged.setdefault("lm_head.weight", merged["model.embed_tokens.weight"])
    for layer in low_rank:
        a, b = (random.normal(size=size, scale=0.3).astype(np.float32) for size in ((RANK, 61), (16, RANK)))
        weight = f"{layer}.weight"
        embeds = "embed" in layer
        down, up, names = (a, b, "embedding_{}") if embeds else (b.T, a.T, "{}.weight")
        stored |= {f"{layer}.lora_{names.format(half)}": part for half, part in (("A", down), ("B", up))}
        stored[f"{layer}.base_layer.weight"] = np.float32(merged[weight])
        update = np.float64(up) @ np.float64(down)
        merged[weight] = merged[weight] + SCALE * (update.T if embeds else update)
    for weight in whole:
        stored[weight] = random.normal(size=merged[weight].shape).astype(np.float32)
        merged[weight] = np.float64(stored[weight])
    layer = next(n for n in base if n.endswith(("q_proj.weight", "query.weight", "q_lin.weight")))
    a, b = (
        random.normal(size=size, scale=0.3).astype(np.float32) for size in ((RANK, 16), (base[layer].shape[0], RANK))
    )
    merged[layer] = merged[layer] + SCALE * (np.float64(b) @ np.float64(a))
    layer = layer.removesuffix(".weight")
    stored |= {f"{layer}.lora_A.weight": a, f"{layer}.lora_B.weight": b}
    fields = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK * SCALE, "target_modules": [*low_rank, layer]}
    for directory, values, tensors in (
        ("base", settings, base),
        ("merged", settings | {"tie_word_embeddings": tied and "lm_head.weight" not in merged}, merged),
    ):
        shutil.copytree(GOLDEN / checkpoint, folder / directory)
        (folder / directory / "config.json").write_text(json.dumps(values))
        save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()}, folder / directory / "model.safetensors")
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text(json.dumps(fields | {"modules_to_save": modules}))
    tensors = {f"base_model.model.{n}": np.ascontiguousarray(t) for n, t in stored.items()}
    save_file(tensors, folder / "adapter" / "adapter_model.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_adapters_outside_of_the_layers_are_what_numpy_adds_to_the_checkpoint(name, tmp_path):
    write(tmp_path, name)
    model, expected = (duat.load(tmp_path / which, dtype=jnp.float64) for which in ("base", "merged"))
    adapters = load_adapters(tmp_path / "adapter", model)
    save_merged(tmp_path / "written", adapters, model, tmp_path / "base")
    save_adapters(tmp_path / "again", adapters, model)
    again = load_adapters(tmp_path / "again", model)
    for made in (merge(model, adapters), merge(model, again), duat.load(tmp_path / "written", dtype=jnp.float64)):
        assert jax.tree.structure(made) == jax.tree.structure(expected)
        for own, wanted in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
            assert np.abs(own - wanted).max() <= 4 * np.finfo(np.float32).eps * np.abs(wanted).max()
    assert adapt(model, adapters).config == expected.config


RENAMED = {
    "gpt_neox": (["query_key_value", "embed_out"], {"lm_head": "embed_out"}),
    "vit-classes": (
        ["query", "output.dense", "intermediate.dense"],
        {
            "layers.": "encoder.layer.",
            "attention.q_proj": "attention.attention.query",
            "attention.o_proj": "attention.output.dense",
            "mlp.fc1": "intermediate.dense",
            "mlp.fc2": "output.dense",
        },
    ),
}
"""Layers that the reference renamed: with their names in checkpoints, which it had before, by those that it has."""


@pytest.mark.parametrize("layout", RENAMED)
def test_adapters_by_the_reference_s_older_names_are_the_same(layout, tmp_path):
    (modules, names), model = RENAMED[layout], duat.load(GOLDEN / layout)
    adapters = random_adapters(model, modules)
    save_adapters(tmp_path / "now", adapters, model)
    written = " ".join(load_file(tmp_path / "now" / "adapter_model.safetensors"))
    assert all(now in written and before not in written for now, before in names.items())

    def renamed(text):
        for now, before in names.items():
            text = text.replace(now, before)
        return text

    (tmp_path / "before").mkdir()
    config = (tmp_path / "now" / "adapter_config.json").read_text()
    (tmp_path / "before" / "adapter_config.json").write_text(renamed(config))
    tensors = {
        renamed(name): tensor for name, tensor in load_file(tmp_path / "now" / "adapter_model.safetensors").items()
    }
    save_file(tensors, tmp_path / "before" / "adapter_model.safetensors")
    for folder in ("now", "before"):
        again = load_adapters(tmp_path / folder, model)
        assert again.keys() == adapters.keys() and jax.tree.all(jax.tree.map(jnp.array_equal, again, adapters))


@pytest.mark.parametrize("name", ["score", "classifier with a dense layer"])
def test_a_classifier_that_the_base_model_has_not_is_refused_in_one_line(name, tmp_path):
    write(tmp_path, name)
    with pytest.raises(
        duat.BadCheckpoint, match=r"read-out that the base model doesn't have.*save_pretrained"
    ) as error:
        load_adapters(tmp_path / "adapter", duat.load(tmp_path / "base", head="hidden"))
    assert "\n" not in str(error.value) and str(error.value).count("AutoModel") == 1


def refuse(folder, part, *, fields=None, tensors=None):
    file = folder / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (fields or {})))
    weights = folder / "adapter" / "adapter_model.safetensors"
    if tensors is not None:
        save_file(tensors(load_file(weights)), weights)
    with pytest.raises(duat.BadCheckpoint, match=part) as error:
        load_adapters(folder / "adapter", duat.load(folder / "base"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "part", "changes"),
    [
        ("tied read-out", "ensure_weight_tying", {"fields": {"ensure_weight_tying": True}}),
        ("tied read-out", "of another base", {"tensors": lambda t: {n: t[n] + ("base_layer" in n) for n in t}}),
        ("tied read-out", "no linear layer", {"tensors": lambda t: {n.replace("lm_head", "x"): t[n] for n in t}}),
        (
            "tied read-out",
            "lora_embedding_A .* belongs to no",
            {"tensors": lambda t: {n.replace("lora_A.weight", "lora_embedding_A"): t[n] for n in t}},
        ),
        ("score", "score.weight isn't stored", {"tensors": lambda t: {n: t[n] for n in t if "score" not in n}}),
        (
            "score",
            "says",
            {"tensors": lambda t: {n: np.ascontiguousarray(t[n][:-1]) if "score" in n else t[n] for n in t}},
        ),
        ("score", "NaN", {"tensors": lambda t: {n: t[n] * np.float32("nan") if "score" in n else t[n] for n in t}}),
        ("score", "nor to a part", {"fields": {"modules_to_save": None}}),
        ("score", "must be a list", {"fields": {"modules_to_save": "score"}}),
        ("classifier", "both name", {"fields": {"modules_to_save": ["classifier", "query"]}}),
    ],
)
def test_what_isnt_supported_outside_of_the_layers_is_refused(name, part, changes, tmp_path):
    write(tmp_path, name)
    refuse(tmp_path, part, **changes)


def test_every_linear_layer_leaves_the_read_out_out(tmp_path):
    write(tmp_path, "tied read-out")
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"target_modules": "all-linear"}))
    with pytest.warns(match="leaves out stored adapters, .*: lm_head"):
        assert "lm_head" not in load_adapters(tmp_path / "adapter", duat.load(tmp_path / "base"))


def low_rank(inputs, outputs, key):
    random = np.random.default_rng(key)
    down, up = (jnp.asarray(random.normal(size=size)) for size in ((inputs, 2), (2, outputs)))
    return Adapter(down, up, jnp.asarray(0.5))


@pytest.mark.slow
def test_a_tied_read_out_is_changed_alone_by_hand():
    model = small_model(cap=2.0)
    adapter = low_rank(6, 11, 0)
    found = lora_change(model, {"lm_head": adapter}, IDS, TOKEN)
    state = model.states(model.embed(IDS))[-1]
    rows = model.embedding.token[...] + 0.5 * (adapter.down @ adapter.up).T
    before, after = (2 * np.tanh(float(of[TOKEN] @ state) / 2) for of in (model.embedding.token[...], rows))
    close(found.before, before)
    close(found.after, after)
    # With the soft cap's ratio of the base, the logit is linear in the read-out.
    raw = float(model.embedding.token[...][TOKEN] @ state)
    held = before / raw
    close(found.totals["adapter"], held * (float(rows[TOKEN] @ state) - raw))
    close(found.first_order_held, held * (float(rows[TOKEN] @ state) - raw))
    close(found.effects[0].part, after - before)
    close(found.effects[0].alone, after - before)
    assert found.completeness.verdict == found.by_adapter.verdict == "holds"
    assert [corner.verdict for corner in found.corners] == ["holds"] * 4


@pytest.mark.slow
def test_a_whole_classifier_and_an_adapter_sum_to_the_change_and_to_that_of_the_weights():
    head = Head(kind="classes", outputs=3, pool="last")
    model = small_model(head=head)
    new = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6)))
    adapters = {
        "score": Replacement({"head.unembedding": new}, jnp.asarray(1.0)),
        "h.0.mlp.c_fc": low_rank(6, 10, 1),
        "wte": low_rank(11, 6, 2),
    }
    found = lora_change(model, adapters, IDS, 1)
    merged = merge(model, adapters)
    close(found.difference, np.asarray(said(merged, IDS)[1] - said(model, IDS)[1]), 4)
    close(sum(found.totals.values()), found.difference, 6)
    close(sum(effect.part for effect in found.effects), found.difference, 6)
    state = model.head.pooled(model.states(model.embed(IDS)))
    by_hand = (new - model.unembedding)[1] @ state
    close(found.effects[0].alone, np.asarray(by_hand))
    close(found.effects[0].first_order, np.asarray(by_hand))
    assert found.completeness.verdict == found.by_adapter.verdict == "holds"
    assert [corner.verdict for corner in found.corners] == ["holds"] * 4
    split = duat.diff(merged, IDS, 1, reference=model, top=0)
    assert split.completeness[0].verdict == "holds"
    close(split.parts["head.unembedding"], found.effects[0].part, 6)


def test_a_tied_model_and_an_untied_one_are_two_values_of_one_models_weights():
    model = small_model()
    merged = merge(model, {"lm_head": low_rank(6, 11, 0)})
    before, after = alike_models(model, merged)
    close(before.unembedding, model.embedding.token[...])
    close(after.unembedding, merged.unembedding)
    assert jax.tree.structure(before) == jax.tree.structure(after)
