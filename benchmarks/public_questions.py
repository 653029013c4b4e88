"""A question to every public function that runs a program, on a small model.

The package is imported where it is asked, so that `jax.jit` can be replaced before.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

NOT_ASKED = {
    *("load", "load_config", "load_tokenizer", "load_image", "load_sound", "open", "widget"),
    *("from_hugging_face", "from_torch", "hold", "offset", "point", "stream", "term"),
}
"""Public functions that run no program: those that read files or PyTorch modules, and the marks."""


def public_functions() -> set[str]:
    """Return the names of the functions at the top that run programs."""
    from duat_jax import public

    named = {name: member for name, member in vars(public).items() if not name.startswith("_")}
    return {name for name, member in named.items() if callable(member) and name.islower()} - NOT_ASKED


def every_function() -> set[str]:
    """Return the names of the functions that run programs, those of the namespaces too."""
    from benchmarks.namespace_questions import namespace_functions

    return public_functions() | namespace_functions()


def questions(mesh: Mesh, dtype: str) -> dict[str, Callable[[], Any]]:
    """Return what asks every function of `every_function`, by name.

    Args:
        mesh: the devices here.
        dtype: that of the weights.
    """
    import jax.numpy as jnp
    from flax import nnx

    import duat_jax as duat
    from benchmarks import namespace_questions
    from duat_jax.edits import Edit
    from duat_jax.models.config import Config, Head
    from duat_jax.models.mesh import divide
    from duat_jax.models.residual_network import ResidualNetwork
    from duat_jax.models.sites import stream
    from duat_jax.nn import BlockConfig
    from duat_jax.results import ScoreSide

    block = BlockConfig(arrangement="pre-norm", features=128, heads=4, neurons=256, mlp="gated")
    parts: dict[str, Any] = {"family": "llama", "blocks": (block,) * 2, "positions": 64}
    tokenizer = duat.load_tokenizer()
    vocab = tokenizer.get_vocab_size()
    language = Config(**parts, vocab=vocab, head=Head(kind="next token", outputs=vocab, tied=True))
    model = divide(duat.models.Transformer(language, dtype=dtype, rngs=nnx.Rngs(0)), mesh)
    network = ResidualNetwork(1, (4, 4, 8), 10, rngs=nnx.Rngs(0))
    ids, other = [5, 6, 7, 8], [5, 9, 7, 8]
    x, y = model.embed(jnp.array(ids)), model.embed(jnp.array(other))
    rows = jnp.ones((4, vocab))

    def logit(model: Any, x: Any) -> Any:
        return model.output(x)[-1, 7]

    def recorded(model: Any, x: Any) -> Any:
        return duat.record(model.output)(x)

    def edited(model: Any, x: Any, y: Any) -> Any:
        return duat.edit(partial(logit, model), {stream(1): Edit(kept=0.5, added=1.0)})(x)

    def score(model: Any, x: Any, y: Any) -> Any:
        recording = recorded(model, x)
        queries, keys = (
            next(step for step in recording.program.steps("point") if step.site.key.name == name)
            for name in ("attention.queries", "attention.keys")
        )
        return duat.split_score(recording, queries, keys, *(ScoreSide(0, jnp.ones(4)) for _ in range(2)))

    def triplets() -> Any:
        collapsed = duat.collapse(lambda x: model.states(x)[-1], x).linear
        found = duat.operators.singular_triplets(collapsed, 1, key=jax.random.key(0))
        return duat.decode_triplets(model, jnp.array(ids), found, tokenizer, top=3)

    programs: dict[str, Callable[[Any, Any, Any], Any]] = {
        "auto": lambda model, x, y: duat.decompose(duat.auto(partial(logit, model)), x),
        "collapse": lambda model, x, y: duat.collapse(model.output, x).linear.T(rows),
        "contributions": lambda model, x, y: duat.contributions(recorded(model, x), rows),
        "decompose": lambda model, x, y: duat.decompose(partial(logit, model), x),
        "edit": edited,
        "linear_map": lambda model, x, y: duat.linear_map(recorded(model, x))(y),
        "record": lambda model, x, y: recorded(model, x).value,
        "replay": lambda model, x, y: duat.replay(model.output, recorded(model, x).dynamics)(y),
        "secant": lambda model, x, y: duat.secant(partial(logit, model))(x, y),
        "split_score": score,
        "unroll": lambda model, x, y: duat.unroll(model.output, x).evaluate(),
    }
    known: dict[str, Any] = {"tokenizer": tokenizer}
    return {name: partial(lambda fn: jax.jit(fn)(model, x, y), fn) for name, fn in programs.items()} | {
        "attribute": lambda: duat.attribute(model, ids, duat.baselines.Mean(), **known),
        "contrast": lambda: duat.contrast(model, ids, other, 7, **known),
        "decode_triplets": triplets,
        "diff": lambda: duat.diff(jax.tree.map(lambda leaf: 1.5 * leaf, model), ids, reference=model, top=1, **known),
        "explain": lambda: duat.explain(model, [ids, other], 7, **known),
        "explain_attention": lambda: duat.explain_attention(model, ids, layer=1, head=0, key=1, contrast=0, **known),
        "graph": lambda: duat.graph(model, ids, 7, **known),
        "image_maps": lambda: duat.image_maps(lambda pixels: network(pixels)[3], jnp.ones((1, 8, 8))),
        "intervene": lambda: duat.intervene(model, ids, duat.edits.Heads(1, 2).set(0), 7, **known),
        **namespace_questions.questions(model, tokenizer),
    }
