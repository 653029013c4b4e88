"""A checkpoint's `config.json`: every field is read, known to be harmless, or refused by name."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from duat_jax.models.checkpoint.fields import JsonFields
from duat_jax.models.checkpoint.harmless import HARMLESS
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.checkpoint.reference_fields import ReferenceFields

MOST_CLASSES = 10**6
"""The largest number of classes without names, so that an absurd number takes no memory."""


HEAD_KINDS = {
    "ForCausalLM": "next token",
    "LMHeadModel": "next token",
    "ForConditionalGeneration": "next token",
    "MTModel": "next token",  # Marian's
    "ForMaskedLM": "masked token",
    "ForSequenceClassification": "classes",
    "ForImageClassification": "classes",
    "Model": "hidden",
}
"""The kind of head of the class from which a checkpoint was saved, by the suffix of its name."""

OF_THE_HEAD = ("architectures", "id2label", "label2id", "num_labels", "tie_word_embeddings")
"""The fields of a wrapper that say what is read out."""


def text_fields(values: Any) -> Any:
    """Return the fields of the language model: those of `text_config` in a wrapper's `config.json`, or all of them."""
    inner = values.get("text_config") if isinstance(values, dict) else None
    if not isinstance(inner, dict):
        return values
    # The head is the wrapper's, and so is whether it is tied.
    return {**inner, **{name: values.get(name) for name in OF_THE_HEAD}}


class Settings(JsonFields):
    """A checkpoint's `config.json`, with the fields not yet read and the problems found.

    Args:
        values: the parsed file.
        head: the wanted kind of head; that of the file if absent.
        path: the prefix of the fields' names in messages.
    """

    def __init__(self, values: Mapping[str, Any], head: str | None = None, path: str = "") -> None:
        super().__init__(values, path)
        self.wanted_head = head
        self.groups: dict[str, Settings] = {}

    def group(self, name: str) -> "Settings | None":
        """Return the fields of a nested object, or `None` if it is absent or null.

        Args:
            name: the field.
        """
        value = self._take(name)
        if value is None or name in self.groups:
            return self.groups.get(name)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self._problem(name, f"must be an object of fields, not {quoted(value)}")
            value = {}
        self.groups[name] = Settings(value, path=f"{self.path}{name}.")
        return self.groups[name]

    def head(self, supported: Collection[str], default: str) -> str:
        """Return the kind of head: the wanted one, or that of the class from which the checkpoint was saved.

        Args:
            supported: the kinds of head that the family has.
            default: the kind if neither gives one.
        """
        if self.wanted_head is not None:
            if self.wanted_head not in supported:
                self.problems.append(
                    f"head = {quoted(self.wanted_head)} isn't supported, only {', '.join(supported)} are"
                )
                return default
            return self.wanted_head
        names = self._take("architectures")
        name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        kind = next((kind for end, kind in HEAD_KINDS.items() if name.endswith(end)), None)
        if kind is not None and kind in supported:
            return kind
        # Hidden states are the same under any head; any other read-out would be one that the model doesn't have.
        if name and default != "hidden":
            choices = " or ".join(repr(kind) for kind in supported if kind != "classes")
            self._problem(
                "architectures", f"= {quoted(names)} has a read-out that isn't supported: load it with head={choices}"
            )
        return default

    def labels(self) -> tuple[str, ...]:
        """Return the names of the classes, in the order of their numbers; two default names if absent."""
        value, count = self._take("id2label"), self._take("num_labels")
        if isinstance(value, dict) and value and all(isinstance(label, str) for label in value.values()):
            numbers = sorted(value, key=lambda number: (len(number), number))
            if numbers == [str(i) for i in range(len(numbers))]:
                return tuple(value[number] for number in numbers)
        if value is not None:
            self._problem("id2label", f"must name the classes 0, 1, …, not {quoted(value)}")
        classes = 2 if count is None else count
        if not isinstance(classes, int) or isinstance(classes, bool) or not 1 <= classes <= MOST_CLASSES:
            self._problem("num_labels", f"must be a positive whole number, not {quoted(count)}")
            classes = 2
        return tuple(f"LABEL_{i}" for i in range(classes))

    def all_problems(self, harmless: Collection[str] = (), reference: ReferenceFields | None = None) -> list[str]:
        """Return every problem, including fields that nothing reads, unless they are null or harmless.

        Args:
            harmless: fields of this family that don't affect the computation, besides those that do so in no family.
            reference: the fields that the reference implementation reads; if absent, every field counts.
        """
        unknown = self._unknown(harmless)
        if reference is not None:
            unknown = [name for name in unknown if reference.changes(name, self.values[name])]
        refused = [
            f"{self.path}{_field(name)} = {quoted(self.values[name])} isn't known here and may change what the model"
            " computes"
            for name in unknown
        ]
        inside = [
            problem
            for name, group in self.groups.items()
            for problem in group.all_problems((), None if name == "quantization_config" else reference)
        ]
        return list(dict.fromkeys(self.problems + inside + refused))

    def ignored(self, harmless: Collection[str], reference: ReferenceFields) -> list[str]:
        """Return the fields that neither the family's reader nor the reference implementation knows.

        Args:
            harmless: as in `all_problems`.
            reference: the fields that the reference implementation reads.
        """
        known = reference.read.keys() | reference.unread
        inside = [name for group in self.groups.values() for name in group.ignored((), reference)]
        return inside + [self.path + _field(name) for name in self._unknown(harmless) if name not in known]

    def _unknown(self, harmless: Collection[str]) -> list[str]:
        known = set(harmless) if self.path else HARMLESS | set(harmless)
        return [name for name in sorted(self.unread - known) if self.values[name] is not None]


def _field(name: str) -> str:
    return name if re.fullmatch(r"[\w.]{1,60}", name) else quoted(name)
