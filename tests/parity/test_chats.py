"""Chats as texts and as token ids against transformers' `apply_chat_template`, live."""

import json

import pytest
from chats import CHATS, KEPT, TEMPLATES, question
from tokenizer_layouts import LAYOUTS, write
from transformers import AutoTokenizer

import duat_jax as duat
from duat_jax.models.chat import template_of
from duat_jax.models.encoding import encode

from .chats import texts


@pytest.mark.filterwarnings("ignore:.*has only")
@pytest.mark.parametrize("layout", ["llama", "bert", "gpt2", "gemma", "qwen2"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_is_the_references(layout, template, tmp_path):
    case = LAYOUTS[layout]
    special = {name: token for name, token in case.special.items() if name != "eos_token"}  # the class's own
    write(tmp_path, case, {"tokenizer_config.json": special | {"tokenizer_class": case.name}})
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[template])
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path), duat.load_tokenizer(tmp_path)
    refused = 0
    for messages in CHATS.values():
        given = question(messages)
        try:
            expected = theirs.apply_chat_template(messages, tokenize=False, **given)
        except Exception:
            with pytest.raises(duat.InvalidInput):
                encode(ours, messages, "the chat")
            refused += 1
            continue
        assert template_of(ours).render(messages, "the chat") == expected
        assert encode(ours, messages, "the chat") == theirs.apply_chat_template(messages, return_dict=False, **given)
    without = template == "llama2" and case.special.get("bos_token") is None  # this template needs the first token
    assert refused == len(CHATS) if without else refused < len(CHATS) / 2


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_kept_texts_are_the_references(template, tmp_path):
    assert texts(tmp_path, template) == json.loads(KEPT.read_text())[template]
