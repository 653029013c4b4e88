"""Methods of TransformerLens and captum in a model's shape, which `benchmarks.questions` runs by another interpreter.

    python -m venv .venv-neighbours
    .venv-neighbours/bin/pip install torch==2.13.0 transformer-lens==4.3.0 captum==0.9.0
    python -m benchmarks.questions --python .venv-neighbours/bin/python

Of the same shape as here, with random weights: TransformerLens takes the residual stream at the last position alone
apart, down to neurons, and projects the parts on one logit; patches heads and MLPs by their gradients between two
texts; captum integrates the gradient at the embeddings in fifty steps.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

PACKAGES = ("torch", "transformers", "transformer-lens", "captum")
TARGET, STEPS, AT_ONCE = 11, 50, 10
LONGEST = {f"captum: integrated gradients of tokens, {STEPS} steps": 64}
"""Of methods that take minutes on longer texts, the tokens of the longest one."""


@contextmanager
def neighbours(python: str | None, config: Any) -> Iterator[tuple[dict[str, str], Callable]]:
    """Start a process with other packages, and yield their versions and a function: methods by a text's length.

    Args:
        python: its interpreter; without one there are no methods.
        config: the shape of its model.
    """
    if python is None:
        yield {}, lambda tokens: {}
        return
    block = config.blocks[0]
    shape = {
        "hidden_size": block.features,
        "intermediate_size": block.neurons,
        "num_attention_heads": block.heads,
        "num_key_value_heads": block.key_value_heads,
        "num_hidden_layers": config.layers,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.positions,
    }
    pipe, offline = subprocess.PIPE, os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [python, "-P", __file__, json.dumps(shape)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=offline) as process:

        def answer(asked: Any = None) -> Any:
            if asked is not None:
                process.stdin.write(json.dumps(asked) + "\n")
                process.stdin.flush()
            if not (line := process.stdout.readline()):
                raise SystemExit(f"{python} ended: its own message stands above")
            return json.loads(line)

        def methods_at(tokens: int) -> dict[str, Callable[[], None]]:
            return {name: partial(answer, [name, tokens]) for name in methods if tokens <= LONGEST.get(name, tokens)}

        versions, methods = answer()
        yield versions, methods_at


def methods_of(shape: dict[str, int]) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the methods, of a text and another one, by name.

    Args:
        shape: what makes the configuration of a Llama.
    """
    import torch
    from captum.attr import IntegratedGradients
    from tokenizers import Tokenizer, models
    from transformer_lens import TransformerBridge
    from transformer_lens.tools.analysis.attribution_patching import attribution_patch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    plain = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True)).eval()
    with tempfile.TemporaryDirectory() as folder:
        plain.save_pretrained(folder)
        words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<|endoftext|>")
        model = TransformerBridge.boot_transformers(folder, hf_model=plain, tokenizer=words)
    model.enable_compatibility_mode()
    embed = plain.get_input_embeddings()
    integrated = IntegratedGradients(lambda x: plain(inputs_embeds=x, logits_to_keep=1).logits[:, -1])

    def forward(text: Any, other: Any) -> Any:
        with torch.no_grad():
            return plain(text, logits_to_keep=1)

    def direct(text: Any, other: Any) -> Any:
        with torch.no_grad():
            _, cache = model.run_with_cache(text)
            parts = cache.get_full_resid_decomposition(layer=-1, expand_neurons=True, apply_ln=True, pos_slice=-1)
            return cache.logit_attrs(parts, tokens=TARGET, pos_slice=-1, has_batch_dim=True)

    def patched(text: Any, other: Any) -> Any:
        return attribution_patch(model, text, other, lambda logits: logits[:, -1, TARGET].sum())

    def gradients(text: Any, other: Any) -> Any:
        given = [embed(ids).detach() for ids in (text, other)]
        return integrated.attribute(*given, target=TARGET, n_steps=STEPS, internal_batch_size=AT_ONCE)

    return {
        "PyTorch: forward pass": forward,
        "TransformerLens: direct attribution of neurons, last token": direct,
        "TransformerLens: attribution patching of heads and MLPs": patched,
        next(iter(LONGEST)): gradients,
    }


def main() -> None:
    """Say what there is, then run each method that a line of the standard input names, with the length of its text."""
    import torch

    output, sys.stdout = sys.stdout, sys.stderr  # where packages say what they do
    methods = methods_of(json.loads(sys.argv[1]))
    print(json.dumps([{name: version(name) for name in PACKAGES}, list(methods)]), file=output, flush=True)
    for line in sys.stdin:
        name, tokens = json.loads(line)
        text = torch.arange(tokens)[None]
        other = text + 1000 * (text == tokens // 2)
        methods[name](text, other)
        print("null", file=output, flush=True)


if __name__ == "__main__":
    main()
