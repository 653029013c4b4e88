"""Contrast two inputs: split the difference of a target exactly over tokens, heads and neurons."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from duat_jax.deprecation import renamed_arguments
from duat_jax.errors import InvalidInput
from duat_jax.forms.secant import Secant, names_of
from duat_jax.forms.split import Split, split_between
from duat_jax.inputs.baseline_kinds import Baseline
from duat_jax.inputs.baselines import ContrastQuestion, ask_contrast
from duat_jax.inputs.images import seen_by
from duat_jax.inputs.model_inputs import ManyInputs, OneInput
from duat_jax.interpret.comparison import compare_runs
from duat_jax.interpret.contrast.heads import run_heads
from duat_jax.interpret.contrast.result import Contrast
from duat_jax.interpret.many_inputs import answers_each_input
from duat_jax.interpret.moves import SOURCES, LargestMoves, edges_of, largest_moves
from duat_jax.interpret.pipeline import forward_from, rows_of_tokens
from duat_jax.marking import program
from duat_jax.marking.streams import layer_before, rows_of_streams
from duat_jax.models.checkpoint.problems import quoted
from duat_jax.models.sites import HEADS, NEURONS, PATTERN, VALUES
from duat_jax.models.targets.base import OneTarget, Reader
from duat_jax.models.transformer import Transformer
from duat_jax.models.units import encoder_layers_of
from duat_jax.models.validation import require_loaded, whole_number
from duat_jax.nn.linear import PRECISION
from duat_jax.transform import marks
from duat_jax.transform.keys import Marked, Site
from duat_jax.transform.stored_program import stored_program

if TYPE_CHECKING:
    from tokenizers import Tokenizer


MIXED, ACTIVATED = (HEADS, program.MIXED), (NEURONS, program.NEURONS)
"""The names of points: those of this package's models, and those that `duat.auto` places."""


class _ContrastParts(NamedTuple):
    flow: Marked[Float[Array, "tokens"]]
    heads: Marked[Float[Array, "tokens heads"]]
    neurons: Marked[Float[Array, "tokens neurons"]]
    moved: Marked[Float[Array, ""]]
    moves: Marked[LargestMoves]


@renamed_arguments(given="inputs", other="reference")
@answers_each_input
def contrast(
    model: Transformer,
    inputs: "OneInput | ManyInputs",
    reference: "OneInput | Baseline | Sequence[OneInput | Baseline]",
    target: "OneTarget" = None,
    *,
    contrast: int | str | None = None,
    against: "OneInput | None" = None,
    position: int | None = None,
    alignment: Sequence[tuple[int, int]] | np.ndarray | None = None,
    held: bool | str | Iterable[str] = (),
    head_runs: int = 0,
    tokenizer: "Tokenizer | None" = None,
) -> Contrast:
    """Split the difference of a number between two inputs, `f(x) − f(y)`, exactly, at every layer of a model.

    Every product is replaced by its values at the midpoint of the two inputs, every elementwise function by its slope
    between them. Pulled back from the number, each value `m` on the way has the part `⟨D_m, m(x) − m(y)⟩`; the parts of
    each layer's stream sum to the whole difference.

    Args:
        model: a loaded model.
        inputs: a text; its token ids, `[tokens]`; or a `duat.TokenizedText`. For a vision model
            an image's pixels. Or a list of many.
        reference: the same of another one, of as many tokens, `y`. Or a baseline: `duat.baselines.Mask()`, `Pad()`
            or `Mean()` (the vocabulary's mean embedding) in every token's place but those that the tokenizer calls
            special; of an image `Blur()` or its `Mean()`. A string is a text. Or a list of several, over
            which all is averaged.
        target: the explained number: a token, a class or a target, as in `duat.explain`; if
            absent, the most probable output of the given input, for both inputs.
        contrast: the token or class whose logit is subtracted.
        against: for an encoder, what both inputs are compared with.
        position: at which token the logit is read; negative counts from the end.
        alignment: where texts differ in length, pairs of indices `(place, token)`: the reference's token stands in that
            place of the text; a place without a pair keeps its own token, and has no part.
        held: names of holds, such as `"attention.pattern"`, or `True` for all: they are held at their midpoints, and
            how they moved is a part by name.
        head_runs: for how many of the largest heads the model is run again: with the head's output on the reference in
            its place, and with zero.
        tokenizer: reads texts and names tokens, in the place of the model's own.

    Returns:
        The `Contrast`; it shows itself in a notebook, and `print` shows it in a terminal.
        Of many inputs, a list with one for each.

    Raises:
        InvalidInput: for inputs that the model can't take, of different lengths or the same, or a combination of
            arguments.
        NotFinite: if the number is NaN or infinite on one side.

    Example:
        >>> import duat_jax as duat
        >>> from flax import nnx
        >>> from duat_jax.models.config import Head
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> head = Head(kind="next token", outputs=11, tied=True)
        >>> config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
        >>> model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
        >>> found = duat.contrast(model, [5, 6, 7], [5, 9, 7], target=4)
        >>> found.target.headline, found.flow.shape, found.completeness.verdict
        ("logit of '4' at token 2, '7'", (2, 3), 'holds')
    """
    names = names_of(held)
    require_loaded(model)
    if whole_number(head_runs) is None or head_runs < 0:
        raise InvalidInput(f"head_runs is {quoted(head_runs)}: give a whole number of at least 0")
    question = ask_contrast(model, inputs, reference, target, contrast, against, position, alignment, tokenizer)
    return answer(model, question, names, head_runs)


def answer(
    model: Transformer, question: ContrastQuestion, held: bool | tuple[str, ...] = (), head_runs: int = 0
) -> Contrast:
    """Return the contrast of a validated question."""
    runs = compare_runs(model, question)
    split = _split(model, runs.reader, runs.real, runs.embeddings, runs.stream, held)
    # The difference is that of the plain forward passes.
    split = split.certified(runs.difference, model, runs.recompute)
    parts, tokens = split.parts, len(runs.tokens)
    found = Contrast(
        family=model.config.family,
        tokens=runs.tokens,
        target=runs.target,
        value=runs.value,
        predictions=runs.predictions,
        references=runs.references,
        flow=np.stack([part[:tokens] for part in parts.flow.values()]),
        layers=tuple(layer_before(row, key) for row, key in enumerate(parts.flow)),
        heads=Marked({key: part[:tokens] for key, part in parts.heads.items()}),
        neurons=Marked({key: part[:tokens] for key, part in parts.neurons.items()}),
        moved=Marked({key: float(part) for key, part in parts.moved.items()}),
        moves=Marked({key: edges_of(each, tokens) for key, each in parts.moves.items()}),
        discontinuities=split.discontinuities,
        completeness=split.completeness,
        notes=(*question.notes, *split.notes),
        encoder_layers=encoder_layers_of(model.config),
        image=seen_by(model.config, question.inputs),
    )
    return replace(found, head_runs=run_heads(model, runs, found.top_heads(head_runs))) if head_runs > 0 else found


@partial(stored_program, static_argnames=("stream", "held"))
def _split(
    model: Transformer,
    reader: Reader,
    real: Shaped[Array, "tokens"],
    xs: Float[Array, "rows tokens features"],
    stream: int | None,
    held: bool | tuple[str, ...],
) -> Split:
    """Split the first row's number minus each other's, averaged over the references."""

    def number(x: Array) -> Array:
        return reader.read(model, forward_from(model, x, real, stream)).value

    def parts_of(secant: Secant) -> _ContrastParts:
        def by_site(streams: Marked[Array], points: Marked[Array]) -> dict[Site, Array]:
            kinds = ((marks.STREAM, streams), (marks.POINT, points))
            return {Site(kind, key): part for kind, parts in kinds for key, part in parts.items()}

        by_token, contributions = partial(rows_of_tokens, model.config, real=real), secant.contributions
        streams, units = by_token(marks.STREAM, contributions.streams), by_token(marks.POINT, contributions.points)
        return _ContrastParts(
            _flow(by_site(streams, units), by_site(contributions.streams, contributions.points)),
            Marked({key: part.sum(-1) for key, part in units.items() if key.name in MIXED}),
            Marked({key: part for key, part in units.items() if key.name in ACTIVATED}),
            Marked({key: part.sum() for key, part in secant.moved.items()}),
            _moves(secant, contributions.held) if len(xs) == 2 else Marked({}),
        )

    split = split_between(number, parts_of, at=(marks.STREAM, marks.POINT, marks.HOLD), held=held)
    if len(xs) == 2:  # mapping over one would be traced and compiled for nothing
        alone: Split = split(xs[0], xs[1])
        return alone
    each: Split = jax.vmap(partial(split, xs[0]))(xs[1:])
    mean = jax.tree.map(lambda leaf: leaf.mean(0), each)
    return mean._replace(unrecognised=each.unrecognised)


def _moves(secant: Secant, contributions: Marked[Array]) -> Marked[LargestMoves]:
    """Return what each head brings to a token from another: pattern times value on one input minus on the other."""
    patterns = {key.scope: key for key in contributions if key.name == PATTERN}
    values = {key.scope: change for key, change in secant.changes.points.items() if key.name == VALUES}

    def moves(mixed: Array, scope: tuple[str, ...]) -> LargestMoves:
        change = jnp.repeat(values[scope], mixed.shape[-2] // values[scope].shape[-2], -2)
        by_source = jnp.einsum("thd,shd->hts", mixed, change, precision=PRECISION)
        pattern = patterns[scope]
        parts = secant.middles.held[pattern] * by_source + contributions[pattern]
        return largest_moves(parts, min(SOURCES, parts.shape[-1]))

    mixed = {key: multiplier for key, multiplier in secant.multipliers.points.items() if key.name == HEADS}
    return Marked(
        {key: moves(each, key.scope) for key, each in mixed.items() if {key.scope} <= {*patterns} & {*values}}
    )


def _flow(parts: dict[Site, Array], every: Iterable[Site]) -> Marked[Array]:
    """Return the parts of every token after the embedding and after each layer."""
    rows = rows_of_streams(every, parts)
    return Marked({row[0].key: jnp.stack([parts[site].sum(-1) for site in row]).sum(0) for row in rows})
