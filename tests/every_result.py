"""A result of every class that shows itself, of small inputs: what a test of the whole class walks over."""

from functools import cache
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import optax

import duat_jax as duat
from duat_jax.display.result import Displayed
from duat_jax.in_context import ledger, question_of
from duat_jax.in_context.result import Ledger
from duat_jax.lora import lora_change, new_adapters
from duat_jax.lora.result import LoraChange
from duat_jax.training import Influence, Run, WeightLedger, influence, train

TEXT, OTHER = "for i in range(10", "for j in range(10"
CHANGES = [duat.edits.Heads(1, 0).set(0), duat.edits.Stream(2).scale(0.5)]


@cache
def _loaded(dtype):
    model = duat.load(dtype=dtype)
    return model, model.tokenizer


def _asked(question, *given, **options):
    """Return a maker of the answer to a question about the embedded model."""

    def make(dtype="float32"):
        model, tokenizer = _loaded(dtype)
        return question(model, *given, tokenizer=tokenizer, **options)

    return make


def _lora_change(dtype="float32"):
    model, tokenizer = _loaded(dtype)
    return lora_change(model, new_adapters(model, rank=1), tokenizer.encode(TEXT).ids, tokenizer=tokenizer)


def _model_diff(dtype="float32"):
    model, tokenizer = _loaded(dtype)
    other = jax.tree.map(lambda leaf: 1.01 * leaf, model)
    return duat.diff(other, TEXT, reference=model, top=1, tokenizer=tokenizer)


@cache
def _influence(dtype="float64"):
    batches = [jnp.array(pair, dtype) for pair in ([1.0, 2.0], [1.0, 3.0], [0.0, 1.0])]
    run = Run(lambda w, batch: (w["a"] * w["b"] - batch) ** 2, optax.adamw(0.1), batches, steps=3)
    with jax.numpy_dtype_promotion("standard"), TemporaryDirectory() as folder:
        kept = train(run, {"a": jnp.array(2.0, dtype), "b": jnp.array(3.0, dtype)}, folder)
        return influence(kept, lambda w: w["a"] ** 2)


def _ledger(dtype="float32"):
    model, tokenizer = _loaded(dtype)
    return ledger(model, question_of(tokenizer, ["a = 1", "b = 1"], "c =", " 1").task)


def _image_maps(dtype="float64"):
    pixels = jnp.arange(24, dtype=dtype).reshape(3, 4, 2)
    return duat.image_maps(_network, pixels, 0 * pixels)


MAKERS = {
    duat.results.Explanation: _asked(duat.explain, TEXT),
    duat.results.Graph: _asked(duat.graph, TEXT, top_neurons=3),
    duat.results.Contrast: _asked(duat.contrast, TEXT, [OTHER, duat.baselines.Mean()], head_runs=2),
    duat.results.ModelDiff: _model_diff,
    duat.results.Attribution: _asked(duat.attribute, TEXT, OTHER, unit="head"),
    duat.results.Intervention: _asked(duat.intervene, TEXT, CHANGES),
    duat.results.AttentionScore: _asked(duat.explain_attention, TEXT, layer=1, head=0, key=0),
    LoraChange: _lora_change,
    Influence: _influence,
    WeightLedger: lambda *dtype: _influence(*dtype).ledger,
    Ledger: _ledger,
    duat.results.ImageMaps: _image_maps,
}
"""A function of each class of results that makes one, of a model or arrays in a dtype."""


@cache
def result_of(kind, *dtype):
    """Return the result of a class, of a model or arrays in a dtype."""
    return MAKERS[kind](*dtype)


def every_result():
    """Return the results by their class."""
    return {kind: result_of(kind) for kind in MAKERS}


def _network(x):
    return duat.term(jax.nn.relu, x - 4, "relu").sum() + 2 * x.sum() + duat.offset(jnp.array(3, x.dtype), "bias")


def classes_of_results():
    """Return every class of results in the package."""

    def below(of):
        return [of, *(each for child in of.__subclasses__() for each in below(child))]

    found = {each for each in below(Displayed) if each.__module__.endswith(".result")}
    return {each for each in found if each.__module__ != Displayed.__module__}
