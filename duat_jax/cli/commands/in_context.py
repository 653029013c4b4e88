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
    from duat_jax.in_context.compute import check, ledger, model_problems
    from duat_jax.in_context.controls import exchange
    from duat_jax.in_context.prompts import draw_question, question_of
    from duat_jax.in_context.reach import measure_reach
    from duat_jax.in_context.record import ContextRecord
    from duat_jax.inputs.labels import readable
    from duat_jax.json_record import as_record
    from duat_jax.models.vocabulary.running import run_texts
    from duat_jax.models.vocabulary.token import in_quotes
    from duat_jax.models.vocabulary.visible import visible

    if problems := model_problems(config):
        raise InvalidInput("; ".join(problems))
    tokenizer = source.tokenizer
    reference_prompt = None
    if task is not None:
        prompt = draw_question(tokenizer, task, demonstrations, seed=seed)
        if control:
            reference_prompt = draw_question(tokenizer, task, demonstrations, seed=seed, control=control)
    else:
        prompt = question_of(tokenizer, demonstration or [], question or "", answer or "")
        if reference:
            reference_prompt = question_of(tokenizer, reference, question or "", answer or "")
    compared = prompt.whole if reference_prompt is None else exchange(prompt, reference_prompt, whole=True)
    check(config, compared)
    model = source.load()
    with progress_bar("Splitting", "steps") as progress:
        result = ledger(model, compared, progress=progress)
    ((_, answer_text),) = run_texts(tokenizer, [[prompt.ids.tolist(), prompt.answers]])
    reached = measure_reach(model, compared.ids)
    title = (
        f"{source.name}: {in_quotes(visible(answer_text))} after {int(prompt.hidden.sum())} tokens of demonstrations"
    )
    if reference_prompt is not None:
        title += ", compared with others"
    if len(prompt.answers) > 1:
        title += f"; a mean over the {len(prompt.answers)} tokens of the answer"
    return Answer(
        result=result,
        record=as_record(
            ContextRecord,
            prompt,
            **{name: value for name, value in result.as_dict().items() if name not in ("kind", "version")},
            model=source.name,
            reference=None if reference_prompt is None else reference_prompt.text,
            words=readable(tokenizer, compared.ids.tolist()),
            hidden=compared.hidden,
            answer=answer_text,
            reach={
                "density": reached.density,
                "distance": reached.distance.mean(1),
                "tokens_read": reached.tokens_read.mean(1),
            },
        ),
        parts=[title, *source.notes({"--answer": answer}), result.table()],
        certified=[
            ("the account of dynamic parameters", result.completeness),
            ("the account of what layers read", result.reads_completeness),
            ("the account of the closed form's parameters", result.form.completeness),
        ],
    )
