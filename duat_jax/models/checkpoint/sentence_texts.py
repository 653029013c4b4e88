"""Changes that sentence-transformers makes to a text before its tokenizer reads it, which are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted

PROMPTS = "config_sentence_transformers.json"
SETTINGS = "sentence_bert_config.json"


def check_texts(folder: Path, tokenizer: Callable[[], Tokenizer]) -> None:
    """Raise if a sentence encoder reads other texts than it is given: with a prompt before them, or in lower case.

    The limit `max_seq_length`, where sentence-transformers cuts a text, isn't applied: texts are read whole.

    Args:
        folder: the checkpoint's directory.
        tokenizer: returns its tokenizer.

    Raises:
        BadCheckpoint: naming the field, and what to do.
    """
    prompts, settings = _fields(folder / PROMPTS), _fields(folder / SETTINGS)
    name, known = prompts.get("default_prompt_name"), prompts.get("prompts")
    if name is not None and (prompt := known.get(name) if isinstance(known, dict) else None) != "":
        raise BadCheckpoint(
            f"{folder / PROMPTS}: default_prompt_name = {quoted(name)} isn't supported: set it to null, and write the"
            f" prompt, {quoted(prompt)}, before each text"
        )
    if settings.get("do_lower_case") and not _is_lower_casing(tokenizer()):
        raise BadCheckpoint(
            f"{folder / SETTINGS}: do_lower_case = {quoted(settings['do_lower_case'])} isn't supported for a tokenizer"
            " that keeps capital letters: set it to false, and give texts in lower case"
        )


def _fields(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, which is empty if there is none."""
    content = read_json(file) if file.is_file() else {}
    if not isinstance(content, dict):
        raise BadCheckpoint(f"{file}: must be an object of fields, not {quoted(content)}")
    return content


def _is_lower_casing(tokenizer: Tokenizer) -> bool:
    return tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
