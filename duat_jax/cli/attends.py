"""The command `duat attends`."""

from typing import Annotated, Any

import typer

from duat_jax.cli.compiled import start_jax
from duat_jax.cli.explain import _read_text, check_options
from duat_jax.cli.options import Chat, Csv, Dtype, Json, Kept, Model, NoSpecialTokens, Plot, Save, renamed_option
from duat_jax.cli.output import deliver, one_line_errors, require_holding, to_json
from duat_jax.cli.progress import loading_bar, working
from duat_jax.errors import BadText


def attends(
    text: Annotated[str, typer.Argument(help="The text that the model reads.")],
    layer: Annotated[int, typer.Option(help="The layer, from 0.")],
    head: Annotated[int, typer.Option(help="The head, from 0.")],
    key: Annotated[int, typer.Option(help="The token that is attended to; negative counts from the end.")],
    query: Annotated[int, typer.Option(help="The token that attends; the last one if absent.")] = -1,
    contrast_key: Annotated[
        int | None, typer.Option(help="The token whose score is subtracted: why the first rather than the second.")
    ] = None,
    versus_key: Annotated[int | None, typer.Option(hidden=True, help="The old name of --contrast-key.")] = None,
    through_heads: Annotated[
        bool,
        typer.Option(
            "--through-heads", help="Attribute the outputs of earlier heads to the heads, not to their sources."
        ),
    ] = False,
    model: Model = None,
    no_special_tokens: NoSpecialTokens = False,
    chat: Chat = False,
    dtype: Kept = Dtype.float32,
    top: Annotated[int, typer.Option(min=1, help="Number of the largest pairs to list.")] = 10,
    plot: Plot = None,
    save: Save = None,
    csv: Csv = None,
    json_file: Json = None,
) -> None:
    """Show why a head attends from one token to another: its score as a sum over pairs of sources, exactly."""
    with one_line_errors():
        check_options((text,), plot, json_file, save, csv)
        contrast_key = renamed_option("--versus-key", versus_key, "--contrast-key", contrast_key)

        start_jax(float64=dtype is Dtype.float64)
        import jax.numpy as jnp
        import numpy as np

        import duat_jax as duat
        from duat_jax.interpret.attention.compute import check

        config = duat.load_config(model)
        if config.image is not None:
            raise BadText(f"a {config.family} model reads images: call duat.explain_attention in Python for them")
        tokenizer, inputs, _ = _read_text(model, config, text, None, None, [], not no_special_tokens, chat)
        check(config, inputs, layer, head, query, key, contrast_key)
        with loading_bar() as progress:
            loaded = duat.load(model, dtype=jnp.dtype(dtype.value), progress=progress)
        with working("Explaining the score"):
            score = duat.explain_attention(
                loaded,
                inputs,
                layer=layer,
                head=head,
                query=query,
                key=key,
                contrast=contrast_key,
                through_heads=through_heads,
                tokenizer=tokenizer,
            )
        with np.errstate(all="ignore"):
            require_holding("the score", score.completeness)
            name = "embedded" if model is None else str(model).encode(errors="replace").decode()
            content = to_json(score.as_dict(name, top))
        files: dict[str, Any] = {"plot": plot, "json_file": json_file, "save": save, "table": csv}
        deliver(content, score.table(top), figure=score.plot, result=score, **files)
