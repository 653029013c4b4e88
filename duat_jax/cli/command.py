"""The driver of every command: parse, ask, certify, deliver."""

import os
from collections.abc import Callable, Mapping
from inspect import Signature, getdoc
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

from duat_jax.cli.endings import check_endings
from duat_jax.cli.errors import EXIT_STATUS, OPTIONS, one_line_errors
from duat_jax.cli.groups import Options
from duat_jax.cli.output import Answer, Files, deliver
from duat_jax.cli.resident.client import stay
from duat_jax.errors import InvalidInput

CODE = "'def get(self, key, default=None): return self.data.get(key,'"
"""A text for examples."""

EXAMPLES: dict[str, tuple[str, ...]] = {}
"""Of every command, two lines; `DIR` is a checkpoint."""

OLD_NAMES: dict[str, str] = {}
"""The names of commands by their old names."""

PLACES = "json_file", "model", "texts"
"""Options that are texts for the shell, but name files."""

Question = TypeVar("Question", bound=Callable[..., Answer | None])


class _Command(TyperCommand):
    """A command whose line of usage leaves hidden arguments out, and which refuses files with wrong endings."""

    def invoke(self, ctx: Any) -> Any:
        given = {each.opts[0]: ctx.params.get(each.name) for each in self.get_params(ctx)}
        OPTIONS.set(frozenset(given))
        with one_line_errors():
            check_endings(given)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        parameters = (each for each in self.get_params(ctx) if not getattr(each, "hidden", False))
        return [self.options_metavar or "", *(piece for each in parameters for piece in each.get_usage_pieces(ctx))]


def group(**settings: Any) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


application = group(context_settings={"help_option_names": ["-h", "--help"]})


def command(
    *examples: str, within: typer.Typer = application, old_name: str | None = None
) -> Callable[[Question], Question]:
    """Return a decorator that makes a command of a question."""

    def decorate(question: Question) -> Question:
        name = getattr(question, "__name__", "").replace("_", "-")
        whole_name = name if within is application else f"{within.info.name} {name}"
        EXAMPLES[whole_name] = examples
        if old_name is not None:
            OLD_NAMES[old_name] = name
        options = Options(question)

        def run(**given: Any) -> None:
            run_question(question, options, given)

        run.__doc__ = question.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in options.parameters}
        vars(run)["__signature__"] = Signature(options.parameters)
        # After \b the lines of a paragraph stay as they are.
        shown = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples)
        summary = " ".join((getdoc(question) or "").partition("\n\n")[0].split())
        within.command(name, cls=_Command, short_help=summary, epilog=f"{shown}\n\n{EXIT_STATUS}")(run)
        return question

    return decorate


def run_question(question: Callable[..., Answer | None], options: Options, given: Mapping[str, Any]) -> None:
    """Check what a command is given, ask its question, and deliver the answer; every error is one line."""
    work = given.get("work", given.get("out"))
    with one_line_errors(work, resumable="work" in given or work is not None):
        values = options.current(given)
        arguments = options.arguments(values)
        files = next((each for each in arguments.values() if isinstance(each, Files)), Files())
        check_texts(values)
        stay()
        if files.out is not None:
            from duat_jax.cli.prompts import answer_prompts

            answer_prompts(question, options, values)
            return
        if "parquet" in values and str(text := values["text"]).endswith(".jsonl") and os.path.isfile(text):
            raise InvalidInput(f"{text} is a file: give --out DIR to ask about every line of it")
        files.check(arguments.get("work"), arguments.get("output"))
        answer = question(**arguments)
        if answer is not None:
            deliver(answer, files)


def check_texts(values: Mapping[str, Any]) -> None:
    """Raise for a text that isn't UTF-8, as a terminal may give it."""
    for name, value in values.items():
        for text in value if isinstance(value, list) else [value]:
            if name not in PLACES and isinstance(text, str) and text != text.encode(errors="ignore").decode():
                raise InvalidInput(f"{text!r} is not UTF-8: give it in UTF-8")
