"""Encoders with decoders as checkpoints: two texts on one axis of tokens, answered exactly by every question."""

import json
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import duat_jax as duat
from duat_jax.inputs.model_inputs import encode_pair
from duat_jax.live.about import about
from duat_jax.live.answers import Loaded, answer_in_words
from duat_jax.live.work import Work
from duat_jax.models.converted import converted
from tests.command import run
from tests.helpers import near

SIZES = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
SIZES |= {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 1, "pad_token_id": 0}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2}
T5 |= {"decoder_start_token_id": 1}
MODELS = {
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration, T5),
    "gated t5": (
        transformers.T5Config,
        transformers.T5ForConditionalGeneration,
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration, SIZES),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel, SIZES),
}
LAYERS = 4
GIVEN = {"encoder": [5, 6, 7, 8], "decoder": [1, 4, 9]}
OTHER = {"encoder": [5, 9, 7, 8], "decoder": [1, 4, 9]}
CROSS_HEADS = {
    "t5": "decoder.block.0.layer.1.EncDecAttention.o",
    "bart": "model.decoder.layers.0.encoder_attn.out_proj",
}


def module_of(name):
    """Return a small model of random weights, which are large enough that its logits differ."""
    config, architecture, sizes = MODELS[name]
    torch.manual_seed(0)
    module = architecture(config(vocab_size=50, **sizes)).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if hasattr(module, "final_logits_bias"):
        module.final_logits_bias.normal_()
    return module


@cache
def model_of(name):
    """Return the same as a model of this package."""
    return converted(module_of(name), "a model")


def said_by(module, given):
    """Return PyTorch's logits at the decoder's tokens."""
    with torch.no_grad():
        ids = {"input_ids": torch.tensor([given["encoder"]]), "decoder_input_ids": torch.tensor([given["decoder"]])}
        return module(**ids, use_cache=False).logits[0].numpy()


@pytest.fixture(scope="module", params=MODELS)
def models(request):
    """The model by PyTorch, the model of this package, its name, and how far norms in single precision let them be."""
    within = 1e-5 if "t5" in request.param else 1e-10
    return module_of(request.param), model_of(request.param), request.param, within


def test_logits_are_those_of_pytorch_beside_padding_too(models):
    module, model, _, within = models
    ids, segments = jnp.array([5, 6, 7, 8, 1, 4, 9]), jnp.array([0, 0, 0, 0, 1, 1, 1])
    near(model(ids, segments=segments)[4:], said_by(module, GIVEN), within=within)
    shorter = {"encoder": [5, 6], "decoder": [1]}
    first, second = duat.explain(model, [GIVEN, shorter], 7)
    near(first.completeness.value, said_by(module, GIVEN)[-1, 7], within=within)
    near(second.completeness.value, said_by(module, shorter)[-1, 7], within=within)
    assert (first.tokens, second.tokens) == (tuple("5678149"), tuple("561"))


def test_parts_of_both_texts_sum(models):
    _, model, _, _ = models
    found = duat.explain(model, GIVEN, 7)
    assert found.completeness.verdict == found.collapse_completeness.verdict == "holds"
    assert np.abs(found.collapse).min() > 0
    assert {*found.labels.values()} == {"encoder layer 0", "encoder layer 1", "decoder layer 2", "decoder layer 3"}
    for key, part in found.coefficients.items():
        elsewhere = part[4:] if "encoder" in key.scope else part[:4]
        assert not elsewhere.any() and part.any()


def test_the_difference_stands_in_both_streams_after_every_layer(models):
    module, model, _, within = models
    found = duat.contrast(model, GIVEN, OTHER, 7)
    difference = said_by(module, GIVEN)[-1, 7] - said_by(module, OTHER)[-1, 7]
    assert found.layers == (None, 0, 1, 2, 3) and found.completeness.verdict == "holds"
    assert found.rows == ("embedding", "encoder layer 0", "encoder layer 1", "decoder layer 2", "decoder layer 3")
    assert found.notes == () and tuple(row.name for row in found.view().rows) == found.rows
    assert [*found.as_dict()["flow"]][1:4:2] == ["encoder.layers.0", "decoder.layers.2"]
    near(found.flow.sum(1), np.full(LAYERS + 1, difference), within=10 * within)
    embedding, first, second, third, last = found.flow
    assert embedding[1] and not np.delete(embedding, 1).any()
    assert first[:4].all() and not first[4:].any() and second[:4].all() and not second[4:].any()
    assert third.all(), "what crosses later is still the encoder's"
    assert not last[:-1].any()


@pytest.mark.parametrize("name", CROSS_HEADS)
def test_the_heads_of_a_layer_are_counted_on_from_one_attention_to_the_next(name):
    module, model = module_of(name), model_of(name)
    found = duat.intervene(model, GIVEN, duat.edits.Heads(2, 3).set(0), 7)
    before = said_by(module, GIVEN)
    with torch.no_grad():  # the second head of the cross-attention
        module.get_submodule(CROSS_HEADS[name]).weight[:, 8:] = 0
    near(found.effects[0].alone, said_by(module, GIVEN)[-1, 7] - before[-1, 7], within=1e-4)
    assert found.completeness.verdict == "holds"
    contrast = duat.contrast(model, GIVEN, OTHER, 7, head_runs=8)
    names = [row[0] for row in contrast.view().tables[0].rows]
    assert any(label.startswith(("2.3", "3.3")) for label in names)


def without_token(module, name):
    """Take the encoder's token 1 away from all layers of a decoder of T5, or from its last one alone."""

    def all_layers(_, given):
        return (given[0] * torch.tensor([1.0, 0, 1, 1], dtype=given[0].dtype)[:, None],)

    def last_layer(_, given, named):
        (named["key_value_states"],) = all_layers(None, [named["key_value_states"]])
        return given, named

    if name == "all":
        return module.encoder.final_layer_norm.register_forward_pre_hook(all_layers)
    return module.decoder.block[1].layer[1].EncDecAttention.register_forward_pre_hook(last_layer, with_kwargs=True)


@pytest.mark.parametrize(("stream", "layers"), [(2, "all"), (3, "last")])
def test_what_is_carried_to_later_layers_can_be_edited(stream, layers):
    module, model = module_of("t5"), model_of("t5")
    before = said_by(module, GIVEN)[-1, 7]
    without_token(module, layers)
    found = duat.intervene(model, GIVEN, duat.edits.Stream(stream, tokens=1).scale(0), 7)
    near(found.effects[0].alone, said_by(module, GIVEN)[-1, 7] - before, within=1e-4)
    assert found.completeness.verdict == "holds"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            duat.edits.Stream(3).scale(0),
            "stream 3 is at tokens 4 to 6, or at 0 to 3: name tokens of one, or 'encoder' or 'decoder'",
        ),
        (duat.edits.Stream(3, tokens=[1, 5]).scale(0), "stream 3 is at tokens 4 to 6, or at 0 to 3"),
        (duat.edits.Neurons(0, 3, tokens=5).set(0), "layer 0, neuron 3 is at tokens 0 to 3: name"),
        (duat.edits.Neurons(0, 3, tokens="decoder").set(0), "layer 0, neuron 3 is at tokens 0 to 3: name"),
        (duat.edits.Stream(3, tokens="both").set(0), "token 'both' is none of 7"),
        (duat.edits.Heads(2, [1, 2]).set(0), "the heads are of several marks"),
    ],
)
def test_an_edit_names_tokens_of_one_text(edit, message):
    with pytest.raises(duat.InvalidInput, match=message):
        duat.intervene(model_of("t5"), GIVEN, edit, 7)


def test_a_baseline_keeps_the_token_that_the_decoder_begins_with():
    model = model_of("t5")
    found = duat.contrast(model, GIVEN, duat.baselines.Mean(), 7)
    assert found.flow[0, 4] == 0 and np.count_nonzero(found.flow[0]) == 6


DIRECTION = np.linspace(-1.0, 2.0, 16)


@pytest.mark.parametrize(
    "target",
    [
        duat.targets.Logit(7, position=1),
        duat.targets.LogProbability(7, position=-4),
        duat.targets.Direction(DIRECTION, position=0),
        duat.targets.Direction(DIRECTION, stream=4, position=3),
    ],
)
def test_nothing_is_read_at_a_token_of_the_encoder_after_the_decoder(target):
    with pytest.raises(duat.InvalidInput, match="is before the tokens.* the text's tokens 4 to 6") as refusal:
        duat.explain(model_of("bart"), GIVEN, target)
    assert "\n" not in str(refusal.value)


def test_every_token_of_the_decoder_can_be_read():
    said = said_by(module_of("bart"), GIVEN)
    logs = torch.log_softmax(torch.tensor(said), -1).numpy()
    targets = [duat.targets.Logit(7, position=5), duat.targets.LogProbability(7, position=4)]
    first, second = duat.explain(model_of("bart"), GIVEN, targets)
    near(first.completeness.value, said[1, 7], within=1e-10)
    near(second.completeness.value, logs[0, 7], within=1e-10)


def test_a_direction_is_read_in_one_stream_and_its_difference_stands_in_every_row():
    module, model = module_of("bart"), model_of("bart")
    unnormed, normed = [], []  # the last stream is the sum that the last layer's norm reads

    def keep(_, given, out):
        unnormed.append(given[0][0, -1].numpy())
        normed.append(out[0, -1].numpy())

    module.get_decoder().layers[1].final_layer_norm.register_forward_hook(keep)
    for given in (GIVEN, OTHER):
        said_by(module, given)
    with pytest.raises(duat.InvalidInput, match="each of the two streams has its own there; give 0, 4, or none"):
        duat.contrast(model, GIVEN, OTHER, duat.targets.Direction(DIRECTION, stream=2))
    embedded = duat.explain(model, GIVEN, duat.targets.Direction(DIRECTION, stream=0, position=1))
    assert embedded.completeness.verdict == "holds" and embedded.completeness.value
    found = duat.contrast(model, GIVEN, OTHER, duat.targets.Direction(DIRECTION, stream=LAYERS))
    near(found.flow.sum(1), np.full(LAYERS + 1, (unnormed[0] - unnormed[1]) @ DIRECTION), within=1e-8)
    states = duat.contrast(model, GIVEN, OTHER, duat.targets.Direction(DIRECTION))
    near(states.flow.sum(1), np.full(LAYERS + 1, (normed[0] - normed[1]) @ DIRECTION), within=1e-8)


QUESTIONS = {
    "attribute": lambda model: duat.attribute(model, GIVEN, OTHER, 7),
    "intervene, neurons of the decoder": lambda model: duat.intervene(
        model, GIVEN, duat.edits.Neurons(3, [2], tokens=-1).set(1.0), 7
    ),
    "intervene, neurons of the encoder": lambda model: duat.intervene(
        model, GIVEN, duat.edits.Neurons(0, [2], tokens=1).set(1.0), 7
    ),
    "intervene, another text": lambda model: duat.intervene(
        model, GIVEN, duat.edits.Heads(3, 2).set(duat.edits.FromInput(OTHER)), 7
    ),
    "many references": lambda model: duat.contrast(model, GIVEN, [OTHER, {**GIVEN, "decoder": [1, 3, 9]}], 7),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_exactly(question):
    found = QUESTIONS[question](model_of("bart"))
    if isinstance(found, duat.results.Attribution):
        near(found.scores.sum(), found.difference, within=1e-5)
    else:
        assert found.completeness.verdict == "holds"


REFUSED = {
    "no encoder": ({"decoder": [3]}, "streams called decoder: give the encoder's text, or both"),
    "another name": ({"encoder": [5], "image": [3]}, "streams called encoder, image"),
    "an empty decoder": ({"encoder": [5], "decoder": []}, "of the decoder is empty"),
    "ids beyond": (
        {"encoder": [50], "decoder": [90]},
        "of the encoder has token id 50.*of the decoder has token id 90",
    ),
    "no segments": (duat.TokenizedText([5, 6, 7]), "segments must be 3 whole numbers"),
    "segments in turns": (duat.TokenizedText([5, 6, 7], [1, 0, 1]), "0 for the encoder's tokens and then 1"),
    "other lengths": (
        GIVEN | {"encoder": [5, 6], "decoder": [1, 2, 3, 4, 5]},
        "the encoder reads 2 tokens of the text and 4",
    ),
}


@pytest.mark.parametrize("given", REFUSED)
def test_texts_that_cannot_be_read_are_refused_in_one_line(given):
    model, (inputs, message) = model_of("t5"), REFUSED[given]
    with pytest.raises(duat.InvalidInput, match=message) as refusal:
        duat.contrast(model, inputs, GIVEN, 7)
    assert "\n" not in str(refusal.value)
    with pytest.raises(duat.InvalidInput, match="reads two texts"):
        model(jnp.array([5, 6, 7]))


def tokenizer_of_words():
    """Return a tokenizer that ends every text, as those of T5 do."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefghij"]
    made = tokenizers.Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens(words[:3])
    made.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return made


def test_a_decoder_goes_on_with_what_it_said():
    model, tokenizer = model_of("t5"), tokenizer_of_words()
    pair = encode_pair(tokenizer, "a b c", "d e", model.config)
    assert pair.ids.tolist() == [4, 5, 6, 2, 1, 7, 8] and pair.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    by_name = duat.explain(model, {"encoder": "a b c", "decoder": "d e"}, "f", tokenizer=tokenizer)
    assert by_name.tokens == ("a", "b", "c", "</s>", "<s>", "d", "e")
    near(by_name.completeness.value, duat.explain(model, pair, 9).completeness.value, within=1e-12)
    encoded = duat.explain(model, tokenizer.encode("a b c"), 9, tokenizer=tokenizer)
    assert encoded.tokens == ("a", "b", "c", "</s>", "<s>")
    alone = duat.explain(model, "a b c", 9, tokenizer=tokenizer)
    assert alone.tokens == ("a", "b", "c", "</s>", "<s>") and alone.target.position == 4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The options of a checkpoint with a tokenizer."""
    path = tmp_path_factory.mktemp("t5")
    module_of("t5").float().save_pretrained(path)
    tokenizer_of_words().save(str(path / "tokenizer.json"))
    return "--model", path


COMMANDS = {
    "explain": (),
    "contrast": ("--reference", "a f c"),
    "attribute": ("--reference", "a f c"),
    "intervene": ("--reference", "a f c", "--edit", "head 3:2 set reference", "--edit", "stream 3@encoder scale 0.5"),
    "steer": ("--towards", "a b", "--away", "g h", "--layers", "3", "--tokens", "decoder"),
}


def tokens_of(shown):
    return json.loads(shown.stdout)["tokens"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_line_of_a_file_has_its_own_pair(command, checkpoint, tmp_path):
    lines = {"text": "a b c", "pair": "d e"}, {"text": "a b c"}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(command, tmp_path / "a.jsonl", "--out", tmp_path / "out", *COMMANDS[command], *checkpoint)
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert result.exit_code == 0 and [row["pair"] for row in rows] == ["d e", None], result.output
    for row, pair in zip(rows, (("--pair", "d e"), ()), strict=True):
        alone = run(command, "a b c", *pair, *COMMANDS[command], *checkpoint, "--json", "-")
        assert alone.exit_code == 0 and row["result"] == json.loads(alone.stdout), alone.output
        assert row["result"]["tokens"] == ["a", "b", "c", "</s>", "<s>", *(["d", "e"] if pair else [])]


def test_a_patch_is_from_a_reference_with_the_same_pair(checkpoint):
    _, path = checkpoint
    given, other = ({"encoder": text, "decoder": "d e"} for text in ("a b c", "a f c"))
    edit = duat.edits.Heads(3, 2).set(duat.edits.FromInput(other))
    expected = duat.intervene(duat.load(path), given, edit)
    asked = "intervene", "a b c", "--pair", "d e", "--reference", "a f c", "--edit", "head 3:2 set reference"
    found = json.loads(run(*asked, *checkpoint, "--json", "-").stdout)
    near(found["difference"], expected.difference, within=1e-6)
    assert found["effects"][0]["change"] == "layer 3, head 2, every token: set to the values on the other text"


def test_a_pair_of_a_model_of_one_text_is_refused():
    asked = run("steer", "a", "--towards", "a", "--away", "b", "--layers", 1, "--pair", "c")
    assert asked.exit_code == 2 and "reads one text, and no pair: leave --pair out" in asked.stderr


def last_state(module, stream, encoder, decoder):
    """Return what PyTorch has at the last token of a text in a stream of BART: the sum that a layer's norm reads."""
    side, layer = ("encoder", stream - 1) if stream <= 2 else ("decoder", stream - 3)
    kept = []

    def keep(_, given):
        kept.append(given[0][0, -1].numpy())

    handle = getattr(module.model, side).layers[layer].final_layer_norm.register_forward_pre_hook(keep)
    said_by(module, {"encoder": encoder, "decoder": decoder})
    handle.remove()
    return kept[0]


@pytest.mark.parametrize(("stream", "text"), [(1, "encoder"), (3, "decoder")])
def test_a_direction_is_taken_at_the_last_token_of_the_text_that_is_steered(stream, text):
    module, model, tokenizer = module_of("bart"), model_of("bart"), tokenizer_of_words()
    there, tokens = {"encoder": (range(4), "encoder"), "decoder": (range(4, 7), "decoder")}[text]
    towards, away = (
        last_state(module, stream, tokenizer.encode(each).ids, [1]) for each in ("a b", "g h c")
    )  # the decoder has only the token that it begins with
    by_name = duat.edits.Stream(stream, tokens=tokens).steer(duat.edits.SteeringVector("a b", "g h c", 2))
    found = duat.intervene(model, GIVEN, by_name, 7, tokenizer=tokenizer)
    assert found.effects[0].tokens == tuple(there)
    by_hand = duat.edits.Stream(stream, tokens=list(there)).steer(2 * (towards - away))
    near(found.difference, duat.intervene(model, GIVEN, by_hand, 7).difference, within=1e-9)


def test_a_direction_of_zeros_is_refused():
    steered = duat.edits.Stream(0, tokens=-1).steer(duat.edits.SteeringVector("a b", "g h"))
    with pytest.raises(duat.InvalidInput, match="stream 0: .* 'a b' and 'g h' have the same values"):
        duat.intervene(model_of("bart"), GIVEN, steered, 7, tokenizer=tokenizer_of_words())


UNFIT = {
    "sound of any length": (
        transformers.Speech2TextConfig,
        transformers.Speech2TextForConditionalGeneration,
        "encoder's is of input_features",
    ),
    "two tables": (transformers.MarianConfig, transformers.MarianMTModel, "another table of embeddings"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_be_read_says_why(name):
    config, architecture, message = UNFIT[name]
    sizes = SIZES | {"share_encoder_decoder_embeddings": False, "vocab_size": 50}
    with pytest.raises(duat.DuatError, match=message):
        converted(architecture(config(**sizes)), "a model")


def test_the_live_page_asks_with_what_the_decoder_said():
    model, tokenizer = model_of("t5"), tokenizer_of_words()
    described, loaded = about(model.config, "t5", 64), Loaded(model, tokenizer, 64)
    given, other = ({"encoder": text, "decoder": "d e"} for text in ("a b c", "a f c"))

    def view_of(**question):
        answer = answer_in_words(loaded, {"text": "a b c", **question}, Work(lambda doing: None))
        assert answer.problem is None, answer.problem
        return answer.view

    shown = view_of(ask="contrast", other="a f c", pair="d e")
    expected = duat.contrast(model, given, other, tokenizer=tokenizer)
    assert described.pairs and [*shown["tokens"]] == ["a", "b", "c", "</s>", "<s>", "d", "e"]
    assert [row["name"] for row in shown["rows"]] == [*expected.rows]
    near(shown["value"], expected.difference, within=1e-10)
    shown = view_of(ask="intervene", other="a f c", pair="d e", changes=["head 3:2 set reference"])
    patched = duat.intervene(model, given, duat.edits.Heads(3, 2).set(duat.edits.FromInput(other)), tokenizer=tokenizer)
    near(shown["value"], patched.difference, within=1e-10)
    assert [*view_of(ask="explain")["tokens"]] == ["a", "b", "c", "</s>", "<s>"]
    assert not about(duat.load_config(), "embedded", 64).pairs
