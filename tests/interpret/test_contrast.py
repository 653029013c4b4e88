"""A contrast sums to the difference of two plain forward passes at every layer, whatever the model says."""

import functools
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from accounts import account
from cases import GOLDEN
from command import run
from damaged import copy_checkpoint, damage
from flax import nnx
from heads import BERT, CONFIGS, GIVEN, IDS, PIXELS, SQUARE, load
from heads import model_of as model_of_heads
from helpers import close, described, near

import duat_jax as duat
from duat_jax.display.terminal import token_labels
from duat_jax.forms.completeness import completeness_of
from duat_jax.inputs.baselines import ask_contrast
from duat_jax.lora import new_adapters
from duat_jax.lora.change import lora_change
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised
from experiments import smollm2

OTHER = [5, 7, 4, 10, 2]
OTHERS = {name: duat.TokenizedText(OTHER, [0, 0, 0, 1, 1]) for name in ("masked token", "first")} | {
    "image": np.random.default_rng(1).normal(size=PIXELS.shape)
}
TARGETS = {
    "next token": duat.targets.Logit(contrast=6, position=2),
    "masked token": duat.targets.LogProbability(4, position=3),
    "hidden": duat.targets.Similarity([1, 8, 4]),
}


MOST_PROBABLE, ON_THE_OTHER = 9, 0
"""What the language model says at token 2, by its number: the target, which isn't named, is the first on both texts."""


@functools.cache
def model_of(name):
    if name != "hidden":
        return model_of_heads(name)
    return randomised(duat.models.Transformer(duat.models.Config(**BERT), dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def asked_of(name):
    return GIVEN.get(name, IDS), OTHERS.get(name, OTHER), TARGETS.get(name, duat.targets.ClassLogit("good", contrast=0))


@functools.cache
def contrasted(name):
    given, other, target = asked_of(name)
    return duat.contrast(model_of(name), given, other, target)


@jax.jit
def run_model(model, *given, **segments):
    return model(*given, **segments)


def number_on(name, given):
    """What the target is on one input, by the model alone."""
    model = model_of(name)
    if isinstance(given, duat.TokenizedText):
        said = run_model(model, jnp.array(given.ids), segments=jnp.array(given.segments))
    else:
        said = run_model(model, jnp.asarray(given))
    if name == "hidden":
        a, b = said.mean(0), model(jnp.array([1, 8, 4])).mean(0)
        return a @ b / jnp.linalg.norm(a) / jnp.linalg.norm(b)
    if name == "masked token":
        return jax.nn.log_softmax(said[3])[4]
    return said[2, MOST_PROBABLE] - said[2, 6] if name == "next token" else said[2] - said[0]


def assert_rows_sum(contrast, difference):
    """By the project's rule, each row's parts beside the difference; what is subtracted is rounded too."""
    values = [jnp.array(contrast.value), *(jnp.array(other.value) for other in contrast.references)]
    for row in contrast.flow:
        parts = [jnp.asarray(row)]
        assert bool(completeness_of(jnp.array(difference), parts, [*parts, *values]).within)
    assert contrast.completeness.verdict == "holds"


KINDS = (*CONFIGS, "hidden")
FAST = ("next token",)


@pytest.mark.parametrize(
    "name", [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_every_row_sums_to_the_difference_of_the_model_run_on_both(name):
    contrast = contrasted(name)
    x, y = (number_on(name, given) for given in asked_of(name)[:2])
    assert abs(float(x - y)) > 1e-4
    close([contrast.value, contrast.references[0].value], [x, y])
    assert_rows_sum(contrast, float(x - y))
    assert contrast.flow.shape == (model_of(name).config.layers + 1, len(contrast.tokens))
    assert [part.shape for part in contrast.heads.values()] == [(len(contrast.tokens), 2)]
    assert [part.shape for part in contrast.neurons.values()] == [(len(contrast.tokens), 6)]
    if name != "image":
        same = np.array(IDS) == OTHER
        assert not contrast.flow[0][same].any(), "what doesn't change has no part"
        assert np.count_nonzero(contrast.flow[0]) > 0


def test_exchanged_texts_give_the_negative():
    texts = IDS, [5, 7, 9, 10, 2]  # of which the same is the most probable
    there, back = (duat.contrast(model_of("next token"), *pair, TARGETS["next token"]) for pair in (texts, texts[::-1]))
    assert there.difference != 0
    for one, negative in zip(*map(parts_of, (there, back))):
        close(one, -negative)
    assert (back.value, back.references[0].value) == (there.references[0].value, there.value)


def parts_of(contrast):
    return [contrast.flow, *contrast.heads.values(), *contrast.neurons.values(), contrast.difference]


def test_padding_changes_nothing():
    """Beside the transformation of the model's own output, on the texts as they are."""
    model = model_of("next token")

    def number(x):
        logits = model.output(x)[2]
        return logits[MOST_PROBABLE] - logits[6]

    x, y = model.embed(jnp.array(IDS)), model.embed(jnp.array(OTHER))
    found = jax.jit(duat.secant(number, at=("stream", "point")))(x, y).contributions
    contrast = contrasted("next token")
    close(contrast.flow, [part.sum(-1) for part in found.streams.values()])
    close(contrast.heads["layers.0.attention.mixed"], found.points["attention.mixed"].sum(-1))
    close(contrast.neurons["layers.0.mlp.neurons"], found.points["mlp.neurons"])


def test_the_most_probable_is_that_of_the_text_given_on_both():
    contrast = contrasted("next token")
    assert contrast.target.headline == f"logit of '{MOST_PROBABLE}' minus that of '6' at token 2, '3'"
    said = contrast.predictions, contrast.references[0].predictions
    assert [predictions[0].token for predictions in said] == [str(MOST_PROBABLE), str(ON_THE_OTHER)]


def test_the_mean_embedding_stands_in_every_tokens_place():
    model, target = model_of("next token"), TARGETS["next token"]
    mean = model.embedding.token[...].mean(0) + model.embedding.position[...][: len(IDS)]
    logits = jax.jit(model.output)(mean)[2]
    contrast = duat.contrast(model, IDS, duat.baselines.Mean(), target)
    close(contrast.references[0].value, logits[MOST_PROBABLE] - logits[6])
    assert contrast.references[0].tokens == ()
    assert_rows_sum(contrast, contrast.value - contrast.references[0].value)


def test_masks_stand_in_the_place_of_what_a_text_says():
    config, tokenizer = duat.load_config(GOLDEN / "bert-masked"), duat.load_tokenizer(GOLDEN / "bert-masked")
    ids = tokenizer.encode("w5 w17 [MASK] w3").ids
    assert len(ids) == 6
    found = ask_contrast(described(config), ids, [duat.baselines.Mask(), duat.baselines.Mean()], 7, tokenizer=tokenizer)
    mask = tokenizer.token_to_id("[MASK]")
    masks, mean = found.others
    assert masks.inputs.given.tolist() == [ids[0], mask, mask, mask, mask, ids[-1]]
    assert mean.averaged.tolist() == [False, True, True, False, True, False]


def test_an_image_is_blurred_and_averaged():
    config = CONFIGS["image"]
    blurred, mean = (
        other.inputs.given
        for other in ask_contrast(described(config), PIXELS, [duat.baselines.Blur(), duat.baselines.Mean()]).others
    )
    close(mean, np.broadcast_to(PIXELS.mean((1, 2))[:, None, None], PIXELS.shape))
    height, width = PIXELS.shape[1:]
    for row, column in ((0, 0), (4, 7), (8, 12)):
        weights = np.array(
            [[np.exp(-((row - i) ** 2 + (column - j) ** 2) / (2 * 4**2)) for j in range(width)] for i in range(height)]
        )
        expected = (PIXELS * weights).sum((1, 2)) / weights.sum()
        close(blurred[:, row, column], expected)


def test_texts_of_other_lengths_are_aligned_by_pairs():
    longer = [5, 7, 9, 9, 10, 2]
    found = ask_contrast(described(CONFIGS["next token"]), IDS, longer, alignment=[(1, 1), (2, 2), (3, 4)])
    assert found.others[0].inputs.given.tolist() == [IDS[0], 7, 9, 10, IDS[4]]


def test_an_alignment_shows_what_stands_beside_what_and_what_is_paired_with_nothing(tmp_path):
    model = duat.load()
    tokenizer = model.tokenizer
    text, other = "for i in range(10", "for name in range(10"
    ids, other_ids = (tokenizer.encode(each).ids for each in (text, f"{other}, 2"))
    pairs = [(0, 0), (1, 1), (3, 3), (4, 4)]
    left_out = [i for i in range(len(other_ids)) if i not in dict(pairs).values()]
    found = duat.contrast(model, text, f"{other}, 2", alignment=pairs, tokenizer=tokenizer)
    (reference,) = found.others
    unpaired = tuple(i for i in range(len(ids)) if i not in dict(pairs))
    assert reference.unpaired == unpaired and 2 in unpaired
    assert token_labels(found.view())[1:3] == ["·i (·name)", "·in (–)"]
    assert "·in\n(–)" in [label.get_text() for label in found.plot().axes[0].get_xticklabels()]
    (note,) = found.notes
    assert note.startswith("Aligned, paired with nothing: the text's tokens 2 ' in'") and note in " ".join(
        str(found).split()
    )
    assert f"the other text's tokens 2 ' in', {left_out[1]} " in note
    assert found.as_dict()["references"][0]["unpaired"] == list(unpaired) and note in found.as_dict()["notes"]
    found.save(tmp_path / "result")
    assert str(duat.open(tmp_path / "result")) == str(found)
    every = [(i, i) for i in range(len(ids))]
    same = duat.contrast(model, text, [*ids[:1], other_ids[1], *ids[2:]], alignment=every, tokenizer=tokenizer)
    assert same.notes == () and same.references[0].unpaired == ()


@pytest.mark.slow
def test_several_others_are_averaged():
    model, target = model_of("next token"), TARGETS["next token"]
    singles = [contrasted("next token"), duat.contrast(model, IDS, duat.baselines.Mean(), target)]
    together = duat.contrast(model, IDS, [OTHER, duat.baselines.Mean()], target)
    for one, *each in zip(*map(parts_of, (together, *singles))):
        close(one, np.mean(each, axis=0))
    assert_rows_sum(together, together.value - np.mean([other.value for other in together.references]))
    assert "the mean of the references" in str(together)


@pytest.mark.slow
def test_what_is_held_has_its_part_by_name():
    model, target = model_of("next token"), TARGETS["next token"]
    held = duat.contrast(model, IDS, OTHER, target, held=["attention.pattern"])
    (name,) = map(str, held.moved)
    assert name == "layers.0.attention.pattern"
    close(held.difference, contrasted("next token").difference)
    close(held.flow[0].sum() + held.moved[name], held.difference)
    close(held.flow[1].sum(), held.difference)
    assert abs(held.moved[name]) > 1e-6
    assert name in str(held)
    assert "with what moved or jumped after it" in str(held)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [0, 1])
def test_a_direction_in_a_stream(stream):
    model, vector = model_of("next token"), np.arange(8.0)
    contrast = duat.contrast(model, IDS, OTHER, duat.targets.Direction(vector, stream=stream, position=2))
    streams = [duat.record(model.hidden)(model.embed(jnp.array(ids))).dynamics.streams for ids in (IDS, OTHER)]
    x, y = (list(each.values())[stream][2] @ vector for each in streams)
    assert_rows_sum(contrast, float(x - y))
    assert len(contrast.flow) == stream + 1


@pytest.mark.slow
def test_a_router_that_chooses_otherwise_is_a_part_by_name():
    model = duat.load(GOLDEN / "mixtral", dtype=jnp.float64)
    texts = [5, 17, 3, 44, 17], [5, 17, 25, 44, 17]
    contrast = duat.contrast(model, *texts, 7)
    x, y = (float(run_model(model, jnp.array(ids))[-1, 7]) for ids in texts)
    jumped = {name: part for name, part in contrast.discontinuities.items() if part}
    assert all(name.startswith("layers.0: ") for name in jumped)
    assert abs(sum(jumped.values())) > 0.01
    close(contrast.flow[0].sum() + sum(jumped.values()), x - y)
    close(contrast.flow[1:].sum(1), x - y)
    assert all(name in str(contrast) for name in jumped)


def adapted(model):
    adapters = new_adapters(model, ["c_attn"], rank=2)
    return lora_change(model, {name: one._replace(up=one.up + 3) for name, one in adapters.items()}, [1, 2, 3], 5)


ASK = {
    "contrast": lambda model: duat.contrast(model, [1, 2, 3], [1, 4, 3], 5),
    "intervene": lambda model: duat.intervene(
        model, [1, 2, 3], duat.edits.Stream(0, tokens=0).steer(jnp.arange(10.0)), 5
    ),
    "lora": adapted,
    "ledger": account,
}


@pytest.mark.parametrize("name", ASK)
def test_a_softmax_that_is_not_recognised_is_noted(name, monkeypatch, compiled_anew):
    def softmax(scores, axis=-1, **_):
        powers = jnp.exp(scores - scores.max(axis, keepdims=True))
        return powers / (powers.sum(axis, keepdims=True) + 1e-9)

    monkeypatch.setattr(jax.nn, "softmax", softmax)
    block = BlockConfig(arrangement="pre-norm", features=10, heads=2, neurons=6)
    head = Head(kind="next token", outputs=11, tied=True)
    config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
    model = randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), scale=3.0)
    found = ASK[name](model)
    (note,) = found.notes
    assert "isn't recognised as softmax" in note
    assert " ".join(note.split()) in " ".join(str(found).split())
    assert (found.as_dict() if name == "ledger" else found.as_dict("a model"))["notes"] == [note]


IDS_OF = {"inputs": IDS, "reference": OTHER}
BAD = {
    "other lengths": (
        {"reference": IDS[:4]},
        "the text has 5 tokens and the other text 4: give texts of as many tokens",
    ),
    "the same": (
        {"reference": list(IDS)},
        "the text and the other text are the same for the model: the difference is zero",
    ),
    "the same by its alignment": ({"reference": [9], "alignment": np.zeros((0, 2), int)}, "the difference is zero"),
    "everything wrong": ({"inputs": [99], "reference": [98], "position": 7}, "the text has token id 99"),
    "the other too": ({"inputs": [99], "reference": [98]}, "the other text has token id 98"),
    "many texts": ({"inputs": [IDS, OTHER]}, "one input and one target are taken"),
    "many targets": ({"target": [1, 2]}, "one input and one target are taken"),
    "nothing": ({"reference": []}, "there is nothing to contrast with"),
    "a text in words": (
        {"reference": "a text"},
        "the other text is the string 'a text': pass the model's tokenizer too",
    ),
    "no mask known": ({"reference": duat.baselines.Mask()}, "a mask token isn't known: give mean"),
    "one bad of several": ({"reference": [OTHER, duat.baselines.Blur()]}, "'blur' is no baseline"),
    "no pairs": ({"alignment": [1, 2]}, "the alignment must be pairs of whole numbers"),
    "pairs in words": ({"alignment": "0:0"}, "the alignment must be pairs of whole numbers"),
    "ragged pairs": ({"alignment": [(1, 2), (3,)]}, "the alignment must be pairs of whole numbers"),
    "a pair outside": ({"alignment": [(0, 0), (5, 1)]}, "the alignment's pair [5, 1] is outside of the texts' 5 and 5"),
    "a place twice": ({"alignment": [(0, 0), (0, 1)]}, "the alignment puts two tokens in one's place"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_contrast_that_can_not_be_is_refused(case):
    changed, message = BAD[case]
    with pytest.raises(duat.InvalidInput, match=re.escape(message)):
        ask_contrast(described(CONFIGS["next token"]), **(IDS_OF | changed))


def test_of_a_text_that_can_not_be_read_its_length_is_not_said():
    with pytest.raises(duat.InvalidInput, match=r"^the other text has token id 98[^;]*$"):
        ask_contrast(described(CONFIGS["next token"]), IDS, [98])


@pytest.mark.slow
def test_a_number_that_is_not_finite_on_one_side_is_named():
    damaged = nnx.clone(model_of("next token"))
    damaged.embedding.token[...] = damaged.embedding.token[...].at[4].set(jnp.nan)
    with pytest.raises(duat.NotFinite, match="is nan on the other text: check the model's weights"):
        duat.contrast(damaged, IDS, OTHER, TARGETS["next token"])


@pytest.mark.slow
def test_the_picture_shows_the_flow_and_both_texts():
    contrast = contrasted("next token")
    flow, heads = (axes for axes in contrast.plot().axes if axes.images)
    np.testing.assert_array_equal(flow.images[0].get_array(), contrast.flow)
    close(heads.images[0].get_array()[1], contrast.heads["layers.0.attention.mixed"].sum(0))
    assert [label.get_text() for label in flow.get_xticklabels()] == ["5", "7", "3\n(4)", "10", "2"]
    assert [label.get_text() for label in flow.get_yticklabels()] == ["embedding", "layer 0"]


@pytest.mark.slow
def test_the_picture_of_an_image_lies_over_it():
    contrast = contrasted("image")
    seen, *panels = contrast.plot().axes
    shown = [panel.images[1].get_array().reshape(-1) for panel in panels if len(panel.images) == 2]
    np.testing.assert_array_equal(shown, contrast.flow[[0, *range(len(contrast.flow))], 1:])
    assert len(seen.images) == 1


TEXT, VERSUS = "w5 w17 w3", "w5 w9 w3"


def test_the_command_prints_writes_and_draws(tmp_path):
    plot, file = tmp_path / "flow.png", tmp_path / "contrast.json"
    options = ("--model", GOLDEN / "gpt2", "--target", "w7", "--reference", VERSUS, "--dtype", "float64", "--top", 3)
    result = run("contrast", TEXT, *options, "--plot", plot, "--json", file)
    assert result.exit_code == 0, result.output
    for words in (
        "Where the difference is",
        "w17",
        "(w9)",
        "largest heads",
        "largest neurons",
        "Exact for this pair",
    ):
        assert words in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    found = json.loads(file.read_text())
    difference = found["value"] - found["references"][0]["value"]
    assert list(found["flow"]) == ["embedding", "layers.0", "layers.1", "layers.2"]
    close([found["difference"], *map(sum, found["flow"].values())], difference)
    assert found["references"][0]["tokens"] == ["w5", "w9", "w3"]
    assert [len(found[name]) for name in ("top_heads", "top_neurons")] == [3, 3]


@pytest.mark.slow
def test_the_command_contrasts_images(tmp_path):
    model = shutil.copytree(GOLDEN / "vit-classes", tmp_path / "vit")
    pixels = [load(model, *image) for image in ((SQUARE, None, "one.png"), (SQUARE[::-1], None, "other.png"))]
    options = ("--model", model, "--target", "b", "--contrast", 0, "--dtype", "float64", "--json", "-")
    result = run(
        "contrast", "--image", model / "one.png", "--reference", model / "other.png", "--baseline", "blur", *options
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    logits = [run_model(duat.load(model, dtype=jnp.float64), jnp.asarray(each)) for each in pixels]
    close([found["value"], found["references"][0]["value"]], [each[1] - each[0] for each in logits])
    assert [other["name"] for other in found["references"]] == ["the other image", "the blurred image"]
    close([sum(row) for row in found["flow"].values()], found["difference"])


BAD_COMMANDS = {
    "other lengths": (["--reference", "w5 w9"], "the text has 3 tokens and the other text 2"),
    "the same": (["--reference", TEXT], "the difference is zero"),
    "no mask": (["--baseline", "mask"], "the tokenizer has no mask token: give mean"),
    "an image's": (["--baseline", "blur"], "'blur' is no baseline of a gpt2 model"),
    "empty": (["--reference", ""], "the other text is empty"),
    "pairs in words": (["--reference", "w5 w9", "--align", "a"], "--align 'a' must be pairs of token indices"),
    "pairs without a text": (["--align", "0:0"], "--align places the tokens of --reference TEXT"),
    "not UTF-8": (["--reference", "w3 \udcff"], "not UTF-8"),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_mistakes_are_one_line_before_anything_is_computed(case, monkeypatch):
    for name in ("models.loader.load", "interpret.contrast.compute.answer"):
        monkeypatch.setattr(f"duat_jax.{name}", None)
    arguments, message = BAD_COMMANDS[case]
    result = run("contrast", TEXT, "--model", GOLDEN / "gpt2", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.slow
def test_a_command_whose_number_is_not_finite_has_a_status_of_its_own(tmp_path):
    directory = copy_checkpoint(tmp_path)
    damage(directory, lambda tensors: tensors["transformer.h.1.mlp.c_fc.weight"].fill(3e38))
    result = run("contrast", TEXT, "--model", directory, "--reference", VERSUS)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (3, "", 1)
    assert "is nan on what was given" in result.stderr


@pytest.mark.slow
def test_the_difference_of_two_names_goes_where_it_is_read():
    path = smollm2.path()
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        model, tokenizer = duat.load(path), duat.load_tokenizer(path)
        text = "When Henry and Frank went to the store, {} gave a drink to"
        ids, other = (tokenizer.encode(text.format(name)).ids for name in ("Frank", "Henry"))
        names = [tokenizer.encode(name).ids[0] for name in (" Henry", " Frank")]
        contrast = duat.contrast(model, ids, other, names[0], contrast=names[1], tokenizer=tokenizer)
    assert contrast.completeness.verdict == "holds"
    near(contrast.flow.sum(1), 6.545, within=2e-3)
    near(contrast.flow[: 18 + 2, 9], 6.545, within=0.1)
    near(contrast.flow[24 + 1 :, 13], 6.545, within=0.8)
