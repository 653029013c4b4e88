"""The tokenizer that a model carries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from duat_jax.errors import BadCheckpoint, warn_caller
from duat_jax.models.chat import is_chat, set_reads_chats, template_of
from duat_jax.models.checkpoint.place import open_checkpoint, or_embedded

LEAST_KNOWN = 0.9
"""The smallest share of a model's embeddings that its tokenizer has, without a warning.

Embeddings are often padded to a round number: Phi-2 has 51200 for 50295 tokens.
"""


def load_tokenizer(path: Path | str | None = None, *, add_special_tokens: bool = True, chat: bool = False) -> Tokenizer:
    """Load a checkpoint's tokenizer, without truncation or padding.

    A loaded model carries the one with the defaults; `model.tokenizer = load_tokenizer(path, chat=True)` replaces it,
    so that its texts are read as messages of a user. A list of messages, `[{"role": "user", "content": "Hi"}]`, is read
    in the place of a text by the checkpoint's chat template.

    If more than a tenth of the model's embeddings have no token, a warning says so: it may be another model's.

    Args:
        path: a directory with `tokenizer.json`, a `.gguf` file, also of a vocabulary alone, or `hub:OWNER/NAME` as in
            `load`; the embedded model's if absent. Of a directory `tokenizer_config.json`, `special_tokens_map.json`
            and `added_tokens.json` are read too, so that token ids are those of `AutoTokenizer` of transformers 5.
        add_special_tokens: whether the tokenizer adds the model's special tokens; without, a text has those that are
            written in it.
        chat: whether texts are read as messages of a user, by the checkpoint's chat template.

    Raises:
        BadCheckpoint: if it is missing or damaged, has settings or a class that isn't supported, or has tokens without
            an embedding in the checkpoint's model; with `chat`, if it has no chat template.

    Example:
        >>> load_tokenizer().encode("return self").tokens
        ['return', 'Ġself']
    """
    checkpoint = open_checkpoint(or_embedded(path))
    tokenizer = checkpoint.tokenizer()
    vocab = checkpoint.vocabulary_size()
    tokens = tokenizer.get_vocab()
    # A text with an added token that the model doesn't embed is refused when it is read.
    last = max(tokenizer.get_vocab(with_added_tokens=False).values(), default=-1)
    if vocab is not None and last >= vocab:
        raise BadCheckpoint(
            f"{checkpoint.settings_path}: the model embeds {vocab} tokens, but its tokenizer has token id {last}: they"
            " belong to two models"
        )
    if vocab is not None and len(tokens) < LEAST_KNOWN * vocab:
        warn_caller(
            f"{checkpoint.settings_path}: the model embeds {vocab} tokens, but its tokenizer has only {len(tokens)}:"
            " check that it is not another model's"
        )
    if chat and template_of(tokenizer) is None:
        raise BadCheckpoint(f"{checkpoint.settings_path.parent}: there is no chat template: give a text as it is")
    set_reads_chats(tokenizer, chat)
    if not add_special_tokens:
        tokenizer.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return tokenizer


@final
@dataclass(frozen=True)
class OwnTokenizer:
    """A model's tokenizer, read when it is first asked for.

    All are equal, so that weights of models with different tokenizers have one structure and can be subtracted.

    Args:
        source: the tokenizer, or the path of its checkpoint; of a model from no checkpoint absent.
    """

    source: Tokenizer | Path | None = field(compare=False, repr=False)

    @cached_property
    def value(self) -> Tokenizer:
        """The tokenizer."""
        if self.source is None:
            raise BadCheckpoint(
                "the model comes from no checkpoint and has no tokenizer: give token ids, or set model.tokenizer"
            )
        return self.source if isinstance(self.source, Tokenizer) else load_tokenizer(self.source)


def tokenizer_of(model: Any, tokenizer: Tokenizer | None = None, *inputs: Any) -> Tokenizer | None:
    """Return the given tokenizer, or else the model's own; if it can't be read and no input is a text, none."""
    if tokenizer is not None or model.config.image is not None:
        return tokenizer
    try:
        return model.tokenizer
    except BadCheckpoint:
        if any(map(is_text, inputs)):
            raise
        return None


def is_text(given: Any) -> bool:
    """Return whether an input is a text or a chat, or a list with one, or several by name."""
    if isinstance(given, Mapping):
        return any(map(is_text, given.values()))
    return isinstance(given, str) or is_chat(given) or (isinstance(given, list | tuple) and any(map(is_text, given)))
