"""The command `duat context`."""

from typing import Annotated

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import _require_holding
from duat_jax.cli.options import Dtype, Json, Kept, Model, Plot
from duat_jax.cli.output import check_outputs, deliver, one_line_errors, to_json
from duat_jax.cli.progress import loading_bar, progress_bar
from duat_jax.in_context.tasks import PAIRS


def context(
    question: Annotated[
        str | None, typer.Argument(help="What is to be continued, such as 'Spain ->'; none if a --task is given.")
    ] = None,
    demonstration: Annotated[
        list[str] | None,
        typer.Option(help="A line before the question, such as 'Italy -> Rome'. Give several by several options."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="What should come next, with its leading space; its first token is asked for."),
    ] = None,
    instead: Annotated[
        list[str] | None,
        typer.Option(help="A line of other demonstrations, with which the given ones are compared; as many tokens."),
    ] = None,
    task: Annotated[str | None, typer.Option(help=f"Draw a question: {', '.join(PAIRS)}.")] = None,
    demonstrations: Annotated[int, typer.Option(min=1, help="How many are drawn with a --task.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Which ones are drawn.")] = 0,
    control: Annotated[
        str | None,
        typer.Option(
            help="Compare drawn demonstrations with others, not with hidden ones: exchanged, redrawn, a task."
        ),
    ] = None,
    model: Model = None,
    dtype: Kept = Dtype.float32,
    plot: Plot = None,
    json_file: Json = None,
) -> None:
    """Split what demonstrations add to a language model's answer, exactly, over what they move.

    They are compared with the same ones hidden, or with others: their answers exchanged, for what the mapping adds.
    """
    with one_line_errors():
        check_outputs(plot, json_file)
        start_jax(float64=dtype is Dtype.float64)
        import duat_jax as duat
        from duat_jax.display.tables import token_label
        from duat_jax.in_context.compute import ledger
        from duat_jax.in_context.controls import exchange
        from duat_jax.in_context.prompts import draw_question, question_of
        from duat_jax.in_context.reach import reach
        from duat_jax.in_context.table import render

        if (question is None) == (task is None):
            raise duat.BadText("give a question or a --task, one of them")
        if task is not None and (demonstration or instead or answer):
            raise duat.BadText(f"the demonstrations and the answer of {task!r} are drawn: leave the others out")
        if task is None and not demonstration:
            raise duat.BadText("there is nothing to account for: give at least one --demonstration")
        if task is None and control:
            raise duat.BadText("a --control is that of a --task: give other demonstrations by --instead")
        tokenizer = duat.load_tokenizer(model)
        other = None
        if task is not None:
            asked = draw_question(tokenizer, task, demonstrations, seed=seed)
            if control:
                other = draw_question(tokenizer, task, demonstrations, seed=seed, control=control)
        else:
            asked = question_of(tokenizer, demonstration or [], question or "", answer or "")
            if instead:
                other = question_of(tokenizer, instead, question or "", answer or "")
        compared = asked.task if other is None else exchange(asked, other)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=dtype.value, progress=progress)
        with progress_bar("Splitting", "steps") as progress:
            found = ledger(loaded, compared, progress=progress)
        for what, completeness in (
            ("the account of dynamic parameters", found.completeness),
            ("the account of what layers read", found.reads_completeness),
            ("the account of the closed form's parameters", found.form.completeness),
        ):
            _require_holding(what, completeness)
        name = "embedded" if model is None else str(model).encode(errors="replace").decode()
        tokens = [tokenizer.decode([int(token)], skip_special_tokens=False) for token in asked.ids]
        said = tokenizer.decode([asked.answer], skip_special_tokens=False)
        joined = reach(loaded, asked.task.ids)
        content = to_json(
            {
                "model": name,
                "text": asked.text,
                "other": None if other is None else other.text,
                "words": tokens,
                "hidden": asked.hidden.tolist(),
                "answer": said,
                **found.as_dict(),
                "reach": {
                    "density": joined.density.tolist(),
                    "distance": joined.distance.mean(1).tolist(),
                    "tokens_read": joined.tokens_read.mean(1).tolist(),
                },
            }
        )
        title = f"{name}: {token_label(said)!r} after {int(asked.hidden.sum())} tokens of demonstrations"
        if other is not None:
            title += ", compared with others"
        deliver(content, title, render(found), figure=found.plot, plot=plot, json_file=json_file)
