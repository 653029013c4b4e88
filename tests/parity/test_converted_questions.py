"""Every question about a model that PyTorch's code computes is answered exactly, or refused in one line."""

import shutil

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import duat_jax as duat
from benchmarks.public_questions import public_functions
from duat_jax.display.page.data import page_data
from duat_jax.models.checkpoint.place import EMBEDDED
from duat_jax.models.converted import converted
from tests.command import run
from tests.helpers import near
from tests.parity.test_pytorch import GPT_NEO, NO_FAMILY, tiny

TEXT, REFERENCE = [3, 4, 5, 6, 7], [3, 9, 5, 6, 7]
MODELS = {
    "gpt_neo": GPT_NEO,
    "mpnet": NO_FAMILY["mpnet"],
    "olmoe": ("AutoModelForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2}),
}
LAYERS = "no layers of this package"
KINDS = "heads", "neurons"


@pytest.fixture(scope="module", params=MODELS)
def given(request):
    """A model, the target that it is asked about, and its name."""
    architecture, sizes = MODELS[request.param]
    model = converted(tiny(request.param, architecture, **sizes), "a model")
    return model, {"against": [4, 5]} if model.config.head.kind == "hidden" else {"target": 8}, request.param


ANSWERED = {
    "explain": lambda model, asked: duat.explain(model, TEXT, **asked),
    "explain, a stream": lambda model, asked: duat.explain(
        model, TEXT, duat.targets.Direction(np.arange(32.0), stream=1)
    ),
    "contrast": lambda model, asked: duat.contrast(model, TEXT, REFERENCE, **asked),
    "contrast, mean": lambda model, asked: duat.contrast(model, TEXT, duat.baselines.Mean(), **asked),
    "graph": lambda model, asked: duat.graph(model, TEXT, top_neurons=3, **asked),
    "graph, a stream": lambda model, asked: duat.graph(
        model, TEXT, duat.targets.Direction(np.arange(32.0), stream=1), top_neurons=2
    ),
    "intervene, heads": lambda model, asked: duat.intervene(model, TEXT, duat.edits.Heads(1, 2).set(0), **asked),
    "intervene, stream": lambda model, asked: duat.intervene(model, TEXT, duat.edits.Stream(1).scale(0.5), **asked),
    "intervene, a stream": lambda model, asked: duat.intervene(
        model, TEXT, duat.edits.Stream(1).scale(0.5), duat.targets.Direction(np.arange(32.0), stream=2)
    ),
    "intervene, embedding": lambda model, asked: duat.intervene(
        model, TEXT, duat.edits.Stream(0, tokens=1).set(duat.edits.MeanEmbedding()), **asked
    ),
    "intervene, another text": lambda model, asked: duat.intervene(
        model, TEXT, duat.edits.Heads(0, 1).set(duat.edits.FromInput(REFERENCE)), **asked
    ),
    "intervene, steered": lambda model, asked: duat.intervene(
        model, TEXT, duat.edits.Stream(1).steer(np.arange(32.0)), **asked
    ),
    "attribute": lambda model, asked: duat.attribute(model, TEXT, REFERENCE, **asked),
    "attribute, integrated": lambda model, asked: duat.attribute(
        model, TEXT, REFERENCE, method="integrated gradients, 128 steps", **asked
    ),
    "auto": lambda model, asked: duat.decompose(
        duat.auto(lambda x: model.states(x)[1, 2]), model.embed(jnp.array(TEXT))
    ),
}


@pytest.mark.parametrize("question", ANSWERED)
def test_a_question_is_answered_exactly(question, given):
    model, asked, _ = given
    found = ANSWERED[question](model, asked)
    if isinstance(found, duat.results.Attribution):
        near(found.scores.sum(), found.difference, within=1e-3)
    else:
        assert found.completeness.verdict == "holds"


REFUSED = {
    "explain_attention": (lambda model, asked: duat.explain_attention(model, TEXT, layer=1, head=0, key=1), LAYERS),
    "intervene, moved": (
        lambda model, asked: duat.intervene(model, TEXT, duat.edits.Heads(1, 0).steer(duat.edits.HeadMove(0)), **asked),
        "the patterns .* aren't known",
    ),
    **{
        f"attribute, {unit}": (
            lambda model, asked, unit=unit: duat.attribute(model, TEXT, REFERENCE, unit=unit, **asked),
            "are in no array of layers",
        )
        for unit in ("neuron", "head", "stream")
    },
    "prune": (lambda model, asked: duat.pruning.prune(model, np.array([TEXT]), 0.5), f"{LAYERS}|next token"),
    "prune_layers": (lambda model, asked: duat.pruning.prune_layers(model, np.array([TEXT]), 0.5), LAYERS),
    "diff": (lambda model, asked: duat.diff(model, TEXT, reference=model, **asked), LAYERS),
    "new_adapters": (lambda model, asked: duat.lora.new_adapters(model, rank=2), LAYERS),
    "without": (lambda model, asked: duat.pruning.without(model, duat.pruning.Terms(layers=(0,))), LAYERS),
}


@pytest.mark.parametrize("question", REFUSED)
def test_a_question_is_refused_in_one_line(question, given):
    model, asked, _ = given
    ask, message = REFUSED[question]
    with pytest.raises(duat.DuatError, match=message) as refusal:
        ask(model, asked)
    assert "\n" not in str(refusal.value)


COMMANDS = {
    "circuit": ["--task", "parameter", "--prompts", 2],
    "in-context": ["--task", "antonyms", "--demonstrations", 2],
    "attention": ["for i in range(10", "--layer", 1, "--head", 0, "--key", 1],
    "prune": ["--text", "book.txt", "--fraction", 0.3, "--tokens", 8, "--pieces", 2],
    "survey": ["book.txt", "--out", "tables"],
    "train-ledger": ["for i in range(10", "--text", "book.txt", "--steps", 1],
    "lora train": ["--text", "book.txt", "--output", "adapter"],
    "verify": [],
    "diff": ["for i in range(10", "--bits", 4],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_refused_in_one_line(command, checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint)
    (checkpoint / "book.txt").write_text("def f(x):\n    return x + 1\n" * 400)
    model = [checkpoint] if command == "diff" else ["--model", checkpoint]
    found = run(*command.split(), *model, *COMMANDS[command])
    assert found.exit_code == 2 and LAYERS in found.output, found.output
    assert len(found.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint of no family, with the tokenizer of the embedded model."""
    folder, (architecture, sizes) = tmp_path_factory.mktemp("checkpoint"), NO_FAMILY["bloom"]
    module = tiny("bloom", architecture, **sizes)
    module.resize_token_embeddings(duat.load_tokenizer().get_vocab_size())
    module.save_pretrained(folder)
    shutil.copy(EMBEDDED / "tokenizer.json", folder)
    return folder


def test_a_converted_checkpoint_carries_its_tokenizer(checkpoint):
    text = "for i in range(10"
    assert duat.explain(duat.load(checkpoint), text).tokens == duat.explain(duat.load(), text).tokens


def test_commands_change_and_steer(checkpoint):
    asked = ["for i in range(10", "--model", checkpoint]
    for command in (
        ["intervene", *asked, "--edit", "head 1:2 set 0", "--edit", "neurons 0:3,5@-1 scale 2"],
        ["intervene", *asked, "--edit", "neurons 1:3 set reference", "--reference", "for j in range(10"],
        ["steer", *asked, "--towards", "import os", "--away", "class Box:", "--layers", 1],
    ):
        found = run(*command)
        assert found.exit_code == 0 and "holds" in found.output, found.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "bfloat16"}, "dtype must be float64 or float32, not 'bfloat16'"),
        ({"scanned": True}, "takes no device"),
    ],
)
def test_a_dtype_or_a_place_that_it_cant_have_is_refused(options, message, checkpoint):
    with pytest.raises(duat.DuatError, match=message):
        duat.load(checkpoint, **options)


def test_a_number_that_is_not_finite_is_refused():
    module = tiny("mpnet", *NO_FAMILY["mpnet"][:1])
    for name, each in module.named_parameters():
        if "LayerNorm" in name:
            each.data.zero_()
    model = converted(module, "a model")
    with pytest.raises(duat.NotFinite, match="is nan on what was given: check the model's weights"):
        duat.explain(model, TEXT, against=[4, 5])
    with pytest.raises(duat.NotFinite, match="is nan on input 0: check the model's weights"):
        duat.explain(model, [TEXT], against=[4, 5])


NO_MODEL = {"collapse", "contributions", "decompose", "edit", "image_maps", "linear_map", "record", "replay"}
NO_MODEL |= {"load_sound", "secant", "split_score", "unroll"}
"""Public functions of a function, of a recording or of a file."""


def test_every_public_function_of_a_model_is_asked():
    asked = {name.partition(",")[0] for name in (*ANSWERED, *REFUSED)}
    assert public_functions() - asked - NO_MODEL == {"decode_triplets"}


def halves_output(module, _, output):
    """Return half of a layer's output."""
    return (output[0] / 2, *output[1:]) if isinstance(output, tuple) else output / 2


def changes_input(columns, factor):
    """Return what multiplies columns of a module's input."""

    def change(_, inputs):
        (x, *rest) = inputs
        x = x.clone()
        x[..., columns] *= factor
        return x, *rest

    return change


CHANGES = {
    "a head": (
        duat.edits.Heads(1, 2).set(0),
        lambda layers: layers[1].attn.attention.out_proj.register_forward_pre_hook(changes_input(slice(16, 24), 0)),
    ),
    "neurons": (
        duat.edits.Neurons(0, [3, 5]).scale(3),
        lambda layers: layers[0].mlp.c_proj.register_forward_pre_hook(changes_input([3, 5], 3)),
    ),
    "a stream": (
        duat.edits.Stream(1).scale(0.5),
        lambda layers: layers[0].register_forward_hook(halves_output),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_does_what_it_does_in_pytorch(change):
    architecture, sizes = GPT_NEO
    modules = [tiny("gpt_neo", architecture, **sizes) for _ in range(2)]
    ours, theirs = CHANGES[change]
    found = duat.intervene(converted(modules[0], "a model"), TEXT, ours, target=8)
    theirs(modules[1].transformer.h)
    with torch.no_grad():
        expected = modules[1](torch.tensor([TEXT])).logits[0, -1, 8].item()
    assert abs(found.after - found.before) > 1e-5
    near(found.after, expected, within=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_page_has_heads_and_neurons_in_every_cell_of_a_layer(name):
    architecture, sizes = MODELS[name]
    model = converted(tiny(name, architecture, **sizes), "a model")
    asked = {"against": [4, 5]} if model.config.head.kind == "hidden" else {"target": 8}
    contrast = duat.contrast(model, TEXT, REFERENCE, **asked)
    embedding, *layers = page_data(contrast.view())["rows"]
    assert embedding["units"] == [None, None]
    for i, row in enumerate(layers):
        heads, neurons = ([part for key, part in getattr(contrast, kind).items() if key.layer == i] for kind in KINDS)
        for units, parts in zip(row["units"], (heads, neurons), strict=True):
            sums = [sum(part for _, part in top) + rest for top, rest in zip(units["top"], units["rest"], strict=True)]
            near(np.array(sums), sum(part.sum(-1) for part in parts), within=1e-4)
        assert row["layer"] == (None if name == "olmoe" else i)
    assert len(set(duat.explain(model, TEXT, **asked).labels.values())) == (4 if name == "olmoe" else 2)


def test_heads_are_told_from_tokens_where_there_are_as_many():
    """Of a causal model nothing differs before the first token that does."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "vocab_size": 50}
    settings = transformers.GPTNeoConfig(num_heads=16, **sizes)  # a text is padded to 16 tokens
    model = converted(transformers.GPTNeoForCausalLM(settings).eval(), "a model")
    found = duat.contrast(model, [3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 11, 12], target=8)
    for parts in found.heads.values():
        assert parts.shape == (6, 16) and not parts[:4].any() and parts[4:].any()


def test_a_term_of_experts_has_the_neurons_of_each_choice():
    architecture, sizes = MODELS["olmoe"]
    model = converted(tiny("olmoe", architecture, **sizes), "a model")
    explanation = duat.explain(model, TEXT, target=8)
    assert [part.shape for part in explanation.terms.values()] == 4 * [(5, 64)]
    assert not [key for key in explanation.biases if "silu" in key.name]
    assert len(set(explanation.labels.values())) == 4
    contrast = duat.contrast(model, TEXT, REFERENCE, target=8)
    assert [part.shape for part in contrast.neurons.values()] == 4 * [(5, 64)]
    # Terms at the first token, which is alone there, don't depend on the others.
    first, other = (duat.explain(model, text, target=8).activations for text in (TEXT, REFERENCE))
    for one, two in zip(first.values(), other.values(), strict=True):
        near(one[0], two[0], within=1e-5)
        assert (one[1] != two[1]).all()
