"""The kernels that a question compiles are those of a few layers, however deep the model is."""

import re

import jax
import numpy as np
import pytest
from adapters import small_model

import duat_jax as duat
from duat_jax.interpret.graph import neurons
from duat_jax.interpret.intervene import compute as intervene

IDS = [3, 1, 4, 1, 5]
EDITS = duat.edits.Heads(1, 1).set(0)

QUESTIONS = {
    "intervene, again": (intervene, "_run", lambda model: duat.intervene(model, IDS, EDITS)),
    "intervene, split": (intervene, "_split", lambda model: duat.intervene(model, IDS, EDITS)),
    "graph, groups": (neurons, "_without", lambda model: duat.graph(model, IDS, top_heads=0)),
}


def kinds_of(compiled):
    """Return the fused computations of a compiled program, each of them once, whatever its values are called."""
    kinds = set()
    for body in re.findall(r"^%?fused_computation\S* .*?^\}", compiled, re.M | re.S):
        plain = re.sub(r"(, metadata=|, backend_config=|, frontend_attributes=).*", "", body)
        names = dict.fromkeys(re.findall(r"%[\w.-]+", plain))
        numbers = {name: f"%{number}" for number, name in enumerate(names)}
        kinds.add(re.sub(r"%[\w.-]+", lambda found, numbers=numbers: numbers[found[0]], plain).split("{", 1)[1])
    return kinds


def compiled(program, *arguments, **named):
    """Return the text of a compiled program, whose arguments are arrays or known to the compiler."""
    leaves, tree = jax.tree.flatten((arguments, named))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray | np.generic)}

    def of_arrays(arrays):
        arguments, named = jax.tree.unflatten(tree, [arrays.get(i, leaf) for i, leaf in enumerate(leaves)])
        return program(*arguments, **named)

    return jax.jit(of_arrays).lower(arrays).compile().as_text()


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_deeper_model_has_no_more_kinds_of_kernels(name, monkeypatch):
    module, program, question = QUESTIONS[name]
    answer, counts = getattr(module, program), []

    def counted(*arguments, **named):
        counts.append(len(kinds_of(compiled(answer.__wrapped__, *arguments, **named))))
        return answer(*arguments, **named)

    monkeypatch.setattr(module, program, counted)
    for layers in (4, 5):
        question(small_model(layers))
    assert len(set(counts)) == 1
