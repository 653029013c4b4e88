"""Changes that sentence-transformers makes to a text before the model reads it, which are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.problems import quoted

PROMPTS = "config_sentence_transformers.json"
SETTINGS = "sentence_bert_config.json"
OLD_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The names of the same file that sentence-transformers takes where there is none of the first."""

UNLIMITED = 10**20
"""The number from which on transformers takes a length for none."""


def check_texts(folder: Path, tokenizer: Callable[[], Tokenizer]) -> None:
    """Raise if a sentence encoder reads other texts than it is given: with a prompt before them, or in lower case."""
    prompts, (file, settings) = _fields(folder / PROMPTS), _settings(folder)
    name, known = prompts.get("default_prompt_name"), prompts.get("prompts")
    if name is not None and (prompt := known.get(name) if isinstance(known, dict) else None) != "":
        raise BadCheckpoint(
            f"{folder / PROMPTS}: default_prompt_name = {quoted(name)} isn't supported: set it to null, and write the"
            f" prompt, {quoted(prompt)}, before each text"
        )
    if settings.get("do_lower_case") and not _is_lower_casing(tokenizer()):
        raise BadCheckpoint(
            f"{file}: do_lower_case = {quoted(settings['do_lower_case'])} isn't supported for a tokenizer"
            " that keeps capital letters: set it to false, and give texts in lower case"
        )


def longest_text(folder: Path) -> int | None:
    """Return the number of tokens, with special ones, at which sentence-transformers cuts a text, if it does."""
    file, settings = _settings(folder)
    length = settings.get("max_seq_length")
    if length is None:
        file = folder / "tokenizer_config.json"
        length = _fields(file).get("model_max_length")
    if not isinstance(length, int | float | None) or isinstance(length, bool):
        raise BadCheckpoint(f"{file}: the length of a text must be a whole number, not {quoted(length)}")
    if not length or length > UNLIMITED:
        return None
    return int(length)


def _settings(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the file with the settings of a sentence encoder's texts, and its fields."""
    files = [folder / name for name in (SETTINGS, *OLD_SETTINGS)]
    return next(((file, fields) for file in files if (fields := _fields(file))), (files[0], {}))


def _fields(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, which is empty if there is none."""
    content = read_json(file) if file.is_file() else {}
    if not isinstance(content, dict):
        raise BadCheckpoint(f"{file}: must be an object of fields, not {quoted(content)}")
    return content


def _is_lower_casing(tokenizer: Tokenizer) -> bool:
    return tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
