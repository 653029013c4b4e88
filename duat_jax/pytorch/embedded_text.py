"""A PyTorch module that is given the embeddings of its text beside the tokens."""

from typing import Any


def with_embedded_text(module: Any, table: Any) -> Any:
    """Return a module that takes `embedded`, which stands in the place of what a table makes of the tokens.

    Args:
        module: a model of transformers that reads tokens, `input_ids`.
        table: the layer inside it that embeds them.
    """
    import torch

    class EmbeddedText(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.config = module, module.config

        def forward(self, embedded: Any = None, **given: Any) -> Any:
            handle = table.register_forward_hook(lambda _, args, output: output if embedded is None else embedded)
            try:
                return self.inner(**given)
            finally:
                handle.remove()

    return EmbeddedText().eval()
