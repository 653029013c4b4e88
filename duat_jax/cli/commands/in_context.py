"""The command `duat in-context`."""

from typing import Annotated

import typer

from duat_jax.cli.command import command
from duat_jax.cli.groups import OldName
from duat_jax.cli.options import ModelAndDtype
from duat_jax.cli.output import Answer, PictureFiles
from duat_jax.cli.progress import progress_bar
from duat_jax.errors import InvalidInput
from duat_jax.inputs.few_shot_tasks import PAIRS


@command(
    "duat in-context --task antonyms --demonstrations 4 --model DIR",
    "duat in-context --task capitals --control exchanged --model DIR --plot context.png",
    old_name="context",
)
def in_context(
    *,
    question: Annotated[
        str | None, typer.Argument(help="The text to continue, such as 'Spain ->'; absent if a --task is given.")
    ] = None,
    demonstration: Annotated[
        list[str] | None,
        typer.Option(help="A line before the question, such as 'Italy -> Rome'. Repeat for several lines."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="The expected continuation, with its leading space; all its tokens are explained."),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="A line of other demonstrations for comparison, of as many tokens. Repeat for several lines."
        ),
        OldName("--instead"),
    ] = None,
    task: Annotated[str | None, typer.Option(help=f"Draw a question: {', '.join(PAIRS)}.")] = None,
    demonstrations: Annotated[int, typer.Option(min=1, help="Number of demonstrations drawn with a --task.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing them.")] = 0,
    control: Annotated[
        str | None,
        typer.Option(
            help="Compare drawn demonstrations with other ones instead of hidden ones: exchanged, redrawn, or a task."
        ),
    ] = None,
    source: ModelAndDtype,
    files: PictureFiles,
) -> Answer:
    """Split the effect of demonstrations on a language model's answer exactly, over what they move.

    They are compared with the same ones hidden, or with others, such as their answers exchanged.
    """
    wrong = {
        "give a question or a --task, one of them": (question is None) == (task is None),
        f"the demonstrations and the answer of {task!r} are drawn: leave out other ones": task is not None
        and bool(demonstration or reference or answer),
        "there are no demonstrations: give at least one --demonstration": task is None and not demonstration,
        "--control requires a --task: give other demonstrations by --reference": task is None and bool(control),
    }
    if problems := [problem for problem, holds in wrong.items() if holds]:
        raise InvalidInput("; ".join(problems))
    config = source.open()
    from duat_jax.in_context.compute import check, model_problems
    from duat_jax.in_context.demonstrations import explain_demonstrations, task_of
    from duat_jax.in_context.prompts import draw_question, question_of

    if problems := model_problems(config):
        raise InvalidInput("; ".join(problems))
    tokenizer, other = source.tokenizer, None
    if task is not None:
        prompt = draw_question(tokenizer, task, demonstrations, seed=seed)
        if control:
            other = draw_question(tokenizer, task, demonstrations, seed=seed, control=control)
    else:
        prompt = question_of(tokenizer, demonstration or [], question or "", answer or "")
        if reference:
            other = question_of(tokenizer, reference, question or "", answer or "")
    check(config, task_of(prompt, other))
    model = source.load()
    with progress_bar("Splitting", "steps") as progress:
        effect = explain_demonstrations(model, tokenizer, prompt, other, progress=progress)
    result = effect.ledger
    return Answer(
        result=result,
        record=effect.as_dict(source.name),
        parts=[f"{source.name}: {effect.title}", *source.notes({"--answer": answer}), result.table()],
        certified=[
            ("the account of dynamic parameters", result.completeness),
            ("the account of what layers read", result.reads_completeness),
            ("the account of the closed form's parameters", result.form.completeness),
        ],
    )
