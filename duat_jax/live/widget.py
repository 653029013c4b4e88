"""A live page in a notebook."""

from typing import TYPE_CHECKING, Any

import jax
import msgspec
import numpy as np

from duat_jax.deprecation import tokenizer_was_second
from duat_jax.display.examples import Examples, read_examples
from duat_jax.display.page.document import module_of_page, style_of_page
from duat_jax.errors import DuatError
from duat_jax.extras import requiring
from duat_jax.live.about import about
from duat_jax.live.answers import LiveAnswer, Loaded, answer_in_words
from duat_jax.live.work import Work
from duat_jax.models.loader import load, load_config
from duat_jax.models.transformer import Transformer
from duat_jax.models.validation import require_loaded

if TYPE_CHECKING:
    from anywidget import AnyWidget
    from tokenizers import Tokenizer


@tokenizer_was_second
def widget(
    model: Transformer,
    text: str | None = None,
    *,
    tokenizer: "Tokenizer | None" = None,
    name: str = "model",
    longest: int = 512,
    examples: Examples | None = None,
) -> "AnyWidget":
    """Return a live page for a notebook: type texts, open cells, switch parts off, and the model is run again.

    The kernel answers, one question after the other.

    Args:
        model: a loaded model that reads texts.
        text: the text that stands there at first; an example if absent.
        tokenizer: reads texts and names tokens, in the place of the model's own.
        name: the name of the model.
        longest: the largest number of tokens of a text.
        examples: of the model, from `duat.survey.examples`: the texts in which each neuron is strongest; the embedded
            model's own if absent, and none for another model.

    Returns:
        A widget of anywidget, which a notebook shows.

    Raises:
        DuatError: if anywidget isn't installed, for a model of images, or if the examples are those of a model of
            another shape.

    Example:
        >>> import duat_jax as duat
        >>> page = duat.widget(duat.load(), "for i in range(10")
        >>> page.about["text"]
        'for i in range(10'
    """
    require_loaded(model)
    if model.config.image is not None:
        raise DuatError("the live page is for models that read texts: call duat.explain for images")
    if examples is None and _is_embedded(model):
        examples = read_examples()
    if examples is not None and not examples.fit(model.config):
        raise DuatError("the examples are of a model of another family, or with other layers or neurons")
    with requiring("widget", "duat.widget"):
        import anywidget
        import traitlets

    class LivePage(anywidget.AnyWidget):
        _esm = module_of_page()
        about = traitlets.Dict().tag(sync=True)
        style = traitlets.Unicode(style_of_page()).tag(sync=True)

    page = LivePage(about=msgspec.to_builtins(about(model.config, name, longest, text)))
    tokenizer = model.tokenizer if tokenizer is None else tokenizer
    loaded = Loaded(model, tokenizer, min(longest, model.config.positions), examples)

    def heard(page: "AnyWidget", message: Any, buffers: Any) -> None:
        def tell(found: LiveAnswer) -> None:
            page.send({"number": message["number"], **msgspec.to_builtins(found)})

        tell(answer_in_words(loaded, message["question"], Work(lambda doing: tell(LiveAnswer(progress=doing)))))

    page.on_msg(heard)
    return page


def _is_embedded(model: Transformer) -> bool:
    """Return whether a model is the embedded one, in any dtype, and not one that was made of it by training."""
    if model.config != load_config():
        return False
    leaves = jax.tree.leaves(model)
    return all(map(np.array_equal, leaves, jax.tree.leaves(load(dtype=leaves[0].dtype))))
