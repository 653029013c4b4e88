"""The effect of demonstrations on the answer to a question, and how far attention reaches there."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from duat_jax.in_context.compute import ledger
from duat_jax.in_context.controls import exchange
from duat_jax.in_context.prompts import FewShotQuestion
from duat_jax.in_context.reach import Reach, measure_reach
from duat_jax.in_context.record import ContextRecord
from duat_jax.in_context.result import Ledger
from duat_jax.in_context.runs import Task
from duat_jax.inputs.labels import readable
from duat_jax.json_record import as_record
from duat_jax.models.transformer import Transformer
from duat_jax.models.vocabulary.running import run_texts
from duat_jax.models.vocabulary.token import in_quotes
from duat_jax.models.vocabulary.visible import visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class DemonstrationEffect(NamedTuple):
    """The effect of demonstrations on the answer to a question.

    Args:
        prompt: the question after its demonstrations.
        reference: the same question after those that are compared with; none where these are hidden.
        ledger: the effect on the mean log-probability of the answer's tokens.
        reached: how far attention reaches.
        words: the text, token by token, with the tokens of the answer but the last.
        answer: the text of the answer.
    """

    prompt: FewShotQuestion
    reference: FewShotQuestion | None
    ledger: Ledger
    reached: Reach
    words: tuple[str, ...]
    answer: str

    @property
    def title(self) -> str:
        """The comparison in words."""
        title = f"{in_quotes(visible(self.answer))} after {int(self.prompt.hidden.sum())} tokens of demonstrations"
        if self.reference is not None:
            title += ", compared with others"
        if len(self.prompt.answers) > 1:
            title += f"; a mean over the {len(self.prompt.answers)} tokens of the answer"
        return title

    def as_dict(self, model: str = "") -> dict[str, Any]:
        """Return the result as plain data for JSON, with the fields of `ContextRecord`.

        Args:
            model: name of the model.
        """
        of_ledger = self.ledger.as_dict()
        del of_ledger["kind"], of_ledger["version"]
        reach = {
            "density": self.reached.density,
            "distance": self.reached.distance.mean(1),
            "tokens_read": self.reached.tokens_read.mean(1),
        }
        return as_record(
            ContextRecord,
            self,
            **of_ledger,
            model=model,
            text=self.prompt.text,
            reference=None if self.reference is None else self.reference.text,
            hidden=self.ledger.hidden,
            reach=reach,
        )


def task_of(prompt: FewShotQuestion, reference: FewShotQuestion | None = None) -> Task:
    """Return the task for `ledger`: demonstrations beside other ones, or beside the same ones hidden."""
    return prompt.whole if reference is None else exchange(prompt, reference, whole=True)


def explain_demonstrations(
    model: Transformer,
    tokenizer: "Tokenizer",
    prompt: FewShotQuestion,
    reference: FewShotQuestion | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> DemonstrationEffect:
    """Split the effect of demonstrations on the answer, and measure how far attention reaches.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer.
        prompt: the question after its demonstrations.
        reference: the same question after other ones, with which they are compared; hidden ones if absent.
        progress: called with the number of steps done and their total number.
    """
    task = task_of(prompt, reference)
    ((_, answer),) = run_texts(tokenizer, [[prompt.ids.tolist(), prompt.answers]])
    words = readable(tokenizer, task.ids.tolist())
    return DemonstrationEffect(
        prompt, reference, ledger(model, task, progress=progress), measure_reach(model, task.ids), words, answer
    )
