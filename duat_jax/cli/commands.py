"""Commands with their examples, which the help shows."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any

import typer
from typer.core import TyperCommand

from duat_jax.cli.endings import check_endings
from duat_jax.cli.output import EXIT_STATUS, OPTIONS, one_line_errors

CODE = "'def get(self, key, default=None): return self.data.get(key,'"

EXAMPLES = {
    "explain": (
        f"duat explain {CODE} --html page.html",
        'duat explain "The capital of France is" --reference "The capital of Italy is" --model DIR --plot flow.png',
    ),
    "graph": (
        f"duat graph {CODE} --html graph.html",
        'duat graph "The capital of France is" --model DIR --viewer paris.json --graphml paris.graphml',
    ),
    "attends": (
        'duat attends "for i in range(10" --layer 2 --head 0 --key 1 --contrast-key 0',
        'duat attends "The capital of France is" --model DIR --layer 3 --head 1 --key 2 --json -',
    ),
    "intervene": (
        f"duat intervene {CODE} --change 'head 5:3 set 0'",
        'duat intervene "The capital of France is" --model DIR --change "neurons 20:5,7@-1 scale 2" --target " Paris"',
    ),
    "steer": (
        'duat steer "x = self." --towards "import os" --away "class Box:" --layers 3 --strength 2',
        'duat steer "I think" --towards "Love" --away "Hate" --layers 6 --model DIR --target " happy"',
    ),
    "serve": (
        "duat serve",
        'duat serve --model DIR --text "The capital of France is" --port 0',
    ),
    "circuit": (
        "duat circuit --task parameter --prompts 10",
        'duat circuit --task "indirect object" --model DIR --method secant --work circuit.work --csv circuit.csv',
    ),
    "context": (
        "duat context --task antonyms --demonstrations 4 --model DIR",
        "duat context --task capitals --control exchanged --model DIR --plot context.png",
    ),
    "faithfulness": (
        "duat faithfulness --texts 20",
        "duat faithfulness --model DIR --text sentences.txt --work faithfulness.work --json faithfulness.json",
    ),
    "prune": (
        "duat prune --text book.txt --fraction 0.3",
        "duat prune --text book.txt --fraction 0.5 --model DIR --method fisher --output smaller",
    ),
    "survey": (
        "duat survey book.txt --out survey",
        "duat survey corpus.txt --out corpus --model DIR --workers 2 --shard 1/4",
    ),
    "diff": (
        "duat diff embedded 'for i in range(10' --bits 4 --plot diff.png",
        "duat diff TUNED --reference BASE --text corpus.txt --pieces 32 --json diff.json",
    ),
    "train-ledger": (
        "duat train-ledger 'for i in range(10' --text mine.py --steps 50",
        "duat train-ledger 'The capital of France is Paris' --text corpus.txt --model DIR --work states",
    ),
    "lora train": (
        "duat lora train --text mine.txt --output adapter",
        "duat lora train --text mine.txt --output small --model DIR --rank 4",
    ),
    "lora diff": (
        f"duat lora diff adapter {CODE}",
        'duat lora diff adapter "The capital of France is" --model DIR --target " Paris" --plot diff.png',
    ),
    "lora merge": (
        "duat lora merge adapter --output merged",
        "duat lora merge small --output larger --model DIR",
    ),
    "derive": (
        "duat derive --depth 2 --block pre-norm",
        "duat derive --proof --format document > proof.tex",
    ),
    "audit": ("duat audit", "duat audit --equation 31"),
    "verify": ("duat verify --depth 3", "duat verify --model DIR --json -"),
}
"""Of every command, two lines; `DIR` is a checkpoint."""


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


def add(group: typer.Typer, command: Callable[..., Any], name: str) -> None:
    """Add a command, its summary uncut, and with its examples.

    Args:
        group: where it is added.
        command: the command.
        name: its whole name after `duat`, in `EXAMPLES`.
    """
    # After \b the lines of a paragraph stay as they are.
    examples = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in EXAMPLES[name])
    summary = " ".join((getdoc(command) or "").partition("\n\n")[0].split())
    group.command(cls=_Command, short_help=summary, epilog=f"{examples}\n\n{EXIT_STATUS}")(command)
