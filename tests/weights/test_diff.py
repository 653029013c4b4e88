"""The difference between two models over their weights: one weight at a time, by hand, and by runs of the model."""

import json
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters import IDS, TOKEN, random_adapters, small_model
from cases import GOLDEN
from command import run
from flax import nnx
from golden_checkpoints import CHECKPOINTS, golden
from helpers import close, modern
from scipy.stats import t as student_t

import duat_jax as duat
from duat_jax.lora.adaptable_layers import adaptable_layers
from duat_jax.lora.adapter import adapt, merge
from duat_jax.lora.change import lora_change
from duat_jax.models.config import Head
from duat_jax.models.layer_parts import scanned
from duat_jax.verification.networks import randomised
from duat_jax.weights.units import parameters_of, units_of

OTHER = [2, 8, 1]
CLASSES = GOLDEN / "bert-classes"


def changed(model, size=0.1, key=1, only=None):
    """Return a model whose weights, or those of one parameter, are moved at random."""
    random = np.random.default_rng(key)

    def move(path, leaf):
        step = jnp.asarray(size * random.normal(size=leaf.shape), leaf.dtype)
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return leaf + step if only is None or only in name else leaf

    return jax.tree_util.tree_map_with_path(move, model)


def loss(model, ids):
    """Return the mean loss by NumPy, from the model's logits."""
    logits = np.asarray(model(jnp.asarray(ids)), np.float64)[:-1]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -logs[np.arange(len(ids) - 1), np.asarray(ids)[1:]].mean()


def gated_model():
    block = modern(features=6, heads=2, neurons=10)
    head = Head(kind="next token", outputs=11)
    config = duat.models.Config(
        family="llama", blocks=(block,) * 2, vocab=11, positions=8, position_embedding=False, head=head
    )
    return randomised(duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0)), 0)


MODELS = {"standard": lambda: small_model(layers=2), "gated, shared keys": gated_model}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def compared(model):
    return duat.diff(changed(model), IDS, top=2, reference=model)


def test_parts_sum_to_the_difference_of_the_losses(model, compared):
    before, after = loss(model, IDS), loss(changed(model), IDS)
    close(compared.reference_value, before)
    close(compared.value, after)
    assert abs(after - before) > 1e-2
    close(sum(compared.parts.values()), after - before)
    assert [each.verdict for each in compared.completeness] == ["holds"]
    layers = [sum(row[column] for column in ("attention", "mlp", "other")) for row in compared.layers.values()]
    close(np.sum(layers), after - before)


def test_of_a_parameter_that_changes_alone_the_part_is_the_whole_difference(model):
    """Every parameter in turn: a wrong part, with its fault in another one, would keep the sum."""
    for name in parameters_of(model):
        path = name.replace("layers.", "stack.blocks.")
        other = changed(model, only=path)
        alone = duat.diff(other, IDS, top=0, reference=model)
        close(alone.parts[name], loss(other, IDS) - loss(model, IDS))
        assert not any(part for each, part in alone.parts.items() if each != name)


def test_small_changes_have_the_parts_of_first_order(model):
    """Of a change of size `ε` the part differs from the gradient times the change by `ε²`."""
    misses = []
    for size in (1e-2, 1e-3):
        compared = duat.diff(changed(model, size), IDS, top=0, reference=model)
        gradient = parameters_of(jax.grad(lambda model: loss_of(model, IDS))(model))
        steps = {name: step - parameters_of(model)[name] for name, step in parameters_of(changed(model, size)).items()}
        expected = {name: float((gradient[name] * step).sum()) for name, step in steps.items()}
        for name, part in expected.items():
            close(compared.first_order[name][0], part)
        misses.append(max(abs(compared.parts[name] - part) for name, part in expected.items()))
    assert 50 < misses[0] / misses[1] < 200


def loss_of(model, ids):
    logs = jax.nn.log_softmax(model(ids))[:-1]
    return -jnp.take_along_axis(logs, ids[1:, None], -1).mean()


def test_units_are_sums_of_their_own_weights():
    """Each weight has a number of its own, so that a sum says which weights are in it."""
    model = gated_model()
    leaves, tree = jax.tree.flatten(model)
    random = np.random.default_rng(0)
    units = units_of(jax.tree.unflatten(tree, [jnp.asarray(random.normal(size=leaf.shape)) for leaf in leaves]))
    random = np.random.default_rng(0)
    weights = parameters_of(jax.tree.unflatten(tree, [jnp.asarray(random.normal(size=leaf.shape)) for leaf in leaves]))
    for name, total in units.parameters.items():
        close(total, np.asarray(weights[name]).sum())
    mlp, attention = "layers.1.mlp", "layers.1.attention"
    for name in ("input", "factor"):
        close(units.neurons[f"{mlp}.{name}"][3], np.asarray(weights[f"{mlp}.{name}.kernel"])[:, 3].sum())
    close(units.neurons[f"{mlp}.output"][3], np.asarray(weights[f"{mlp}.output.kernel"])[3].sum())
    close(units.heads[f"{attention}.query"][1], np.asarray(weights[f"{attention}.query.kernel"])[:, 4:].sum())
    assert units.heads[f"{attention}.key"].shape == (1,)
    close(units.heads[f"{attention}.output"][1], np.asarray(weights[f"{attention}.output.kernel"])[4:].sum())
    close(units.rows["embedding.token"][5], np.asarray(weights["embedding.token"])[5].sum())
    close(units.rows["head.unembedding"][5], np.asarray(weights["head.unembedding"])[5].sum())


def test_the_largest_units_are_listed_of_each_kind(compared):
    for kind, sums in (("neuron", compared.neurons), ("head", compared.heads), ("row", compared.rows)):
        every = sorted(
            ((name, f"{kind} {i}", part) for name, of in sums.items() for i, part in enumerate(of.tolist())),
            key=lambda row: -abs(row[2]),
        )
        listed = [unit for unit in compared.units if unit.unit.startswith(kind)]
        assert [(name, unit.partition(",")[0], part) for name, unit, part in listed] == every[:5]


@pytest.mark.parametrize(
    ("checkpoint", "matrix", "text"),
    [(None, "embedding.token", "import numpy"), (GOLDEN / "llama", "head.unembedding", "w5 w7 w9")],
)
def test_rows_are_named_by_their_texts(checkpoint, matrix, text):
    model = duat.load(checkpoint)
    tokenizer = model.tokenizer
    rows = duat.diff(changed(model, 0.05, only=matrix), text, top=0, tokenizer=tokenizer, reference=model).units
    assert rows and {unit.weights for unit in rows} == {matrix}
    for unit in rows:
        number, label = unit.unit.removeprefix("row ").split(", ", 1)
        assert label == repr(tokenizer.decode([int(number)]))


def test_units_of_experts_have_two_numbers_and_equal_models_none():
    model = duat.load(GOLDEN / "mixtral")
    other = changed(model, only="mlp.input")
    units = duat.diff(other, [1, 2, 3], top=0, reference=model).units
    assert any(unit.unit.startswith("expert ") and ", neuron " in unit.unit for unit in units)
    assert duat.diff(model, [1, 2, 3], top=0, reference=model).units == ()


def test_a_neurons_part_has_its_biases():
    model = small_model()
    other = changed(model, only="mlp.input.bias")
    compared = duat.diff(other, IDS, top=0, reference=model)
    close(compared.neurons["layers.0.mlp.input"].sum(), compared.difference)
    assert np.count_nonzero(compared.neurons["layers.0.mlp.input"]) == 10


def test_exchanged_parameters_are_run_again(model, compared):
    other = changed(model)
    names = [row.name for row in compared.again]
    assert names == [*(name for name, _ in compared.top(2)), "together"]
    for row, members in zip(compared.again, [names[:1], names[1:2], names[:2]], strict=True):
        first, second = parameters_of(model), parameters_of(other)
        put_in = with_parameters(model, {name: second[name] for name in members})
        set_back = with_parameters(other, {name: first[name] for name in members})
        close(row.put_in, loss(put_in, IDS) - loss(model, IDS))
        close(row.set_back, loss(other, IDS) - loss(set_back, IDS))
        close(row.part, sum(compared.parts[name] for name in members))


def with_parameters(model, values):
    leaves, tree = jax.tree.flatten(model)
    pairs = zip(parameters_of(model), leaves, strict=True)
    return jax.tree.unflatten(tree, [values.get(name, leaf) for name, leaf in pairs])


def test_every_row_of_the_flow_sums_to_the_difference(compared):
    """Parts of streams and parts of weights are computed apart from each other."""
    rows = compared.flow.tokens.sum(1) + compared.flow.later
    assert compared.flow.tokens.shape == (3, len(IDS))
    assert np.abs(compared.flow.later[:-1]).min() > 1e-4
    for row in rows:
        close(row, compared.difference)


def test_a_loop_over_layers_gives_the_same(model, compared):
    looped = duat.diff(scanned(changed(model)), IDS, top=2, reference=scanned(model))
    assert list(looped.parts) != [] and set(looped.parts) == set(compared.parts)
    for name, part in compared.parts.items():
        close(looped.parts[name], part)
    for mine, other in zip(looped.again, compared.again, strict=True):
        assert mine.name == other.name
        close(np.array(mine[1:]), np.array(other[1:]))
    mixed = duat.diff(changed(model), IDS, top=0, reference=scanned(model))
    close(mixed.difference, compared.difference)


def test_several_texts_are_averaged(model, compared):
    other = changed(model)
    both = duat.diff(other, [IDS, jnp.array(OTHER)], top=1, reference=model)
    alone = duat.diff(other, OTHER, top=0, reference=model)
    assert both.tokens == () and both.flow is None
    close(both.difference, (compared.difference + alone.difference) / 2)
    for name, part in both.parts.items():
        close(part, (compared.parts[name] + alone.parts[name]) / 2)
    close(
        both.neurons["layers.0.mlp.input"],
        (compared.neurons["layers.0.mlp.input"] + alone.neurons["layers.0.mlp.input"]) / 2,
    )
    assert not compared.intervals and both.intervals.keys() == both.parts.keys()
    for name, ends in both.intervals.items():
        of_texts = [compared.parts[name], alone.parts[name]]
        close(np.array(ends), np.mean(of_texts) + np.array([-1, 1]) * student_t.ppf(0.975, 1) * np.ptp(of_texts) / 2)
    name, *_ = both.again[0]
    put_in = with_parameters(model, {name: parameters_of(other)[name]})
    close(both.again[0].put_in, np.mean([loss(put_in, ids) - loss(model, ids) for ids in (np.asarray(IDS), OTHER)]))


def test_merged_adapters_have_the_parts_that_lora_change_gives_them():
    model = small_model()
    adapters = random_adapters(model)
    change = lora_change(model, adapters, IDS, TOKEN)
    compared = duat.diff(merge(model, adapters), IDS, TOKEN, reference=model)
    close(compared.difference, change.difference)
    for effect in change.effects:
        stored = adaptable_layers(model)[effect.name]
        paths = [path.replace("stack.blocks.", "layers.") + ".kernel" for path in stored.paths]
        close(sum(compared.parts[path] for path in paths), effect.part)


def test_a_logit_and_a_similarity_can_be_compared():
    model = small_model()
    other = changed(model)
    compared = duat.diff(other, IDS, TOKEN, contrast=3, reference=model)
    close(compared.difference, np.subtract(*(one(IDS)[-1, TOKEN] - one(IDS)[-1, 3] for one in (other, model))))
    encoder = small_model(head=Head())
    other = changed(encoder)
    compared = duat.diff(other, IDS, against=OTHER, reference=encoder)

    def similarity(one):
        mine, its = (np.asarray(one(jnp.asarray(ids))).mean(0) for ids in (IDS, OTHER))
        return mine @ its / np.linalg.norm(mine) / np.linalg.norm(its)

    close(compared.difference, similarity(other) - similarity(encoder))
    assert compared.completeness[0].verdict == "holds"
    assert compared.flow is None


def test_a_model_and_itself_differ_in_nothing(model):
    compared = duat.diff(model, IDS, reference=model)
    assert compared.difference == 0 and not any(compared.parts.values())
    # A sum of zeros has no size that an error could be measured by.
    assert compared.completeness[0].verdict == "inconclusive"
    assert str(compared)


@pytest.mark.parametrize(
    ("first", "second", "computed"),
    [("bfloat16", "float64", "float64"), ("bfloat16", "bfloat16", "float32"), ("float16", "bfloat16", "float32")],
)
def test_the_wider_dtype_is_computed_in(first, second, computed):
    model = small_model()
    before, after = (
        jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), each)
        for each, dtype in ((model, first), (changed(model), second))
    )
    compared = duat.diff(after, IDS, top=0, reference=before)
    assert compared.completeness[0].dtype == computed
    assert compared.completeness[0].verdict == "holds"


@pytest.mark.parametrize("tokens", [5, 16, 24])
def test_padding_changes_nothing(tokens):
    """Also of a text as long as what it is padded to, and of frequencies that depend on its length."""
    model = duat.load(GOLDEN / "llama-dynamic", dtype=jnp.float64)
    other, ids = changed(model, 0.02), np.arange(tokens) % model.config.vocab
    compared = duat.diff(other, ids, top=0, reference=model)
    close(compared.reference_value, loss(model, ids))
    close(compared.value, loss(other, ids))
    assert compared.flow.tokens.shape == (model.config.layers + 1, tokens)
    for row in compared.flow.tokens.sum(1) + compared.flow.later:
        close(row, compared.difference)


def test_the_flow_ends_where_the_number_is_read():
    model = small_model(layers=2)
    direction = duat.targets.Direction(jnp.arange(6.0), stream=1, position=-1)
    compared = duat.diff(changed(model), IDS, direction, top=0, reference=model)
    assert compared.flow.tokens.shape == (2, len(IDS))
    for row in compared.flow.tokens.sum(1) + compared.flow.later:
        close(row, compared.difference)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_family(name):
    model, given, _ = golden(name, "float64")
    inputs = given if given.ndim == (1 if model.config.image is None else 3) else given[0]
    against = {"against": inputs[::-1]} if model.config.head.kind == "hidden" else {}
    position = {"position": 0} if model.config.head.kind == "masked token" else {}
    compared = duat.diff(changed(model, 0.01), inputs, top=1, **against, **position, reference=model)
    assert [each.verdict for each in compared.completeness] == ["holds"]
    close(sum(compared.parts.values()) + sum(compared.discontinuities.values()), compared.difference)


REFUSED = {
    "shapes": (
        lambda model: small_model(layers=2, mlp_bias=False),
        [
            "in layers 0, 1 mlp_bias is True in the reference and False in the model",
            "layers.0.mlp.input.bias is [10] in the reference and absent in the model",
        ],
    ),
    "depth": (
        lambda model: jax.tree.map(lambda leaf: jnp.roll(leaf, 1, -1), small_model(layers=1)),
        ["the smaller model isn't the larger one with less of it: layer 0 is unlike all"],
    ),
    "settings": (lambda model: small_model(layers=2, cap=3.0), ["head.cap is None in the reference and 3.0"]),
    "adapters": (
        lambda model: adapt(model, random_adapters(model)),
        ["the model isn't made of the layers of its configuration", "duat.lora.merge(model, adapters)"],
    ),
    "no model": (lambda model: lambda ids: ids, ["give one that duat.load returns"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_arent_one_function_are_refused(case):
    model = small_model(layers=2)
    make, said = REFUSED[case]
    with pytest.raises(duat.DuatError) as raised:
        duat.diff(make(model), IDS, reference=model)
    for words in said:
        assert words in str(raised.value)


def test_a_reference_with_adapters_is_refused_too():
    model = small_model(layers=2)
    with pytest.raises(duat.DuatError, match=r"give duat\.lora\.merge\(model, adapters\)"):
        duat.diff(model, IDS, reference=adapt(model, random_adapters(model)))
    adapted = adapt(model, random_adapters(model))
    with pytest.raises(duat.DuatError, match="isn't made of the layers of its configuration"):
        duat.diff(adapted, IDS, reference=adapted)


def test_questions_without_a_number_are_refused():
    model = small_model()
    with pytest.raises(duat.InvalidInput, match="several inputs have no most probable output in common: give a target"):
        duat.diff(model, [IDS, OTHER], position=1, reference=model)
    with pytest.raises(duat.InvalidInput, match="top is -1"):
        duat.diff(model, IDS, top=-1, reference=model)
    with pytest.raises(duat.InvalidInput, match="one target is taken"):
        duat.diff(model, IDS, [1, 2], reference=model)
    with pytest.raises(duat.InvalidInput, match="text 1: one token has no loss; give at least two"):
        duat.diff(model, [IDS, [3]], reference=model)


def test_names_alone_dont_make_two_functions():
    """A fine-tuned model may be stored with a longer context."""
    model = duat.load(GOLDEN / "llama", dtype=jnp.float64)
    config = duat.models.Config(**{**vars(model.config), "positions": 2 * model.config.positions})
    longer = duat.models.Transformer(config, dtype=jnp.float64, rngs=None)
    longer = jax.tree.unflatten(jax.tree.structure(longer), jax.tree.leaves(changed(model, 0.01)))
    assert duat.diff(longer, [5, 7, 9], top=0, reference=model).completeness[0].verdict == "holds"


def test_layers_stand_in_the_order_of_their_numbers(compared):
    """Eleven layers are the first one again and again, in the order of the alphabet, in which 10 stands before 2."""
    numbered = [f"layers.{i}" for i in range(11)]

    def in_eleven(parts):
        return {name.replace("layers.0", layer): part for name, part in parts.items() for layer in sorted(numbered)}

    many = {name: in_eleven(getattr(compared, name)) for name in ("parameters", "first_order")}
    rows = list(replace(compared, **many).layers)
    assert [row for row in rows if row.startswith("layers.")] == numbered
    assert rows.index("embedding") < rows.index("layers.0") and rows[-1] not in numbered


def test_it_shows_itself(compared):
    for words in (
        "mean loss",
        "together",
        "A: the model",
        "B: the reference",
        "A − B",
        "set back",
        "put in",
        "holds",
        "times the difference",
    ):
        assert words in str(compared)
    panels = [axis.get_title() for axis in compared.plot().axes if axis.get_title()]
    assert panels == ["By layer", "The largest parts, and the model run again"]
    record = compared.as_dict("a", "b")
    close(sum(record["parts"].values()), record["difference"])


def test_the_command_refuses_two_tokenizers(tmp_path):
    """Two words have exchanged their numbers, though all weights are alike."""
    checkpoint = shutil.copytree(GOLDEN / "gpt2", tmp_path / "other")
    file = checkpoint / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    first, second = [token for token in vocabulary if token.startswith("w")][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    result = run("diff", checkpoint, f"{first} {second}", "--reference", GOLDEN / "gpt2", "--top", 0)
    assert result.exit_code == 2 and "compare models that share a tokenizer" in " ".join(result.output.split())


def test_a_class_is_named_by_its_number_in_the_command():
    result = run("diff", CLASSES, "w5 w7 w9", "--reference", CLASSES, "--target", 1, "--top", 0)
    assert result.exit_code == 0 and "logit of class 'b'" in result.output, result.output
