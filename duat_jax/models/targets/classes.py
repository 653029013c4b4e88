"""Target: the logit of a class."""

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
from jaxtyping import Array, Float

from duat_jax.models.config import Config
from duat_jax.models.targets.base import ForwardPass, ReadByItself, Reading, Words
from duat_jax.models.targets.logit import read_logit
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import Places, checked_class, require_two
from duat_jax.models.vocabulary.token import quoted_label


@final
@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ClassLogit(ReadByItself):
    """The logit of a class, or its difference from that of another: `⟨E_t − E_c, h⟩` with the pooled state `h`.

    Args:
        name: the name of the class `t`, or its number; the most probable class if absent.
        contrast: the class `c` whose logit is subtracted.

    Example:
        >>> import duat_jax as duat
        >>> from flax import nnx
        >>> from duat_jax.models.config import Head
        >>> from duat_jax.nn import BlockConfig
        >>> block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=16)
        >>> head = Head(kind="classes", outputs=2, labels=("bad", "good"), pool="last")
        >>> config = duat.models.Config(family="gpt2", blocks=(block,), vocab=11, positions=8, head=head)
        >>> model = duat.models.Transformer(config, rngs=nnx.Rngs(0))
        >>> print(duat.explain(model, [5, 6, 7], ClassLogit("good")).target)
        logit of class 'good'
    """

    name: Any = None
    contrast: Any = None
    output = "name"
    needs = ("classes",)

    def checked(self, config: Config, places: Places, problems: list[str]) -> "ClassLogit":
        """Return the target with its arguments validated for a model.

        Args:
            config: the model's parts.
            places: the positions of the text.
            problems: the list to which every problem is added.
        """
        name = checked_class(config, self.name, "target", problems)
        contrast = checked_class(config, self.contrast, "contrast", problems)
        require_two(name, contrast, "class", problems)
        return ClassLogit(name, contrast)

    def read(self, model: Transformer, passed: ForwardPass) -> Reading:
        """Return the value and its covector.

        Args:
            model: the model.
            passed: its forward pass.
        """

        def pooled(states: Float[Array, "tokens features"]) -> Float[Array, "features"]:
            return model.head.pooled(states, passed.real)

        state, back = jax.vjp(pooled, passed.states)
        logits_at = partial(model.logits_at, state)
        return read_logit(logits_at, self.name, self.contrast, lambda direction: back(direction)[0])

    def label(self, reading: Reading, words: Words) -> str:
        """Describe the target.

        Args:
            reading: the target on this text.
            words: the names of its tokens.
        """
        minus = "" if self.contrast is None else f" minus that of {quoted_label(words.output(self.contrast))}"
        return f"logit of class {quoted_label(words.output(int(reading.output)))}{minus}"
