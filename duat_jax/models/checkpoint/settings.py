"""A checkpoint's `config.json`: every field is read, known to be harmless, or refused by name."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from duat_jax.errors import BadCheckpoint
from duat_jax.models.checkpoint.problems import shown

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
"""Hugging Face's names of the activations in `duat_jax.nn.ACTIVATIONS`."""

LARGEST = 2**31 - 1
"""The largest size that a field may ask for."""

_BOOKKEEPING = """
    _commit_hash _name_or_path architectures model_type name_or_path transformers_version transformers.js_config
    sentence_transformers sbert_ce_default_activation_function
"""  # Where the file comes from.  A class is chosen by `model_type`; one of the checkpoint's own comes with `auto_map`.

_TRAINING = """
    gradient_checkpointing initializer_range tf_legacy_loss
"""  # How weights begin and how a loss is taken.

_KERNELS = """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal attn_implementation
    chunk_size_feed_forward dtype torch_dtype torchscript use_bfloat16 xla_device
"""  # The same function computed otherwise: what it is computed in is an argument of `load`.

_RETURNED = """
    output_attentions output_hidden_states output_past output_scores return_dict return_dict_in_generate
    use_cache use_return_dict
"""  # What a call returns beside the output.

_TOKENS = """
    begin_suppress_tokens bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id
    forced_eos_token_id mask_token_id pad_token_id prefix sep_token_id suppress_tokens tokenizer_class unk_token_id
"""  # What the tokenizer and the sampling of texts go by; padding is an argument of a call.

_GENERATION = """
    bad_words_ids diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences remove_invalid_values repetition_penalty temperature top_k top_p typical_p
"""  # How texts are sampled from the logits.

_HEADS = """
    _num_labels finetuning_task id2label label2id num_labels problem_type task_specific_params tie_encoder_decoder
"""  # Classifiers and other heads, which are not read.

HARMLESS = frozenset(" ".join((_BOOKKEEPING, _TRAINING, _KERNELS, _RETURNED, _TOKENS, _GENERATION, _HEADS)).split())
"""Fields of any family that leave the embeddings, the hidden states and the logits of a text as they are."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{', '.join(shown(name) for name in values if names.count(name) > 1)} is given twice")
    return values


def read_json(file: Path) -> Any:
    """Return what a JSON file says.

    Args:
        file: the file.

    Raises:
        BadCheckpoint: if it can't be read, isn't JSON, or gives a field twice.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{file}: not JSON ({error}); copy it again") from None


class Settings:
    """A checkpoint's `config.json`, which of its fields were read, and the problems found in them.

    Args:
        values: the parsed file.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self.unread = set(values)
        self.problems: list[str] = []

    def _take(self, name: str, default: Any = None) -> Any:
        self.unread.discard(name)
        return self.values.get(name, default)

    def rename(self, name: str, to: str) -> None:
        """Read a field under another name; both may be given if they say the same.

        Args:
            name: the other name.
            to: the name that is read.
        """
        value = self._take(name)
        if value is None:
            return
        if self.values.setdefault(to, value) != value:
            self.problems.append(f"{name} = {shown(value)} differs from {to} = {shown(self.values[to])}")

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a positive whole number.

        Args:
            name: the field.
            default: what an absent or null field means; without it the field is required.
        """
        value = self._take(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST:
            self.problems.append(f"{name} must be a positive whole number up to {LARGEST}, not {shown(value)}")
            return 1
        return value

    def divisor(self, name: str, of: str) -> int:
        """Return a positive whole number that divides another field.

        Args:
            name: the field.
            of: the field that it divides.
        """
        value, whole = self.integer(name), self.integer(of)
        if whole % value:
            self.problems.append(f"{name} = {value} must divide {of} = {whole}")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a positive number that is one in float32 too.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self._take(name, default)
        least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            self.problems.append(f"{name} must be a positive number, in float32 too, not {shown(value)}")
            return default
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self._take(name, default)
        if not isinstance(value, bool):
            self.problems.append(f"{name} must be true or false, not {shown(value)}")
            return default
        return value

    def expect(self, name: str, value: Any) -> None:
        """Note a problem unless a field has the only value that is supported, or is absent.

        Args:
            name: the field.
            value: the supported value.
        """
        found = self._take(name, value)
        if found != value:
            self.problems.append(f"{name} = {shown(found)} isn't supported, only {value!r} is")

    def activation(self, name: str, default: str) -> str:
        """Return the name of an activation in `duat_jax.nn.ACTIVATIONS`.

        Args:
            name: the field.
            default: what an absent field means.
        """
        value = self._take(name, default)
        if not isinstance(value, str) or value not in ACTIVATION_NAMES:
            self.problems.append(f"{name} = {shown(value)} isn't supported, only {', '.join(ACTIVATION_NAMES)} are")
            return "gelu"
        return ACTIVATION_NAMES[value]

    def all_problems(self, harmless: Collection[str] = ()) -> list[str]:
        """Return every problem, fields that nobody read among them unless they are null or known to be harmless.

        Args:
            harmless: fields of this family that leave the computation as it is, beside `HARMLESS`.
        """
        unknown = [
            f"{_field(name)} = {shown(self.values[name])} isn't known here and may change what the model computes"
            for name in sorted(self.unread - HARMLESS - set(harmless))
            if self.values[name] is not None
        ]
        return self.problems + unknown


def _field(name: str) -> str:
    return name if re.fullmatch(r"[\w.]{1,60}", name) else shown(name)
