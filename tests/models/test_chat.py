"""Chats by a checkpoint's template, and texts that are written with their special tokens."""

import copy
import json
import pickle
import re

import jinja2
import pytest
from chats import CHATS, KEPT, TEMPLATES, USER
from command import run
from damaged import copy_checkpoint
from tokenizer_layouts import LAYOUTS, write
from tokenizers import Tokenizer

import duat_jax as duat
from duat_jax.models.chat import template_of
from duat_jax.models.encoding import encode

LAYOUT = LAYOUTS["llama"]
pytestmark = pytest.mark.filterwarnings("ignore:.*has only")


def tokenizer_of(folder, **fields):
    write(folder, LAYOUT, {"tokenizer_config.json": LAYOUT.special | fields})
    return duat.load_tokenizer(folder)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_is_written_as_the_reference_writes_it(template, tmp_path):
    tokenizer, kept = tokenizer_of(tmp_path, chat_template=TEMPLATES[template]), json.loads(KEPT.read_text())[template]
    for name, messages in CHATS.items():
        if kept[name] is None:
            with pytest.raises(duat.InvalidInput, match="the chat"):
                encode(tokenizer, messages, "the chat")
        else:
            assert template_of(tokenizer).render(messages, "the chat") == kept[name]
            written = tokenizer.encode(kept[name], add_special_tokens=False).ids
            assert encode(tokenizer, messages, "the chat") == written


@pytest.mark.parametrize("place", ["file", "field", "list", "dictionary"])
def test_the_template_is_found_where_checkpoints_have_it(place, tmp_path):
    named = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]
    fields = {"field": "a", "list": named, "dictionary": {"default": "a"}, "file": "b"}
    if place == "file":
        (tmp_path / "chat_template.jinja").write_text("a")
    assert template_of(tokenizer_of(tmp_path, chat_template=fields[place])).source == "a"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% set ns = namespace(__init__=1) %}", "begins with an underscore"),
        ("{% set ns = namespace() %}{% set ns.__a = 1 %}", "begins with an underscore"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{% include 'a' %}", "no loader"),
        ("{% if %}", "Expected an expression"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ nothing.at_all }}", "is undefined"),
    ],
)
def test_a_template_is_run_in_the_sandbox(template, words, tmp_path):
    with pytest.raises(duat.InvalidInput, match=words) as error:
        encode(tokenizer_of(tmp_path, chat_template=template), [USER], "the chat")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "user"}], "a message is"),
        ([{"content": "a"}], "a message is"),
        ([{"role": "user", "content": {1j}}], "messages hold texts"),
        ([USER, {"role": "assistant", "content": ["a"]}], "must be a text"),
    ],
)
def test_messages_that_are_none_are_refused(messages, words, tmp_path):
    with pytest.raises(duat.InvalidInput, match=words):
        encode(tokenizer_of(tmp_path, chat_template="a"), messages, "the chat")


def test_a_chat_needs_a_template_and_a_newer_jinja(tmp_path, monkeypatch):
    with pytest.raises(duat.InvalidInput, match="no chat template"):
        encode(tokenizer_of(tmp_path), [USER], "the chat")
    with pytest.raises(duat.BadCheckpoint, match="there is no chat template"):
        duat.load_tokenizer(tmp_path, chat=True)
    monkeypatch.setattr(jinja2, "__version__", "3.1.5")
    with pytest.raises(duat.InvalidInput, match=re.escape("another jinja2 than 3.1.5: pip install 'jinja2>=3.1.6'")):
        encode(tokenizer_of(tmp_path, chat_template="a"), [USER], "the chat")


def test_a_second_first_token_is_told_and_can_be_left_out(tmp_path):
    tokenizer = tokenizer_of(tmp_path)
    with pytest.warns(match="the text begins with '<s>', and the tokenizer puts another one before it"):
        assert encode(tokenizer, "<s>hello", "the text")[:2] == [1, 1]
    alone = duat.load_tokenizer(tmp_path, add_special_tokens=False)
    assert encode(alone, "<s>hello", "the text") == tokenizer.encode("<s>hello", add_special_tokens=False).ids
    assert alone.encode("hello", "hello").ids == 2 * tokenizer.encode("hello", add_special_tokens=False).ids


def chat_checkpoint(folder):
    """Write a model of whole words that reads a chat as w5, its words, w6."""
    directory = copy_checkpoint(folder)
    template = "w5 {% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}w6{% endif %}"
    (directory / "chat_template.jinja").write_text(template)
    return directory


@pytest.mark.parametrize("copied", [lambda each: pickle.loads(pickle.dumps(each)), copy.copy, copy.deepcopy])
def test_a_copy_of_a_tokenizer_reads_chats_as_it_does(copied, tmp_path):
    tokenizer_of(tmp_path, chat_template=TEMPLATES["chatml"])
    for chat in (False, True):
        tokenizer = duat.load_tokenizer(tmp_path, chat=chat)
        for given in ("hello x", [USER]):
            assert encode(copied(tokenizer), given, "it") == encode(tokenizer, given, "it")
        assert encode(tokenizer, "hello x", "it") != encode(
            duat.load_tokenizer(tmp_path, chat=not chat), "hello x", "it"
        )
    plain = Tokenizer.from_str(tokenizer.to_str())
    assert vars(copied(plain)) == {} and copied(plain).to_str() == plain.to_str()


def test_a_function_reads_a_chat_in_the_place_of_a_text(tmp_path):
    directory = chat_checkpoint(tmp_path)
    model = duat.load(directory)
    tokenizer = model.tokenizer
    chat, text = [{"role": "user", "content": "w7 w8"}], "w5 w7 w8 w6"
    of_text = duat.explain(model, text, tokenizer=tokenizer)
    assert duat.explain(model, chat, tokenizer=tokenizer).as_dict("m", 5) == of_text.as_dict("m", 5)
    several = duat.explain(model, [chat, chat], tokenizer=tokenizer)
    assert [each.tokens for each in several] == 2 * [of_text.tokens]
    assert duat.explain(model, chat).as_dict("m", 5) == of_text.as_dict("m", 5)
    model.tokenizer = None
    with pytest.raises(duat.BadCheckpoint, match="comes from no checkpoint"):
        duat.explain(model, chat)


@pytest.mark.parametrize(
    "command", ["explain", *(pytest.param(name, marks=pytest.mark.slow) for name in ("graph", "diff"))]
)
def test_a_command_reads_a_chat(command, tmp_path):
    directory = chat_checkpoint(tmp_path)
    model = [directory, directory] if command == "diff" else ["--model", directory]
    of_chat, of_text = (run(command, *model, *text) for text in (["w7 w8", "--chat"], ["w5 w7 w8 w6"]))
    assert of_chat.exit_code == of_text.exit_code == 0 and of_chat.stdout == of_text.stdout
