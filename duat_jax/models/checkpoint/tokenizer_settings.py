"""Settings of a tokenizer beside its `tokenizer.json`: its class, its special and its added tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer

from duat_jax.models.checkpoint.json_file import read_json
from duat_jax.models.checkpoint.limits import CONFIGURATION, check_limit
from duat_jax.models.checkpoint.problems import quoted, raise_problems

CONFIG, SPECIAL_TOKENS, ADDED_TOKENS = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
CHAT_TEMPLATE = "chat_template.jinja"

NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Names of special tokens, in the order in which they are added."""

_FLAGS = frozenset({"lstrip", "rstrip", "single_word", "normalized", "special"})

_SWITCHES = (
    "add_prefix_space",
    "do_lower_case",
    "keep_accents",
    "legacy",
    "split_special_tokens",
    "strip_accents",
    "tokenize_chinese_chars",
)
"""Fields that are true, false or null, of one class or another."""


class TokenizerSettings(NamedTuple):
    """The settings of a tokenizer that change token ids.

    Args:
        path: the file, for messages.
        family: the `model_type` of the checkpoint; absent if it isn't stated.
        stated: the name of the tokenizer's class; absent if it isn't stated.
        fields: the fields of `tokenizer_config.json`.
        named: special tokens by name, `None` where a file says that there is none.
        extra: further special tokens; absent if none are listed.
        added: tokens that texts are searched for first, in the order of their ids.
        template: the chat template; absent if there is none.
        padding: the token of the padding that `tokenizer.json` states; absent if it states none.
    """

    path: Path
    family: str | None
    stated: str | None
    fields: Mapping[str, Any]
    named: Mapping[str, AddedToken | str | None]
    extra: list[AddedToken | str] | None
    added: list[AddedToken]
    template: str | None
    padding: str | None

    def switch(self, name: str, default: bool | None) -> Any:
        """Return a field that is true or false, or its default where it is absent."""
        return self.fields.get(name, default)


def _token(value: Any, problems: list[str], name: str, **flags: bool) -> AddedToken | None:
    """Return the token that a file writes as an object, or note a problem."""
    given = {key: flag for key, flag in value.items() if key not in ("__type", "content")} | flags
    content = value.get("content")
    if isinstance(content, str) and given.keys() <= _FLAGS and all(isinstance(flag, bool) for flag in given.values()):
        return AddedToken(content, **given)
    problems.append(f"{name} = {quoted(value)} is no token: it has a content and true or false {', '.join(_FLAGS)}")
    return None


def _named(value: Any, problems: list[str], name: str, **flags: bool) -> AddedToken | str | None:
    """Return a special token, which a file writes as a text or an object, or note a problem."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _token(value, problems, name, **flags)
    problems.append(f"{name} = {quoted(value)} is no token")
    return None


def read_tokenizer_settings(folder: Path, tokenizer: Tokenizer, model_config: Any) -> TokenizerSettings:
    """Read the settings of a checkpoint's tokenizer as `AutoTokenizer` of transformers 5 does."""
    # Where `tokenizer_config.json` has no `added_tokens_decoder`, the added tokens are those of `added_tokens.json` and
    # of `tokenizer.json`, and `special_tokens_map.json` goes before the fields of `tokenizer_config.json`.
    path, problems = folder / CONFIG, list[str]()
    model_config = model_config if isinstance(model_config, dict) else {}
    fields = _object(path, problems)
    for name in ("tokenizer_class", "model_type"):
        for file, values in (("config.json", model_config), (CONFIG, fields)):
            if not isinstance(values.get(name), str | None):
                problems.append(f"{name} = {quoted(values[name])} of {file} must be a text")
    for name in _SWITCHES:
        if not isinstance(fields.get(name), bool | None):
            problems.append(f"{name} = {quoted(fields[name])} must be true or false")
    if fields.get("fast_tokenizer_files") not in (None, [], ["tokenizer.json"]):
        problems.append("fast_tokenizer_files isn't supported: rename the file that is to be read tokenizer.json")
    if fields.get("init_inputs"):
        problems.append(f"init_inputs = {quoted(fields['init_inputs'])} isn't supported")
    raise_problems(path, problems)
    given = {name: value for name, value in fields.items() if name.endswith("_token") and name not in NAMES}
    named = {name: _named(fields[name], problems, name) for name in NAMES if name in fields}
    named |= {name: _named(value, problems, name) for name, value in given.items() if isinstance(value, str | dict)}
    extra = fields.get("extra_special_tokens") or fields.get("additional_special_tokens")
    decoder = fields.get("added_tokens_decoder")
    added: dict[int, AddedToken] = {}
    if decoder is None:
        special = _object(folder / SPECIAL_TOKENS, problems)
        for name, value in special.items():
            if name.endswith("_token"):
                named[name] = _named(value, problems, name, special=True)
        listed = special.get("extra_special_tokens")
        if isinstance(listed, dict):
            extra = listed
        elif listed:
            extra = [*(extra if isinstance(extra, list) else []), *listed]
        elif not {"extra_special_tokens", "additional_special_tokens"} & fields.keys():
            extra = special.get("additional_special_tokens")
    more = fields.get("model_specific_special_tokens") or {}
    if not isinstance(more, dict):
        problems.append(f"model_specific_special_tokens = {quoted(more)} must give a token for each name")
        more = {}
    if isinstance(extra, dict):
        more, extra = more | extra, None
    named |= {name: _named(value, problems, name) for name, value in more.items()}
    if not isinstance(extra, list | None):
        problems.append(f"extra_special_tokens = {quoted(extra)} must be a list of tokens")
        extra = None
    every = None
    if extra is not None:
        tokens = [_named(value, problems, "extra_special_tokens") for value in extra]
        every = [token for token in tokens if token is not None]
    if decoder is None:
        texts = {str(token) for token in [*(named.get(name) for name in NAMES), *(every or [])] if token}
        for text, number in _object(folder / ADDED_TOKENS, problems).items():
            if isinstance(number, int):
                added[number] = AddedToken(text, normalized=text not in texts, special=text in texts)
            else:
                problems.append(f"{ADDED_TOKENS}: {quoted(text)} = {quoted(number)} is no token id")
        added |= tokenizer.get_added_tokens_decoder()
    elif isinstance(decoder, dict) and all(number.isdecimal() for number in decoder):
        for number, value in decoder.items():
            name = f"added_tokens_decoder[{quoted(number)}]"
            token = _token(value, problems, name) if isinstance(value, dict) else None
            if token is None and not isinstance(value, dict):
                problems.append(f"{name} = {quoted(value)} is no token")
            elif token is not None:
                added[int(number)] = token
    else:
        problems.append(f"added_tokens_decoder = {quoted(decoder)} must give a token for each id")
    template = _template(folder, fields, problems)
    raise_problems(path, problems)
    known = {token.content: token for token in added.values()}
    named = {name: known.get(str(token), token) if token is not None else None for name, token in named.items()}
    in_order = {name: named[name] for name in (*NAMES, *named) if name in named}
    tokens_in_order = [added[i] for i in sorted(added)]
    stated = fields.get("tokenizer_class") or model_config.get("tokenizer_class")
    family = model_config.get("model_type")
    padding = None if tokenizer.padding is None else tokenizer.padding["pad_token"]
    return TokenizerSettings(path, family, stated, fields, in_order, every, tokens_in_order, template, padding)


def _template(folder: Path, fields: Mapping[str, Any], problems: list[str]) -> str | None:
    """Return the chat template of a file of its own or of a field: of several the one that is called default."""
    file = folder / CHAT_TEMPLATE
    if file.is_file():
        check_limit(file, "bytes", file.stat().st_size, CONFIGURATION)
        return file.read_text(encoding="utf-8")
    template = fields.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[-1].get("template") if named else None
    elif isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str | None):
        problems.append(f"chat_template = {quoted(template)} must be a text")
        return None
    return template


def _object(file: Path, problems: list[str]) -> dict[str, Any]:
    """Return the content of a JSON file, which is empty if there is none."""
    content = read_json(file) if file.is_file() else {}
    if isinstance(content, dict):
        return content
    problems.append(f"{file.name} must be an object, not {quoted(content)}")
    return {}
