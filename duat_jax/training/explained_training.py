"""A training on pieces of text, and what it did to the mean loss of another text."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from duat_jax.evaluation.running_text import token_losses
from duat_jax.json_record import as_record
from duat_jax.models.transformer import Transformer
from duat_jax.training.kept import train
from duat_jax.training.next_token import TrainingSettings, next_token_run, parts_of_pieces
from duat_jax.training.over_examples.compute import influence
from duat_jax.training.over_examples.result import Influence
from duat_jax.training.pieces import extremes, piece_of
from duat_jax.training.record import Piece, TrainLedgerRecord

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class ExplainedTraining(NamedTuple):
    """A trained model, and the change of the mean loss of a text along its training.

    Args:
        trained: the trained model.
        influence: the change of the loss as a sum over examples, and over weights.
        parts: the part of every token of every piece, summed over the steps that read it.
        reads: the number of steps that read each piece.
    """

    trained: Transformer
    influence: Influence
    parts: Float[np.ndarray, "pieces predicted"]
    reads: Int[np.ndarray, "pieces"]

    def largest(
        self, pieces: Int[np.ndarray, "pieces tokens"], tokenizer: "Tokenizer", places: Sequence[str], count: int
    ) -> list[Piece]:
        """Return the pieces with the lowest and with the highest parts.

        Args:
            pieces: the pieces' token ids.
            tokenizer: the model's tokenizer.
            places: where each piece begins.
            count: the number of pieces on either side.
        """
        chosen = map(int, extremes(self.parts.sum(1), count))
        return [piece_of(i, pieces[i], self.parts[i], int(self.reads[i]), tokenizer, places[i]) for i in chosen]

    def as_dict(self, **fields: Any) -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `TrainLedgerRecord`.

        Args:
            fields: fields of the record that aren't in the result.
        """
        return as_record(TrainLedgerRecord, self, parts=self.parts.sum(1), tokens=self.parts.shape[1] + 1, **fields)


def explain_training(
    model: Transformer,
    pieces: Int[np.ndarray, "pieces tokens"],
    ids: Sequence[int],
    settings: TrainingSettings,
    *,
    progress: Callable[[str], AbstractContextManager[Callable[[int, int], None]]],
    work: Path | None = None,
) -> ExplainedTraining:
    """Train a language model on pieces of text, and split the change of the mean loss of another text.

    Args:
        model: a language model.
        pieces: what it is trained on.
        ids: the token ids of the other text.
        settings: the settings of the training.
        progress: returns a context manager with a progress callback for the training, and for tracing back.
        work: the directory of the states, from which an interrupted training goes on.
    """
    number = jnp.asarray([ids])
    with tempfile.TemporaryDirectory() if work is None else nullcontext(work) as folder:
        with progress("Training") as report:
            kept = train(next_token_run(pieces, settings), model, folder, progress=report)
        with progress("Tracing back") as report:
            change = influence(kept, lambda weights: token_losses(weights, number).mean(), progress=report)
        return ExplainedTraining(kept.last, change, *parts_of_pieces(change, len(pieces), settings))
