"""Texts of chats as transformers' `apply_chat_template` writes them."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from chats import CHATS, KEPT, TEMPLATES, question
from tokenizer_layouts import LAYOUTS, write
from transformers import AutoTokenizer


def texts(folder: Path, template: str) -> dict[str, str | None]:
    """Return the text of each chat by its name, `None` where the template refuses it.

    Args:
        folder: where a checkpoint's tokenizer is written.
        template: the template's name.
    """
    layout = LAYOUTS["llama"]
    write(folder, layout, {"tokenizer_config.json": layout.special | {"chat_template": TEMPLATES[template]}})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found: dict[str, str | None] = {}
    for name, messages in CHATS.items():
        try:
            found[name] = tokenizer.apply_chat_template(messages, tokenize=False, **question(messages))
        except Exception:  # those of jinja2, of the template, and of wrong types
            found[name] = None
    return found


def write_texts() -> None:
    """Write the texts of every template."""
    with TemporaryDirectory() as folder:
        kept = {template: texts(Path(folder), template) for template in TEMPLATES}
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
