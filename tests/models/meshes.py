"""Models on simulated devices, in processes of their own: `meshes.py COMMAND ARGUMENTS`.

`test_mesh.py` runs it with eight devices, `test_processes.py` in two processes with two devices each.
"""

import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from helpers import close, near
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import duat_jax as duat
from benchmarks.collectives import sent
from benchmarks.invariance import differences
from duat_jax.models.config import Config, Head
from duat_jax.models.layer_parts import scanned
from duat_jax.models.loader import entries_here
from duat_jax.models.mesh import divide
from duat_jax.models.transformer import Transformer
from duat_jax.nn import BlockConfig
from duat_jax.nn.attention import LONGEST_STORED
from duat_jax.processes import on_host
from duat_jax.verification.networks import randomised

BLOCK = BlockConfig(arrangement="pre-norm", features=20, heads=8, head_features=6, neurons=24)
GATED = replace(BLOCK, norm="rms", mlp="gated", activation="silu", mlp_bias=False, attention_bias=False)
BLOCKS = {
    "pre-norm": BLOCK,
    "post-norm": replace(BLOCK, arrangement="post-norm", causal=False),
    "parallel": replace(BLOCK, arrangement="parallel"),
    "grouped heads": replace(GATED, key_value_heads=4, sinks=True, window=3, query_key_norm="head"),
    "gated": replace(GATED, score_cap=5.0, output_norms=True),
    "experts": replace(GATED, mlp="experts", experts=4, chosen_experts=2),
}


def model_of(block: BlockConfig, positions: int = 16) -> Transformer:
    """Return a random model of two blocks of one kind, in float64."""
    head = Head(kind="next token", outputs=64, tied=block.score_cap is None)
    config = Config(family="gpt2", blocks=(block,) * 2, vocab=64, positions=positions, head=head)
    return randomised(Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


def answers(model, **spread):
    """Return the arrays of the answers to one question of each sort, by name."""
    texts = [[5, 17, 3, 9], [9, 2, 4], [8, 7, 6, 5], [1, 2, 3]] * 2
    explained = [text[0] for text in duat.explain(model, texts, [7], **spread)]
    contrast = duat.contrast(model, texts[0], texts[2], 7)
    change = duat.intervene(model, texts[0], duat.edits.Heads(1, [3, 5]).set(0), 7)
    for result in (*explained, contrast, change):
        assert result.completeness.verdict == "holds", result.completeness
    results = {"contrast": contrast, "change": change} | {f"text {i}": result for i, result in enumerate(explained)}
    found = {
        (name, array.part, str(array.place)): array.values
        for name, result in results.items()
        for array in result.arrays()
    }
    embeddings = model.embed(jnp.array(texts[0]))
    form, affine = duat.unroll(model.output, embeddings), duat.collapse(model.output, embeddings)
    rows = jnp.ones_like(form.value)
    return found | {
        ("logits", ""): model(jnp.array(texts[::2])),
        ("closed form", "input"): form.input_map()(embeddings),
        ("closed form", "input", "transposed"): form.input_map().T(rows),
        ("closed form", "inner"): form.inner_map(1)(embeddings),
        ("closed form", "outer"): form.outer_map(1).T(rows),
        ("closed form", "bias"): form.bias(),
        ("collapse", "linear"): affine.linear.T(rows),
        ("collapse", "bias"): affine.bias,
    }


def compare(kind: str, *shapes: str) -> None:
    """Compare a kind of model on meshes, such as `2x4`, with the same model on one device."""
    model = model_of(BLOCKS[kind])
    expected = answers(model)
    for texts, parts in (map(int, shape.split("x")) for shape in shapes):
        mesh = Mesh(np.array(jax.devices()).reshape(texts, parts), ("texts", "model"))
        divided = divide(model, mesh)
        queries = divided.stack.blocks[0].attention.query.kernel[...]
        assert queries.addressable_shards[0].data.size == queries.size // parts, queries.sharding
        found = answers(divided, sharding=NamedSharding(mesh, P("texts")))
        assert found.keys() == expected.keys()
        for name in expected:
            close(on_host(found[name]), on_host(expected[name]), layers=2)


def further_answers(model):
    """Return the arrays of the answers to further questions."""
    text = [5, 17, 3, 9]
    score = duat.explain_attention(model, text, layer=1, head=2, key=1)
    form = duat.unroll(model.output, model.embed(jnp.array(text)))
    mlp = (next(source for source in sources if source.term) for sources in (score.query_sources, score.key_sources))
    assert form.completeness().verdict == "holds"
    return [
        duat.attribute(model, text, [8, 7, 6, 5], 7, method="secant").scores,
        score.pairs,
        score.neurons(*mlp),
    ]


def processes(number: int, port: int, kind: str, *shapes: str) -> None:
    """Compare a kind of model on meshes over the devices of two processes with the same model in this process."""
    jax.distributed.initialize(f"localhost:{port}", 2, number, heartbeat_timeout_seconds=10)
    assert (jax.device_count(), jax.local_device_count()) == (4, 2)
    compare(kind, *shapes)
    mesh = Mesh(np.array(jax.devices()), ("model",))
    for spec, entries in {P(): 48, P("model"): 24, P(None, "model"): 24}.items():
        assert entries_here((12, 4), NamedSharding(mesh, spec)) == entries
    model = model_of(BLOCKS[kind])
    for found, expected in zip(further_answers(divide(model, mesh)), further_answers(model), strict=True):
        close(found, expected, layers=2)


def refusals() -> None:
    """A mesh that doesn't fit is refused, and loading by a mesh that does is dividing what was loaded."""
    devices = np.array(jax.devices())
    mesh = Mesh(devices[:4].reshape(2, 2), ("texts", "model"))
    refused = {
        "the 4 heads of layer 0 can't be divided among the 8 devices": {"mesh": Mesh(devices, ("model",))},
        "give it 1, 2 or 4": {"mesh": Mesh(devices, ("model",))},
        "the mesh has an axis 'batch': name its axes 'texts', 'model', or both": {"mesh": Mesh(devices, ("batch",))},
        "both device and mesh": {"mesh": mesh, "device": devices[0]},
    }
    for message, arguments in refused.items():
        try:
            duat.load(**arguments)
        except duat.DuatError as error:
            assert message in str(error), error
        else:
            raise SystemExit(f"{arguments} was accepted")
    explicit = jax.make_mesh((2, 2), ("texts", "model"), axis_types=(AxisType.Explicit,) * 2, devices=devices[:4])
    model, whole = duat.load(mesh=explicit), duat.load()
    assert model.stack.blocks[0].attention.shards == 2
    for loaded, divided in zip(jax.tree.leaves(model), jax.tree.leaves(divide(whole, mesh)), strict=True):
        assert loaded.sharding == divided.sharding


def long_texts() -> None:
    """Texts whose tokens are divided between a model's parts have the answers of one device, in a batch and alone."""
    model = model_of(BLOCKS["grouped heads"], 1024)
    texts = np.random.default_rng(0).integers(0, 64, (4, 600))
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("texts", "model"))

    def answers(model, **spread):
        results = duat.explain(model, list(texts), 7, **spread)
        return [array.values for each in (*results, duat.contrast(model, *texts[:2], 7)) for array in each.arrays()]

    divided = answers(divide(model, mesh), sharding=NamedSharding(mesh, P("texts")))
    odd = jnp.array(texts[0, :599])  # tokens that can't be divided stay whole
    close(jax.jit(lambda model, ids: model(ids))(divide(model, mesh), odd), model(odd), layers=2)
    for found, expected in zip(divided, answers(model), strict=True):
        close(found, expected, layers=2)


def loop() -> None:
    """A model whose layers are the steps of one loop is divided as one with its layers written out."""
    model = model_of(BLOCKS["grouped heads"])
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("texts", "model"))
    divided = divide(scanned(model), mesh)
    queries = divided.stack.repeated[0].attention.query.kernel[...]
    assert queries.sharding.spec == P(None, None, "model") and queries.shape[0] == 2
    assert divided.stack.blocks[1].attention.shards == 4
    expected, found = answers(model), answers(divided, sharding=NamedSharding(mesh, P("texts")))
    assert found.keys() == expected.keys()
    for name in expected:
        close(on_host(found[name]), on_host(expected[name]), layers=2)
    loaded = duat.load(mesh=Mesh(mesh.devices.reshape(4, 2), ("texts", "model")), scanned=True)
    assert loaded.stack.repeated[0].mlp.output.kernel[...].sharding.spec == P(None, "model", None)
    close(loaded(jnp.array([5, 6, 7])), duat.load()(jnp.array([5, 6, 7])), layers=6)


def collectives(program, *arguments):
    """Return what devices send each other in a program."""
    return sent(jax.jit(program).lower(*arguments).compile().as_text())


def sent_between_devices(key_value_heads: int, tokens: int) -> None:
    """Look at the programs of one model, divided among all devices: what is sent, and nothing else is gathered."""
    block = replace(GATED, features=64, neurons=128, key_value_heads=key_value_heads)
    model = divide(model_of(block, tokens), Mesh(np.array(jax.devices()), ("model",)))
    ids, other = jnp.zeros(tokens, int), jnp.ones(tokens, int)
    layers, features, neurons = 2, 64, 128

    def logit(model, x):
        return model.output(x)[-1, 3]

    def forward(model, ids):
        return logit(model, model.embed(ids))

    def table(model, ids):
        return duat.decompose(partial(logit, model), model.embed(ids))

    def secant(model, ids, other):
        return duat.secant(partial(logit, model))(model.embed(ids), model.embed(other))

    sums, both = ("all-reduce", (tokens, features)), ("all-reduce", (2, tokens, features))
    own_keys = key_value_heads == 8  # else devices share heads, of which each has all keys and values
    # The embeddings of the vocabulary's parts; in each layer the sum of the heads, and that of the neurons; the logit.
    sent_forward = collectives(forward, model, ids)
    found = {"table": collectives(table, model, ids), "secant": collectives(secant, model, ids, other)}
    if tokens > LONGEST_STORED:  # between parts, devices divide tokens: each part gathers its input
        for program, all_sent in (found | {"forward": sent_forward}).items():
            shapes = {shape for kind, shape in all_sent if kind == "all-gather"}
            assert not shapes & {(features, 48), (48, features), (features, neurons), (neurons, features)}, program
        assert sent_forward.count(("all-gather", (tokens, features))) == 2 * layers, sent_forward
        assert found["secant"].count(("all-gather", (2, tokens, features))) == 2 * layers, found["secant"]
        return
    assert sent_forward == [sums] * (1 + 2 * layers) + [("all-reduce", (1, 1))]
    # The forward pass; then back through the read-out and each layer's values.
    assert found["table"].count(sums) == (1 + 2 * layers) + 1 + layers * own_keys, found
    # Two texts' embeddings and layers; then back through the read-out, and through each layer's queries, keys, values,
    # gates and factors.
    assert found["secant"].count(both) == 2 * layers, found
    assert found["secant"].count(sums) == 2 + 1 + layers * (5 if own_keys else 3), found
    # The table's neurons are returned; nothing else is gathered but the keys and values that devices share.
    whole = set() if own_keys else {(tokens, key_value_heads * block.head_features)}
    gathered = {
        program: {shape for kind, shape in all_sent if kind == "all-gather"} for program, all_sent in found.items()
    }
    assert gathered == {"table": whole | {(tokens, neurons)}, "secant": whole}, gathered
    # What is left is a single number, or a group's pull-back to shared keys and values.
    small = {(1, 1), (2, 1, 1), (tokens, 1, block.head_features)}
    rest = {shape for all_sent in found.values() for kind, shape in all_sent if kind != "all-gather"}
    assert rest <= small | {sums[1], both[1]}, rest


def invariance() -> None:
    """A text's contributions and logits alone, in a batch, padded and on divided devices differ by rounding alone."""
    found = differences("embedded", "float64")
    assert len(found) == 3
    for way, numbers in found.items():
        near([numbers["contributions"], numbers["logits"]], 0, within=numbers["tolerance"], message=way)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    command, *given = sys.argv[1:]
    if command == "processes":
        processes(int(given[0]), int(given[1]), *given[2:])
        sys.exit()
    assert jax.device_count() == 8
    if command in ("answers", "invariance", "loop"):
        jax.config.update("jax_disable_most_optimizations", True)
    if command == "answers":
        compare(*given)
    elif command == "invariance":
        invariance()
    elif command == "sent":
        sent_between_devices(*map(int, given))
    elif command == "long texts":
        long_texts()
    elif command == "loop":
        loop()
    else:
        refusals()
