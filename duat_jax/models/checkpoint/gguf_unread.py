"""Messages on GGUF files that aren't read, which say what to load in their place."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from duat_jax.models.checkpoint.problems import quoted

DIRECTORIES = {
    "chatglm": "glm",
    "gptj": "gptj",
    "granitemoe": "granitemoe",
    "modern-bert": "modernbert",
    "starcoder": "gpt_bigcode",
}
"""The families of architectures that are read from Hugging Face's directories alone."""

_REMEDY = "load the Hugging Face directory that the file was converted from (config.json and safetensors)"


def unread_architecture(path: Path, name: Any, supported: Iterable[str]) -> str:
    """Return the message on a file whose architecture isn't supported."""
    family = DIRECTORIES.get(name) if isinstance(name, str) else None
    known = f", which is read as a {family}" if family else ""
    only = ", ".join(supported)
    return f"{path}: general.architecture = {quoted(name)} isn't supported, only {only} are: {_REMEDY}{known}"


def unread_bert(path: Path, tokenizer: Any) -> str:
    """Return the message on a file of a BERT with another model's tokenizer."""
    return (
        f"{path}: a bert whose tokenizer.ggml.model = {quoted(tokenizer)} is a RoBERTa without the rows before its"
        f" first place, which isn't supported: {_REMEDY}, which is read as a roberta, xlm-roberta or camembert"
    )
