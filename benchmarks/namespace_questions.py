"""A question to every public function of the namespaces that runs a program, on a model that is given."""

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import Tokenizer

import duat_jax as duat
from duat_jax import circuits, evaluation, in_context, lora, operators, pruning, survey, training
from duat_jax.models.transformer import Transformer

ASKED = (circuits, evaluation, in_context, lora, operators, pruning, survey, training)
"""The namespaces whose functions are asked; the others have classes, parts of models, and the papers' experiments."""

NOT_ASKED = {
    *("circuits.compare", "evaluation.stream", "evaluation.windows", "survey.examples", "survey.open"),
    *(f"in_context.{name}" for name in ("answers_of", "draw_question", "exchange", "question_of")),
    *(f"lora.{name}" for name in ("load_adapters", "new_adapters", "save_adapters", "save_merged")),
    *("pruning.save_pruned",),
}
"""Their functions that run no program of their own: those of texts, of files, and of results."""


def namespace_functions() -> set[str]:
    """Return the names of the namespaces' functions that run programs, such as `lora.train`."""
    found = {
        f"{module.__name__.removeprefix('duat_jax.')}.{name}"
        for module in ASKED
        for name, member in vars(module).items()
        if name in dir(module) and callable(member) and name.islower() and name[0] != "_"
    }
    return found - NOT_ASKED


def questions(model: Transformer, tokenizer: Tokenizer) -> dict[str, Callable[[], Any]]:
    """Return what asks each of them, by its name.

    Args:
        model: the language model that is asked, whose parameters are named as a Llama's.
        tokenizer: its tokenizer.
    """
    ids, adapters = jnp.array([5, 6, 7, 8]), lora.new_adapters(model, ["q_proj", "down_proj"], rank=2)
    texts = np.arange(68, dtype=np.int32).reshape(4, 17)
    prompt = circuits.Prompt(ids[None], jnp.array([[5, 9, 7, 8]]), jnp.array([1]), jnp.array([2]))
    few_shot = in_context.question_of(tokenizer, ["a = 1"], "b =", " 2")
    answers = [*tokenizer.encode(" 2").ids, 1]
    key, terms = jax.random.key(0), pruning.Terms(neurons={1: [3, 5]})

    def collapsed(of: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: of(duat.collapse(model.states, model.embed(ids)).linear)

    def compiled(fn: Callable[..., Any], *given: Any) -> Callable[[], Any]:
        return lambda: jax.jit(fn)(model, *given)

    def loss(model: Any) -> Any:
        return evaluation.token_losses(model, jnp.asarray(texts)).mean()

    def followed() -> Any:
        return training.follow(loss, training.begin(loss, model), jax.tree.map(lambda leaf: 1.5 * leaf, model))

    def run(ask: Callable[[Any], Any]) -> Any:
        steps = training.Run(
            lambda w, rows: (w["a"] * w["b"] - rows) ** 2, optax.adamw(0.1), [jnp.arange(3.0)], steps=1
        )
        with tempfile.TemporaryDirectory() as folder:
            return ask(training.train(steps, {"a": jnp.array(2.0), "b": jnp.array(3.0)}, folder))

    def surveyed() -> None:
        with tempfile.TemporaryDirectory() as folder:
            survey.survey(None, ["for i in range(10): print(i) " * 20], folder, tokens=32)

    def studied() -> Any:
        silent = nullcontext(lambda done, whole: None)
        chosen = ["parameter"], ["contributions"], ["neuron"]
        return circuits.study(duat.load(), *chosen, prompts=2, progress=lambda task: silent)

    return {
        "circuits.draw": lambda: circuits.draw(duat.load(), "parameter", 2),
        "circuits.measure": lambda: circuits.measure(model, prompt, {"random": circuits.METHODS["random"]}),
        "circuits.study": studied,
        "evaluation.mean_loss": lambda: evaluation.mean_loss(model, texts),
        "evaluation.token_losses": compiled(evaluation.token_losses, jnp.asarray(texts)),
        "in_context.ledger": lambda: in_context.ledger(model, few_shot.task),
        "in_context.measure_copying": lambda: in_context.measure_copying(model, [5], 6),
        "in_context.measure_reach": lambda: in_context.measure_reach(model, ids),
        "in_context.replies": lambda: in_context.replies(model, [few_shot], answers),
        "lora.adapt": compiled(lambda model, new: lora.adapt(model, new)(ids), adapters),
        "lora.lora_change": lambda: lora.lora_change(model, adapters, [5, 6, 7, 8], 7, tokenizer=tokenizer),
        "lora.merge": compiled(lambda model, new: lora.merge(model, new)(ids), adapters),
        "lora.moved_parameters": lambda: lora.moved_parameters(model, adapters, [5, 6, 7, 8], samples=2),
        "lora.scaled": compiled(
            lambda model, new, by: lora.merge(model, lora.scaled(new, by)), adapters, jnp.array(0.5)
        ),
        "lora.train": lambda: lora.train(model, adapters, texts, lora.TrainingSettings(steps=2, batch=2)),
        "operators.diagonal": collapsed(operators.diagonal),
        "operators.estimated_diagonal": collapsed(lambda linear: operators.estimated_diagonal(linear, 2, key=key)),
        "operators.estimated_frobenius": collapsed(lambda linear: operators.estimated_frobenius(linear, 2, key=key)),
        "operators.frobenius": collapsed(operators.frobenius),
        "operators.singular_triplets": collapsed(lambda linear: operators.singular_triplets(linear, 1, key=key)),
        "operators.token_norms": collapsed(operators.token_norms),
        "pruning.losses_of": lambda: pruning.losses_of(
            model, [pruning.Pruner("contributions", "refit", 0.5)], texts, texts
        ),
        "pruning.measure_removal": lambda: pruning.measure_removal(model, pruning.without(model, terms), ids),
        "pruning.prune": lambda: pruning.prune(model, texts, 0.5),
        "pruning.prune_layers": lambda: pruning.prune_layers(model, texts, 0.5),
        "pruning.without": compiled(lambda model: pruning.without(model, terms)(ids)),
        "survey.survey": surveyed,
        "training.begin": lambda: training.begin(loss, model),
        "training.follow": followed,
        "training.influence": lambda: run(lambda kept: training.influence(kept, lambda w: w["a"] ** 2)),
        "training.train": lambda: run(lambda kept: kept.last),
    }
