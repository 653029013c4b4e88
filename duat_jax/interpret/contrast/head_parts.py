"""The parts of a contrast that heads have, and what the model says where it is run again without one."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from duat_jax.deprecation import renamed_fields
from duat_jax.display.view import Table
from duat_jax.kinds import kept_as
from duat_jax.models.vocabulary.token import token_label
from duat_jax.transform.keys import Key, Marked

HEAD_RUNS = (
    "part: of the difference, from all tokens together. The others are changes of the number on A. run as on B: the"
    " model is run again with the head's output there as it is on B, which minus the part predicts. zero: with nothing"
    " in its place, which also takes away what the head brings on both; predicted by the contributions, and run again."
    " Other heads react, so predictions miss, and single parts don't add up."
)


@kept_as("head part")
@renamed_fields(part="contribution")
class HeadPart(NamedTuple):
    """The part of an attention head at one token.

    Args:
        mixed: the mark of what the layer's heads mix: these values are in `recording.dynamics.points`, and the layer is
            `mixed.layer`.
        token_index: index of the token that it is carried to.
        head: index of the head.
        contribution: its part of the difference.
    """

    mixed: Key
    token_index: int
    head: int
    contribution: float

    @property
    def layer(self) -> int | None:
        """The layer; `None` outside of all layers."""
        return self.mixed.layer


@kept_as("head run again")
class HeadRuns(NamedTuple):
    """An attention head at one token, and the changes of the number where the model is run again with it edited.

    Args:
        head: the head, the token, and its part of the difference: minus it is what the contrast predicts of `replaced`.
        replaced: the change where its output is that on the reference; the mean of several.
        predicted: the change that the contributions predict where its output is zero, everything else held.
        removed: the change where its output is zero.
    """

    head: HeadPart
    replaced: float
    predicted: float
    removed: float


def table_of_runs(head_runs: Sequence[HeadRuns], tokens: Sequence[str], heads: Marked[Any]) -> Table:
    """Return the changes that the largest heads make when they are replaced and removed."""
    # Where a layer has several attentions, its heads are counted on, as in `duat.edits.Heads`.
    before: dict[Key, int] = {}
    in_layer: Counter[int | None] = Counter()
    for key, parts in heads.items():
        before[key] = in_layer[key.layer]
        in_layer[key.layer] += parts.shape[-1]
    names = [f"{head.layer}.{before[head.mixed] + head.head}" for head, *_ in head_runs]
    layer, number = names[0].split(".")
    return Table(
        "The largest heads, run again",
        ("head", "token", "part", "run as on B", "zero: predicted", "run with zero"),
        tuple(
            (
                name,
                f"{head.token_index} {token_label(tokens[head.token_index])}",
                head.contribution,
                replaced,
                predicted,
                removed,
            )
            for name, (head, replaced, predicted, removed) in zip(names, head_runs, strict=True)
        ),
        note=f"{names[0]} is head {number} of layer {layer}. {HEAD_RUNS}",
        labels=2,
        ranked=True,
    )
