"""Chats as texts, by the template that a checkpoint brings."""

import copyreg
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, final

from tokenizers import Tokenizer

from duat_jax.errors import InvalidInput
from duat_jax.extras import install, requiring
from duat_jax.models.checkpoint.problems import quoted

if TYPE_CHECKING:
    from jinja2 import Environment

Message = Mapping[str, Any]
"""One message of a chat: its `"role"`, such as `"system"`, `"user"` or `"assistant"`, and its `"content"`."""

OLDEST = (3, 1, 6)
"""The oldest jinja2 that is used: the sandbox of those before can be left, and templates come with checkpoints."""

_CONTINUED = "CONTINUED-HERE "
_REASONING = ("reasoning_content", "thinking", "reasoning")


STREAMS = {"encoder", "image", "sound"}
"""The names of what stands before a text, one of which an input of several streams has."""


def is_chat(given: Any) -> bool:
    """Return whether an argument is a list of messages, and not one of several streams by name."""
    if not isinstance(given, list | tuple):
        return False
    messages = [isinstance(each, Mapping) and not STREAMS & {*each} for each in given]
    return bool(messages) and all(messages)


@final
@dataclass(frozen=True)
class ChatTemplate:
    """A checkpoint's chat template: a program of jinja2, which is run in its sandbox.

    Args:
        source: the program.
        tokens: the special tokens that it may write, by name.

    Example:
        >>> template = ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", {})
        >>> template.render([{"role": "user", "content": "Hi"}], "the chat")
        '<user>Hi'
    """

    source: str
    tokens: Mapping[str, str]

    def render(self, messages: Sequence[Message], what: str) -> str:
        """Return a chat as text, as pipelines of transformers write it."""
        # The model's answer begins after the text; a last message of the assistant is one that it has begun.
        environment = _environment()
        from jinja2 import TemplateError

        try:
            chat = [_message(each) for each in json.loads(json.dumps([dict(each) for each in messages]))]
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{what}: messages hold texts, numbers, lists and objects of them ({error})") from None
        for each in chat:
            if not isinstance(each.get("role"), str) or "content" not in each:
                raise InvalidInput(f"{what}: a message is {{'role': …, 'content': …}}, not {quoted(each)}")
        begun = chat[-1]["content"] if chat[-1]["role"] == "assistant" else None
        if begun is not None:
            if not isinstance(begun, str):
                raise InvalidInput(f"{what}: the assistant's last message must be a text, not {quoted(begun)}")
            chat[-1]["content"] = begun + _CONTINUED
        try:
            text = environment.from_string(self.source).render(
                messages=chat, tools=None, documents=None, add_generation_prompt=begun is None, **self.tokens
            )
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            raise InvalidInput(f"the chat template can't write {what}: {' '.join(str(error).split())[:200]}") from None
        if begun is None:
            return text
        before, mark, after = text.rpartition(_CONTINUED.strip())
        if not mark or begun.strip() not in before:
            raise InvalidInput(
                f"the chat template leaves out the assistant's last message: end {what} with another one"
            )
        return before if after.startswith(" ") else before.rstrip()


def template_of(tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the chat template of a tokenizer's checkpoint, if there is one."""
    return vars(tokenizer).get("chat_template")


def set_template(tokenizer: Tokenizer, source: str | None, tokens: Mapping[str, Any]) -> None:
    """Give a tokenizer a chat template."""
    known = {name: str(token) for name, token in tokens.items() if token is not None}
    vars(tokenizer)["chat_template"] = None if source is None else ChatTemplate(source, known)


def reads_chats(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer reads texts as messages of a user."""
    return vars(tokenizer).get("reads_chats", False)


def set_reads_chats(tokenizer: Tokenizer, chat: bool) -> None:
    """Let a tokenizer read texts as messages of a user, or as they are."""
    vars(tokenizer)["reads_chats"] = chat


def _reduced(tokenizer: Tokenizer) -> Any:
    """Return what a copy of a tokenizer is made of: its own state leaves its attributes out."""
    attributes = vars(tokenizer)
    return (_restored, (tokenizer.to_str(), attributes)) if attributes else tokenizer.__reduce_ex__(2)


def _restored(content: str, attributes: dict[str, Any]) -> Tokenizer:
    """Return a tokenizer with its attributes."""
    tokenizer = Tokenizer.from_str(content)
    vars(tokenizer).update(attributes)
    return tokenizer


copyreg.pickle(Tokenizer, _reduced)


def encode_chat(tokenizer: Tokenizer, messages: Sequence[Message], what: str) -> list[int]:
    """Return a chat's token ids: its template writes the special tokens, and none is added."""
    template = template_of(tokenizer)
    if template is None:
        raise InvalidInput(f"{what} is a chat, and the tokenizer has no chat template: give a text")
    return tokenizer.encode(template.render(messages, what), add_special_tokens=False).ids


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without absent values, with its reasoning under the names that templates read."""
    message = {key: value for key, value in message.items() if value is not None}
    reasoning = next((message[key] for key in _REASONING if key in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _environment() -> "Environment":
    """Return the sandbox with the filters and functions that chat templates use."""
    with requiring("chat", "a chat template", InvalidInput):
        import jinja2
        from jinja2 import ext, nodes, sandbox, utils
    if tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdecimal()) < OLDEST:
        raise InvalidInput(f"chat templates need another jinja2 than {jinja2.__version__}: {install('chat')}")

    class Generation(ext.Extension):
        """The block that marks what the assistant says: its body."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 reads it from the class

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

        def body(self, caller: Any) -> str:
            return caller()

    class Namespace(utils.Namespace):
        """Variables that outlive a loop, none of whose names leads into the interpreter."""

        def __init__(*args: Any, **named: Any) -> None:
            for name in dict(*args[1:], **named):
                _require_public(name)
            utils.Namespace.__init__(*args, **named)

        def __setitem__(self, name: str, value: Any) -> None:
            _require_public(name)
            super().__setitem__(name, value)

    class Dict:
        """The constructor of dictionaries, without its attributes."""

        def __call__(self, *args: Any, **named: Any) -> dict[Any, Any]:
            return dict(*args, **named)

        def fromkeys(self, *args: Any) -> dict[Any, Any]:
            return dict.fromkeys(*args)

    def _require_public(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"{name!r} begins with an underscore")

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def as_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals |= {
        "raise_exception": refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": Dict(),
        "namespace": Namespace,
    }
    return environment
