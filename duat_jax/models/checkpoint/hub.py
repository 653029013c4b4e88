"""Checkpoints on the Hugging Face Hub, downloaded by `huggingface_hub` into its cache."""

import functools
import glob
import os
import re
from pathlib import Path

from duat_jax.errors import BadCheckpoint
from duat_jax.extras import requiring
from duat_jax.models.checkpoint.directory import INDEX, read_index
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.safetensors_files import WEIGHTS

PREFIX = "hub:"

FILES = (
    *("config.json", "preprocessor_config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *(WEIGHTS, INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("modules.json", "*_Pooling/config.json", "*_Dense/config.json", f"*_Dense/{WEIGHTS}"),
)
"""The files of a checkpoint, besides those that its index names; a repository often has the same weights in other
formats too."""

OWNERS = {
    **dict.fromkeys(("gpt2", "openai-gpt"), "openai-community"),
    "bert": "google-bert",
    **dict.fromkeys(("roberta", "xlm-roberta"), "FacebookAI"),
    **dict.fromkeys(("distilbert", "distilgpt2", "distilroberta"), "distilbert"),
    "albert": "albert",
}
"""The owners of models that were published without one, by how the models' names begin."""

REPOSITORY = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[^\s@]+))?", re.ASCII)


def hub_name(path: str) -> str | None:
    """Return the address of the hub's model that a path looks like, or `None`.

    Example:
        >>> hub_name("bert-base-cased"), hub_name("a/b/c")
        ('hub:google-bert/bert-base-cased', None)
    """
    if REPOSITORY.fullmatch(path):
        return f"{PREFIX}{path}"
    owner = next((OWNERS[name] for name in OWNERS if path == name or path.startswith(f"{name}-")), None)
    return owner and f"{PREFIX}{owner}/{path}"


def download(model: str) -> Path:
    """Download a checkpoint of the Hugging Face Hub, unless it is in the cache already, and return its directory."""
    # A process asks the hub once, so that configuration, tokenizer and weights are those of one commit. Without a
    # connection, a checkpoint in the cache is used as it is.
    matched = REPOSITORY.fullmatch(model.removeprefix(PREFIX))
    if matched is None:
        raise BadCheckpoint(
            f"{quoted(model)} names no model of the hub: give hub:OWNER/NAME or hub:OWNER/NAME@REVISION, such as"
            " hub:HuggingFaceTB/SmolLM2-135M"
        )
    with requiring("hub", model, BadCheckpoint):
        from huggingface_hub import constants, errors
    name, revision = matched["name"], matched["revision"]
    endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    try:
        return snapshot(name, revision, endpoint)
    except errors.GatedRepoError:  # a RepositoryNotFoundError too
        why = f"its owner asks for consent: accept the terms on {endpoint}/{name}, and log in (hf auth login)"
    except errors.RepositoryNotFoundError:
        why = f"{endpoint} has no such model, or a private one: check the name, or log in (hf auth login)"
    except errors.RevisionNotFoundError:
        why = f"{endpoint}/{name} has no revision {quoted(revision)}: give one of its branches, tags or commits"
    except errors.LocalEntryNotFoundError:
        why = (
            f"{endpoint} can't be reached, and the cache {constants.HF_HUB_CACHE} doesn't have it: check the"
            " connection, or give a directory or a .gguf file"
        )
    except BadCheckpoint:  # the index's
        raise
    except errors.HFValidationError as error:
        why = str(error)
    except Exception as error:  # the HTTP library's, which isn't the same one in every version
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's
        why = f"the download failed ({type(error).__name__}: {error}); run it again, and it goes on where it stopped"
    raise BadCheckpoint(" ".join(f"{model}: {why}".split())) from None


@functools.cache
def snapshot(name: str, revision: str | None, endpoint: str) -> Path:
    """Download a repository's checkpoint with `huggingface_hub`, once in a process."""
    from huggingface_hub import snapshot_download

    folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(FILES), endpoint=endpoint))
    if (folder / INDEX).is_file() and not (folder / WEIGHTS).is_file():
        weights = [glob.escape(file) for file in sorted(set(read_index(folder / INDEX).values()))]
        snapshot_download(name, revision=folder.name, allow_patterns=weights, endpoint=endpoint)  # of the same commit
    return folder
