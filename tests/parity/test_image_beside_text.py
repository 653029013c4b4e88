"""An image or a sound beside a text: patches and tokens on one axis, answered exactly by every question."""

import copy
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from PIL import Image
from scipy.io import wavfile
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import duat_jax as duat
from duat_jax.models.config import Image as Sizes
from duat_jax.models.converted import converted
from duat_jax.models.image_beside_text import patches_of, pixels_of, reads_image
from duat_jax.pytorch.module import TorchFunction
from tests.command import run
from tests.helpers import near

BLOCKS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = BLOCKS | {"vocab_size": 40, "max_position_embeddings": 24, "bos_token_id": 1, "eos_token_id": 39}
SEEN = BLOCKS | {"hidden_size": 20, "image_size": 12, "patch_size": 4}
LLAMA = TEXT | {"model_type": "llama", "num_key_value_heads": 2}
SPEECH = {"vocab_size": 40, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "num_mel_bins": 6}
SPEECH |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
SPEECH |= {f"{side}_ffn_dim": 24 for side in ("encoder", "decoder")}
SPEECH |= {"max_source_positions": 15, "max_target_positions": 12, "decoder_start_token_id": 1, "pad_token_id": 0}
SPEECH |= {"bos_token_id": 1, "eos_token_id": 39}
MODELS = {
    "clip": lambda: transformers.CLIPModel(
        transformers.CLIPConfig(text_config=TEXT, vision_config=SEEN, projection_dim=8)
    ),
    "siglip": lambda: transformers.SiglipModel(
        transformers.SiglipConfig(text_config=TEXT | {"projection_size": 20, "pad_token_id": 0}, vision_config=SEEN)
    ),
    "llava": lambda: transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(
            text_config=LLAMA, vision_config=SEEN | {"model_type": "clip_vision_model"}, image_token_id=5
        )
    ),
    "paligemma": lambda: transformers.PaliGemmaForConditionalGeneration(
        transformers.PaliGemmaConfig(
            text_config=LLAMA | {"model_type": "gemma", "head_dim": 8},
            vision_config=SEEN | {"model_type": "siglip_vision_model", "vision_use_head": False},
            image_token_id=5,
            projection_dim=16,
        )
    ),
    "whisper": lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SPEECH)),
}
SIMILARITIES = ("clip", "siglip")
WORDS = [1, 7, 8, 9, 39]
CASES = {name: "sound" if name == "whisper" else "image" for name in MODELS}


def module_of(name):
    """Return a small model of random weights, which are large enough that its outputs differ."""
    torch.manual_seed(0)
    module = MODELS[name]().double().eval()
    module.set_attn_implementation("eager")
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    if name in SIMILARITIES:
        module.logit_scale.data.fill_(1.5)
    return module


@cache
def model_of(name):
    """Return the same as a model of this package."""
    return converted(module_of(name), "a model")


def pixels_for(name, seed=0):
    """Return random pixels, or a random spectrogram."""
    image = model_of(name).config.beside.image
    return np.random.default_rng(seed).normal(size=(image.channels, image.height, image.width))


def given_to(name, words=WORDS, seed=0):
    """Return an image and a text, or a sound and what was said of it."""
    return {CASES[name]: pixels_for(name, seed), "text": words}


def said_by(module, name, given):
    """Return PyTorch's output: a similarity, or the logits at the text's last token."""
    beside, words = model_of(name).config.beside, list(given["text"])
    if beside.placeholder is not None:
        words = [beside.placeholder] * beside.placeholders + words
    if name == "siglip":
        words = words + [0] * (24 - len(words))
    pixels, ids = torch.tensor(given[CASES[name]])[None], torch.tensor([words])
    with torch.no_grad():
        if name == "whisper":
            return module(input_features=pixels[:, 0], decoder_input_ids=ids, use_cache=False).logits[0, -1].numpy()
        if name in SIMILARITIES:
            return module(input_ids=ids, pixel_values=pixels).logits_per_image[0].numpy()
        return module(input_ids=ids, pixel_values=pixels, use_cache=False).logits[0, -1].numpy()


def output_of(name):
    """Return the number of the output that is asked about."""
    return 0 if name in SIMILARITIES else 11


def test_patches_are_cut_out_and_put_together():
    image = Sizes(height=7, width=9, channels=2, patch_height=3, patch_width=2)
    pixels = jnp.arange(2 * 7 * 9.0).reshape(2, 7, 9)
    patches = patches_of(image, pixels)
    assert patches.shape == (8, 12)
    near(patches[5].reshape(2, 3, 2), pixels[:, 3:6, 2:4], within=0)
    near(pixels_of(image, patches), pixels.at[:, 6:].set(0).at[:, :, 8:].set(0), within=0)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_pytorch_beside_padding_too(name):
    module, model, number = module_of(name), model_of(name), output_of(name)
    texts = [given_to(name), given_to(name, [1, 9, 39], seed=1)]
    found = duat.explain(model, texts, number)
    for each, text in zip(found, texts, strict=True):
        near(each.value, said_by(module, name, text)[number], within=1e-5)
        assert each.completeness.verdict == each.collapse_completeness.verdict == "holds"
        beside = model.config.beside
        assert np.abs(each.collapse[beside.image.whole : beside.tokens]).min() > 0, "every patch has a part"
        assert np.abs(each.collapse[-len(text["text"]) :]).max() > 0


def changed(name):
    """Return, by which stream is another one, an input with that."""
    given = given_to(name)
    return {"seen": given | {CASES[name]: pixels_for(name, 3)}, "text": given | {"text": [1, 7, 12, 9, 39]}}


@pytest.mark.parametrize(
    ("name", "which"),
    [*((name, "seen") for name in MODELS), *((name, "text") for name in MODELS if name not in ("siglip", "paligemma"))],
)
def test_after_every_layer_the_parts_of_both_sum_to_the_difference(name, which):
    module, model, number, other = module_of(name), model_of(name), output_of(name), changed(name)[which]
    difference = said_by(module, name, given_to(name))[number] - said_by(module, name, other)[number]
    found = duat.contrast(model, given_to(name), other, number)
    assert found.completeness.verdict == "holds"
    layers = 2 + 2  # but that LLaVA reads the layer before the last of its image
    assert len(found.flow) == 1 + layers - (name == "llava")
    near(found.flow.sum(1), np.full(len(found.flow), difference), within=1e-4)
    tokens = model.config.beside.tokens
    assert found.flow[0, :tokens].any() == (which == "seen") and found.flow[0, tokens:].any() == (which == "text")


@pytest.mark.parametrize(("name", "which"), [("clip", "seen"), ("llava", "seen"), ("whisper", "seen")])
def test_other_questions_are_answered_exactly(name, which):
    model, number, other = model_of(name), output_of(name), changed(name)[which]
    scores = duat.attribute(model, given_to(name), other, number)
    near(scores.scores.sum(), scores.difference, within=1e-4)
    for edit in (
        duat.edits.Heads(0, 1, tokens=2).set(0),
        duat.edits.Neurons(3, [2], tokens=-1).set(1.0),
        duat.edits.Stream(1, tokens=3).set(duat.edits.FromInput(other)),
    ):
        found = duat.intervene(model, given_to(name), edit, number)
        assert found.completeness.verdict != "fails" and found.effects[0].alone


def test_a_head_of_the_image_is_switched_off_as_in_pytorch():
    module, model = module_of("clip"), model_of("clip")
    before = said_by(module, "clip", given_to("clip"))[0]
    found = duat.intervene(model, given_to("clip"), duat.edits.Heads(0, 1).set(0), 0)
    changed_module = copy.deepcopy(module)
    with torch.no_grad():
        changed_module.vision_model.encoder.layers[0].self_attn.out_proj.weight[:, 10:] = 0
    after = said_by(changed_module, "clip", given_to("clip"))[0]
    near(found.effects[0].alone, after - before, within=1e-5)


def test_half_of_a_similarity_belongs_to_each_tower():
    found = duat.explain(model_of("clip"), given_to("clip"), 0)
    whole = model_of("clip").config.beside.tokens
    stack, table = model_of("clip").stack, model_of("clip").embedding.token[...]
    code, pixels = TorchFunction(stack.weights, stack.module), jnp.asarray(pixels_for("clip"))[None]
    given = {"input_ids": jnp.array([WORDS]), "attention_mask": jnp.ones((1, len(WORDS)), int)}

    def of_text(rows):
        """Return what the code says of the text beside an image that isn't moved: all of it is the text's."""
        return code(embedded=rows[None], pixel_values=pixels, **given)["logits_per_image"][0, 0]

    alone = duat.decompose(of_text, table[jnp.array(WORDS)], marks="auto").input.sum(-1)
    near(2 * found.embedding[whole:], alone, within=1e-6)
    labels = found.tokens[:whole]
    assert labels == ("whole", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "2,0", "2,1", "2,2")


ALONE = {
    "dinov2 with registers": lambda: transformers.Dinov2WithRegistersForImageClassification(
        transformers.Dinov2WithRegistersConfig(**SEEN, num_register_tokens=3, num_labels=3)
    ),
    "siglip's tower": lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**SEEN)),
}


@pytest.mark.parametrize(("name", "whole", "place"), [("dinov2 with registers", 4, 0), ("siglip's tower", 1, 3)])
def test_an_image_alone_is_read(name, whole, place):
    torch.manual_seed(0)
    module = ALONE[name]().double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model, direction = converted(module, "a model"), np.linspace(-1.0, 2.0, 20)
    first, second = np.random.default_rng(0).normal(size=(2, 3, 12, 12))
    target = 2 if model.config.head.kind == "classes" else duat.targets.Direction(direction, position=place)
    with torch.no_grad():
        outputs = [module(pixel_values=torch.tensor(each)[None]) for each in (first, second)]
    values = [
        out.logits[0, 2] if isinstance(target, int) else out.last_hidden_state[0, place - 1].numpy() @ direction
        for out in outputs
    ]
    assert duat.explain(model, first, target).completeness.verdict == "holds"
    found = duat.contrast(model, first, second, target)
    near(found.value, float(values[0]), within=1e-5)
    near(found.flow.sum(1), np.full(3, float(values[0] - values[1])), within=1e-4)
    assert len(found.tokens) == 9 + whole and found.tokens[whole] == "0,0" and not found.flow[0, :whole].any()


REFUSED = {
    "no image": ("clip", [1, 7, 39], 'is .*: give {"image": …, "text": …}, since the model reads both'),
    "another stream": ("llava", {"image": 0, "texts": [3]}, "is image, texts"),
    "a sound for an image": ("clip", {"sound": 0, "text": [3]}, "is sound, text"),
    "an image of another size": ("clip", {"image": np.zeros((3, 8, 8)), "text": WORDS}, r"\[3, 12, 12\].*not"),
    "an empty text": ("clip", {"image": np.zeros((3, 12, 12)), "text": []}, "'s text is empty"),
    "too long a text": ("clip", {"image": np.zeros((3, 12, 12)), "text": [3] * 25}, "has 25 tokens.*context is 24"),
    "some of an image's tokens": (
        "llava",
        {"image": np.zeros((3, 12, 12)), "text": [1, 5, 5, 3]},
        "has 2 tokens of images, and the image takes 9",
    ),
    "another number of frames": ("whisper", {"sound": np.zeros((1, 6, 28)), "text": [1]}, r"\[1, 6, 30\].*not"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(which):
    of, given, message = REFUSED[which]
    with pytest.raises(duat.InvalidInput, match=message) as refusal:
        duat.explain(model_of(of), given)
    assert "\n" not in str(refusal.value)


def test_an_image_stands_where_its_token_is_written():
    first = duat.explain(model_of("llava"), given_to("llava"), 11)
    written = duat.explain(model_of("llava"), given_to("llava", [5, *WORDS]), 11)
    near(first.value, written.value, within=0)
    after = duat.explain(model_of("llava"), given_to("llava", [1, 5, *WORDS[1:]]), 11)
    assert after.tokens[10:20] == ("1", *["5"] * 9) and after.completeness.verdict == "holds"


def test_the_model_is_called_with_pixels():
    model = model_of("clip")
    ids = jnp.append(jnp.zeros(model.config.beside.tokens, int), jnp.array(WORDS))
    near(model(ids, pixels=pixels_for("clip")), said_by(module_of("clip"), "clip", given_to("clip")), within=1e-5)
    with pytest.raises(duat.InvalidInput, match="give its pixels too"):
        model(ids)


def tokenizer_of_words():
    """Return a tokenizer that begins and ends every text."""
    words = ["<pad>", "<s>", *map(str, range(2, 29)), *"abcdefghij", "</s>"]
    made = tokenizers.Tokenizer(WordLevel({word: k for k, word in enumerate(words)}, unk_token="2"))
    made.pre_tokenizer = Whitespace()
    made.add_special_tokens(["<pad>", "<s>", "</s>"])
    ends = [("<s>", 1), ("</s>", 39)]
    made.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return made


def save(name, folder):
    """Save a checkpoint with its tokenizer and processor, two images or two sounds."""
    module_of(name).float().save_pretrained(folder)
    tokenizer_of_words().save(str(folder / "tokenizer.json"))
    random = np.random.default_rng(0)
    if name == "whisper":
        extractor = transformers.WhisperFeatureExtractor(
            feature_size=6, sampling_rate=240, hop_length=8, chunk_length=1, n_fft=32
        )
        extractor.save_pretrained(folder)
        for file in ("first.wav", "second.wav"):
            wavfile.write(folder / file, 240, random.integers(-20000, 20000, 200).astype(np.int16))
        return
    size = {"shortest_edge": 12}
    transformers.CLIPImageProcessor(size=size, crop_size=12).save_pretrained(folder)
    for file in ("first.png", "second.png"):
        Image.fromarray(random.integers(0, 255, (20, 16, 3), dtype=np.uint8)).save(folder / file)


def test_a_checkpoint_is_answered_by_commands(tmp_path):
    save("clip", tmp_path)
    first, second, model = tmp_path / "first.png", tmp_path / "second.png", ["--model", tmp_path]
    shown = run("explain", first, "--text", "a b", *model)
    assert shown.exit_code == 0 and "similarity" in shown.output and "holds" in shown.output, shown.output
    for reference in (second, "a c"):
        shown = run("contrast", first, "--text", "a b", "--reference", reference, *model)
        assert shown.exit_code == 0 and "holds" in shown.output, shown.output
    processed = transformers.CLIPImageProcessor.from_pretrained(tmp_path)(
        images=Image.open(first), return_tensors="np"
    )["pixel_values"][0]
    near(duat.load_image(first, tmp_path), processed, within=0)
    for arguments, message in (
        ((first,), "give a file and --text TEXT"),
        (("nowhere.png", "--text", "a"), "nowhere.png can't be read"),
        ((first, "--text", "a", "--reference", tmp_path / "third.png"), "third.png can't be read"),
    ):
        command = "contrast" if "--reference" in arguments else "explain"
        shown = run(command, *arguments, *model)
        assert shown.exit_code == 2 and message in shown.output, shown.output


def test_a_sound_is_answered_by_commands(tmp_path):
    save("whisper", tmp_path)
    first, second, model = tmp_path / "first.wav", tmp_path / "second.wav", ["--model", tmp_path]
    shown = run("contrast", first, "--text", "a b", "--reference", second, *model)
    assert shown.exit_code == 0 and "holds" in shown.output, shown.output
    random = np.random.default_rng(1)
    samples = {
        "fast": (480, random.normal(size=200), "480 samples a second, and the model takes 240"),
        "long": (240, random.normal(size=300), "lasts 1.2 s, and the model reads 1 s at most"),
        "empty": (240, np.zeros(0), "no samples"),
        "infinite": (240, np.full(9, np.inf), "some that are no numbers"),
    }
    for name, (rate, sound, message) in samples.items():
        wavfile.write(tmp_path / f"{name}.wav", rate, sound.astype(np.float32))
        with pytest.raises(duat.InvalidInput, match=message):
            duat.load_sound(tmp_path / f"{name}.wav", tmp_path)
    stereo = np.stack([random.integers(-9999, 9999, 150), np.zeros(150)], 1)
    wavfile.write(tmp_path / "stereo.wav", 240, stereo.astype(np.int16))
    wavfile.write(tmp_path / "mono.wav", 240, (stereo[:, 0] / 2 / 2**15).astype(np.float32))
    near(
        duat.load_sound(tmp_path / "stereo.wav", tmp_path),
        duat.load_sound(tmp_path / "mono.wav", tmp_path),
        within=1e-4,
    )


MOVED = {
    "clip": ([1, 7, 39, 9, 39], WORDS),
    "llava": ([1, 5, 7, 8], [5, 1, 7, 8]),
}


@pytest.mark.parametrize("name", MOVED)
def test_texts_that_are_read_at_other_tokens_are_not_contrasted(name):
    first, second = (given_to(name, words) for words in MOVED[name])
    with pytest.raises(duat.InvalidInput, match="stands at another token in the other one"):
        duat.contrast(model_of(name), first, second, output_of(name))
    with pytest.raises(duat.InvalidInput, match="none beside an image"):
        duat.contrast(model_of(name), first, second, output_of(name), alignment=[(0, 0)])


def test_a_mean_leaves_the_image_as_it_is():
    found = duat.contrast(model_of("llava"), given_to("llava"), duat.baselines.Mean(), 11)
    tokens = model_of("llava").config.beside.tokens
    assert not found.flow[0, : tokens + 9].any() and found.flow[0, tokens + 9 :].any()
    edit = duat.edits.Stream(0, tokens="image").set(duat.edits.MeanEmbedding())
    with pytest.raises(duat.InvalidInput, match="an image has no vocabulary"):
        duat.intervene(model_of("llava"), given_to("llava"), edit, 11)


OTHERS = {
    "blip 2": transformers.Blip2ForConditionalGeneration,
    "smolvlm": transformers.SmolVLMForConditionalGeneration,
    "llava next": transformers.LlavaNextForConditionalGeneration,
    "gemma 3": transformers.Gemma3ForConditionalGeneration,
    "owl": transformers.OwlViTModel,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_of_images_and_texts_are_read_as_before(name):
    with torch.device("meta"):
        module = OTHERS[name](OTHERS[name].config_class())
    assert not reads_image(module)
