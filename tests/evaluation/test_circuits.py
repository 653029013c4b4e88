"""Circuits: runs with units set, the curves made of them, their errors; tasks; the command."""

import json
from itertools import pairwise
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import ENCODER
from flax import nnx
from helpers import close, near
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.attribution.unit_values import Scores
from duat_jax.cli import application
from duat_jax.errors import NotFinite
from duat_jax.evaluation import circuit_plot
from duat_jax.evaluation.circuit_curve import FRACTIONS, STATISTICS, Curve, columns, faithfulness, number
from duat_jax.evaluation.circuits import AT_ONCE, METHODS, UNITS, measure, run, top, values
from duat_jax.evaluation.comparison import Row, as_dict, compare
from duat_jax.inputs.prompts import Prompt, draw
from duat_jax.inputs.tasks.registry import TASKS
from duat_jax.models.config import Head
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

LAYERS, TOKENS = 2, 5


def language_model(vocab=11, positions=8, random=True, bias=False, **settings):
    block = BlockConfig(arrangement="pre-norm", features=8, heads=2, neurons=10, **settings)
    head = Head(kind="next token", outputs=vocab, tied=True, bias=bias)
    config = duat.models.Config(family="gpt2", blocks=(block,) * LAYERS, vocab=vocab, positions=positions, head=head)
    model = duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0) if random else None)
    return randomised(model, 0) if random else model


def prompts_of(count, key=0):
    clean = jax.random.randint(jax.random.key(key), (count, TOKENS), 0, 11)
    corrupted = clean.at[:, 1].set((clean[:, 1] + 3) % 11).at[:, 3].set((clean[:, 3] + 5) % 11)
    return Prompt(clean, corrupted, jnp.full(count, 4), jnp.full(count, 7))


def one_of(prompts, i=0):
    return jax.tree.map(lambda leaf: leaf[i], prompts)


def lives(model, prompt, units, live):
    """Run with one mask for all entries of the units' values, the others as on the corrupted text."""
    others = values(model, prompt.corrupted, units)
    return run(model, prompt, units, jnp.broadcast_to(jnp.asarray(live), others.shape)[None], others)[0]


@pytest.fixture(scope="module")
def model():
    return language_model(mlp="gated", norm="rms")


@jax.jit
def said(model, ids):
    """The plain forward pass."""
    return model(ids)


def preference(model, ids, prompt):
    logits = said(model, ids)[-1]
    return logits[prompt.right] - logits[prompt.wrong]


def fixed(model, clean, corrupted, right, wrong):
    """Scores of nothing in particular, others for each text."""
    random = np.random.default_rng(0)
    neurons, heads = (jnp.asarray(random.normal(size=(LAYERS, TOKENS, units))) for units in (10, 2))
    return Scores(jnp.roll(neurons, clean.sum()), jnp.roll(heads, clean.sum()), None)


@pytest.mark.parametrize("units", ["neuron x position", "head x position", "layer x token"])
def test_with_every_unit_live_the_model_reads_the_clean_text(model, units):
    prompt = one_of(prompts_of(1))
    close(lives(model, prompt, UNITS[units], True), preference(model, prompt.clean, prompt))


def test_with_no_stream_live_it_reads_the_corrupted_text(model):
    prompt = one_of(prompts_of(1))
    close(lives(model, prompt, UNITS["layer x token"], False), preference(model, prompt.corrupted, prompt))
    # The last stream's last token is all that is read.
    live = np.ones((LAYERS + 1, TOKENS, 1), bool)
    live[-1, -1] = False
    close(lives(model, prompt, UNITS["layer x token"], live), preference(model, prompt.corrupted, prompt))


@jax.jit
def by_hand(model, prompt, live_heads, live_neurons):
    """The forward pass written out, parts that aren't live taken from the corrupted text's own pass.

    Between 0 and 1, so much of a part is live.
    """
    live_heads, live_neurons = (live.astype(jnp.float64) for live in (live_heads, live_neurons))

    def passed(ids, heads, neurons):
        x, seen = model.embed(ids), []
        for i, block in enumerate(model.stack.blocks):
            attention, mlp = block.attention, block.mlp
            h = block.norm_1(x)
            shape = (TOKENS, 2, -1)
            q, k, v = ((part(h)).reshape(shape) for part in (attention.query, attention.key, attention.value))
            scores = jnp.einsum("qhd,khd->hqk", q, k) * attention.scale
            pattern = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((TOKENS, TOKENS), bool)), scores, -jnp.inf))
            mixed = jnp.einsum("hqk,khd->qhd", pattern, v)
            mixed = mixed if heads is None else live_heads[i] * mixed + (1 - live_heads[i]) * heads[i]
            x = x + attention.output(mixed.reshape(TOKENS, -1))
            active = jax.nn.gelu(mlp.input(block.norm_2(x)), approximate=False)
            active = active if neurons is None else live_neurons[i] * active + (1 - live_neurons[i]) * neurons[i]
            x = x + mlp.output(active)
            seen.append((mixed, active))
        return x, seen

    heads, neurons = zip(*passed(prompt.corrupted, None, None)[1])
    x, _ = passed(prompt.clean, heads, neurons)
    logits = model.head.logits(model.final_norm(x)[-1], model.unembedding)
    return logits[prompt.right] - logits[prompt.wrong]


def test_units_that_are_not_live_are_those_of_the_corrupted_text():
    model, prompt = language_model(activation="gelu"), one_of(prompts_of(1))
    random = np.random.default_rng(0)
    neurons = random.random((LAYERS, TOKENS, 10)) < 0.5
    heads = random.random((LAYERS, TOKENS, 2, 1)) < 0.5
    everything = np.ones((LAYERS, 1, 1), bool)
    found = lives(model, prompt, UNITS["neuron x position"], neurons)
    close(found, by_hand(model, prompt, everything[..., None], neurons))
    found = lives(model, prompt, UNITS["head x position"], heads)
    close(found, by_hand(model, prompt, heads, everything))
    assert abs(found - preference(model, prompt.clean, prompt)) > 1e-3


def test_the_top_of_each_size_holds_the_largest_scores_of_either_sign():
    scores = np.random.default_rng(0).normal(size=(2, 50, 20))
    circuits = top(scores)
    assert [circuit.sum() for circuit in circuits] == [2, 4, 10, 20, 40, 100, 200, 400, 1000]
    for circuit in circuits:
        assert np.abs(scores[circuit]).min() > np.abs(scores[~circuit]).max()
    assert all((larger | ~smaller).all() for smaller, larger in pairwise(circuits))
    assert top(np.zeros((3, 4)))[0].sum() == 1


NEURONS, CARRIER = 100, 37


def one_neuron_model():
    """Token 1 against token 2 is read by one neuron of the first layer and by nothing else."""
    block = BlockConfig(arrangement="pre-norm", features=4, heads=1, neurons=NEURONS, activation="relu", norm="none")
    head = Head(kind="next token", outputs=3, tied=False)
    config = duat.models.Config(
        family="gpt2", blocks=(block,) * 2, vocab=3, positions=2, head=head, position_embedding=False, final_norm=False
    )
    model = duat.models.Transformer(config, dtype=jnp.float64, rngs=None)
    model.embedding.token[...] = jnp.array([[0, 0, 0, 0], [1, -1, 0, 0], [-1, 1, 0, 0]], jnp.float64)
    mlp = model.stack.blocks[0].mlp
    mlp.input.kernel[...] = mlp.input.kernel[...].at[0, CARRIER].set(1.0)
    mlp.output.kernel[...] = mlp.output.kernel[...].at[CARRIER, 2].set(3.0)
    mlp.output.bias[...] = jnp.array([0, 0, -1.0, 0])
    model.head.unembedding[...] = jnp.array([[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], jnp.float64)
    return model


@pytest.mark.parametrize("rank", [0, 1, 5, 39, 120])
def test_the_curve_of_a_model_in_which_one_neuron_carries_the_answer_jumps_there(rank):
    def ranked(model, clean, corrupted, right, wrong):
        # All other neurons have scores of their own, `rank` of them a larger one.
        place = jnp.array([0, len(clean) - 1, CARRIER])
        scores = 1.0 + jnp.arange(2 * len(clean) * NEURONS, dtype=jnp.float64)[::-1].reshape(2, len(clean), NEURONS)
        return Scores(scores.at[tuple(place)].set(scores.reshape(-1)[rank] + 0.5), None, None)

    prompts = Prompt(jnp.array([[1, 1]]), jnp.array([[1, 2]]), jnp.array([0]), jnp.array([1]))
    units = "neuron x position"
    curve = measure(one_neuron_model(), prompts, {"ranked": ranked}, [units])[units]["ranked"]
    assert curve.clean[0] > 0 > curve.corrupted[0]
    sizes = [round(fraction * 2 * 2 * NEURONS) or 1 for fraction in FRACTIONS]
    inside = [size > rank for size in sizes]
    close(faithfulness(curve, curve.kept), np.array(inside, float))
    close(faithfulness(curve, curve.removed), 1 - np.array(inside, float))


def test_a_neuron_at_all_tokens_is_scored_by_its_sum_over_positions():
    def of_sum(scores):
        return Scores(scores, None, None)

    scores = jnp.array(np.random.default_rng(0).normal(size=(LAYERS, TOKENS, 10)))
    close(UNITS["neuron"].select(of_sum(scores)), np.asarray(scores).sum(1)[:, None])
    assert UNITS["neuron"].select(Scores(None, None, None)) is None


def test_each_prompt_has_its_own_circuit_and_the_others_may_be_the_mean_over_all_texts():
    model, prompts, units = language_model(), prompts_of(AT_ONCE + 2), "neuron x position"
    curve = measure(model, prompts, {"fixed": fixed}, [units], mean=True)[units]["fixed"]
    others = jnp.mean(jnp.stack([values(model, ids, UNITS[units]) for ids in prompts.corrupted]), 0)
    for i in range(AT_ONCE + 2):
        prompt = one_of(prompts, i)
        circuits = top(np.asarray(fixed(model, *prompt).neurons))
        expected = run(model, prompt, UNITS[units], jnp.asarray(np.concatenate([circuits, ~circuits])), others)
        close(np.concatenate([curve.kept[i], curve.removed[i]]), expected)
        close(curve.clean[i], preference(model, prompt.clean, prompt))
        close(curve.corrupted[i], preference(model, prompt.corrupted, prompt))


def test_a_method_without_scores_for_a_kind_of_units_has_no_curve_there():
    def of_neurons(*arguments):
        return fixed(*arguments)._replace(heads=None)

    model, prompts, counted = language_model(), prompts_of(2), []
    methods, units = {"fixed": fixed, "of neurons": of_neurons}, ["neuron x position", "head x position"]
    found = measure(model, prompts, methods, units, progress=lambda *numbers: counted.append(numbers))
    assert [list(of_methods) for of_methods in found.values()] == [["fixed", "of neurons"], ["fixed"]]
    of_fixed, of_others = found["neuron x position"].values()
    np.testing.assert_array_equal(of_fixed.kept, of_others.kept)
    assert counted == [(2, 4), (4, 4)]
    with pytest.raises(duat.DuatError, match="no method of of neurons has scores for head x position"):
        measure(model, prompts, {"of neurons": of_neurons}, ["head x position"])


def test_scores_that_are_not_finite_are_refused():
    def broken(*arguments):
        return jax.tree.map(lambda scores: scores / 0, fixed(*arguments))

    with pytest.raises(NotFinite, match="'broken' gives scores that aren't finite"):
        measure(language_model(), prompts_of(2), {"broken": broken}, ["neuron x position"])


def curve_of(count, key):
    random = np.random.default_rng(key)
    clean, corrupted = 5 + random.random(count), -4 - random.random(count)
    kept, removed = random.random((2, count, len(FRACTIONS)))
    return Curve(clean, corrupted, kept, removed)


def test_numbers_of_a_curve_are_areas_of_trapezoids():
    shape = (4, len(FRACTIONS))
    curve = Curve(np.full(4, 3.0), np.full(4, -1.0), np.full(shape, 2.0), np.full(shape, 0.0))
    found = {name: number(name, columns(curve).mean(0)) for name in STATISTICS}
    # f is 3/4 up to half of the units, and goes straight to 1 from there.
    assert found["logf"] == pytest.approx(0.75) and found["removed"] == pytest.approx(0.25)
    assert found["CPR"] == pytest.approx(0.75 * 0.499 + 0.875 * 0.5)
    assert found["CMD"] == pytest.approx(0.25 * 0.499 + 0.125 * 0.5)
    rising = curve._replace(kept=-1 + 4 * np.log(np.tile(FRACTIONS, (4, 1)) / 0.001) / np.log(500))
    assert number("logf", columns(rising).mean(0)) == pytest.approx(0.5)


def test_metrics_are_averaged_over_prompts_before_their_ratio_is_taken():
    curve = Curve(np.array([1.0, 9.0]), np.array([0.0, 0.0]), np.full((2, 9), [[1.0], [0.0]]), np.zeros((2, 9)))
    close(faithfulness(curve, curve.kept), np.full(9, 0.1))


def test_differences_are_paired():
    one = curve_of(20, 0)
    other = one._replace(kept=one.kept + 0.3)
    table = compare([{"one": one, "other": other}])
    by = (one.clean.mean() - one.corrupted.mean()) / 0.3
    ahead, alone = table["other"].ahead, table["one"].numbers["logf"]
    assert ahead.value == pytest.approx(-1 / by)
    # The errors of both are the same and cancel.
    assert ahead.high - ahead.low < 0.1 * (alone.high - alone.low)
    assert table["one"].ahead == (0.0, 0.0, 0.0)


def test_tasks_are_drawn_again_as_prompts_are():
    """Tasks that differ by more than their prompts make the mean over tasks less sure than prompts alone say."""
    tasks = [{"one": curve_of(9, k), "other": curve_of(9, k)._replace(kept=curve_of(9, k).kept + k)} for k in range(4)]
    tables, found = [compare([task]) for task in tasks], compare(tasks)["other"]
    close(found.kept, np.mean([table["other"].kept for table in tables], 0))
    assert found.ahead.value == pytest.approx(np.mean([table["other"].ahead.value for table in tables]))
    assert found.ahead.high - found.ahead.low > max(t["other"].ahead.high - t["other"].ahead.low for t in tables)
    plain = as_dict(compare(tasks))["other"]["first_ahead"]
    assert plain == {"value": found.ahead.value, "low": found.ahead.low, "high": found.ahead.high}


def test_intervals_are_as_wide_as_several_comparisons_need():
    one = curve_of(20, 0)
    others = {f"other {k}": curve_of(20, 9)._replace(clean=one.clean, corrupted=one.corrupted) for k in range(12)}
    alone = compare([{"one": one, "other 0": others["other 0"]}])["other 0"].ahead
    among = compare([{"one": one, **others}])["other 0"].ahead
    assert among.value == alone.value
    assert 1.2 < (among.high - among.low) / (alone.high - alone.low) < 1.9


@pytest.fixture(scope="module")
def embedded():
    return duat.load(), duat.load_tokenizer()


@pytest.mark.slow
def test_drawn_prompts_are_answered_rightly_and_differ_in_what_decides(embedded):
    model, tokenizer = embedded
    drawn = draw(model, "parameter", 6, tokenizer=tokenizer)
    assert drawn.prompts.clean.shape == drawn.prompts.corrupted.shape and len(set(drawn.cases)) == 6
    read = jax.vmap(said, (None, 0))
    clean, corrupted = read(model, drawn.prompts.clean)[:, -1], read(model, drawn.prompts.corrupted)[:, -1]
    for i, case in enumerate(drawn.cases):
        prompt = one_of(drawn.prompts, i)
        assert tokenizer.decode(prompt.clean.tolist()) == case.clean
        assert tokenizer.decode([int(prompt.right)]) == case.right
        assert tokenizer.decode([int(prompt.wrong)]) == case.wrong
        assert (prompt.clean != prompt.corrupted).sum() == 1
        assert clean[i, prompt.right] > clean[i, prompt.wrong]
        assert corrupted[i, prompt.wrong] > corrupted[i, prompt.right]
    again, other = (
        draw(model, "parameter", 3, tokenizer=tokenizer),
        draw(model, "parameter", 3, seed=1, tokenizer=tokenizer),
    )
    assert again.cases == drawn.cases[:3] and not set(other.cases) & set(again.cases)


@pytest.mark.parametrize("task", TASKS)
def test_texts_of_a_task_differ_in_words_and_not_in_their_number(task):
    cases = cases_of(task)
    assert len(set(cases)) > 100
    for case in cases:
        clean, corrupted = case.clean.split(), case.corrupted.split()
        assert len(clean) == len(corrupted) and sum(map(str.__ne__, clean, corrupted)) == 1
        assert case.right != case.wrong


def tokenizer_of(words):
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def cases_of(task, count=200):
    random = Random(0)
    return [TASKS[task](random) for _ in range(count)]


def test_prompts_that_cannot_be_drawn_are_refused(embedded):
    model, tokenizer = embedded
    with pytest.raises(duat.InvalidInput, match="there is no task 'chess': choose one of indirect object"):
        draw(model, "chess", 1, tokenizer=tokenizer)
    with pytest.raises(duat.InvalidInput, match="no single token for any answer of 'greater than'"):
        draw(model, "greater than", 1, tokenizer=tokenizer_of(["?", "a"]))
    # A model that always says "he" knows one of each pair.
    words = sorted({word for case in cases_of("pronoun", 4000) for word in f"{case.clean} he she".split()})
    biased = language_model(vocab=len(words) + 1, positions=16, random=False, bias=True)
    biased.head.bias[...] = biased.head.bias[...].at[1 + words.index("he")].set(1.0)
    with pytest.raises(
        duat.InvalidInput, match=r"the model answers 0 of \d+ prompts of 'pronoun' rightly, and 2 are asked"
    ):
        draw(biased, "pronoun", 2, tokenizer=tokenizer_of(["?", *words]))
    encoder = duat.load(ENCODER)
    with pytest.raises(duat.InvalidInput, match="models that say the next token, and this one's head is 'hidden'"):
        draw(encoder, "pronoun", 2, tokenizer=tokenizer)


def command(*arguments):
    return CliRunner().invoke(application, ["circuit", *map(str, arguments)])


METHODS_TRIED = "--method", "norm of change x W_out", "--method", "random"


@pytest.mark.slow
def test_the_command_shows_and_writes_what_it_measured(embedded, tmp_path):
    picture, file, units = tmp_path / "curves.png", tmp_path / "curves.json", "head x position"
    asked = "--task", "parameter", "--prompts", 3, *METHODS_TRIED, "--units", units
    result = command(*asked, "--plot", picture, "--json", file)
    assert result.exit_code == 0, result.output
    assert "parameter: the first 3 of 3 prompts whose answers the model knows, 20 tokens each" in result.stdout
    assert f"parameter, {units}" in result.stdout and "first ahead by" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    model, tokenizer = embedded
    prompts = draw(model, "parameter", 3, tokenizer=tokenizer).prompts
    methods = {name: METHODS[name] for name in METHODS_TRIED[1::2]}
    expected = as_dict(compare([measure(model, prompts, methods, [units])[units]]))
    found = json.loads(file.read_text())
    said = found["tasks"]["parameter"]["units"][units]
    assert list(said) == list(expected) and found["mean"][units] == said and found["fractions"] == list(FRACTIONS)
    for method, row in expected.items():
        near(said[method]["kept"], row["kept"], within=1e-4)
        near(list(said[method]["logf"].values()), list(row["logf"].values()), within=1e-4)


def test_the_command_names_everything_that_is_wrong(tmp_path):
    result = command("--task", "chess", "--method", "guess", "--units", "layer")
    assert result.exit_code == 2
    for said in ("there is no task 'chess'", "there is no method 'guess'", "there is no kind of units 'layer'"):
        assert said in result.stderr
    assert "Missing option '--task'" in command().stderr
    assert command("--task", "parameter", "--plot", tmp_path / "curves.gif").stderr.endswith(
        "must end in .png, .pdf or .svg\n"
    )


def test_a_picture_of_curves_says_which_is_which():
    kept, removed = np.linspace(0.1, 0.9, len(FRACTIONS)), np.linspace(0.8, 0.2, len(FRACTIONS))
    above, below = circuit_plot.draw({"capitals": {"secant": Row(kept, removed, {}, None)}}).axes
    for axes, numbers, label in ((above, kept, "circuit kept"), (below, removed, "circuit removed")):
        near(axes.lines[0].get_ydata(), numbers, within=0)
        assert axes.get_ylabel() == f"faithfulness, {label}"
    assert below.get_xlabel() == "% of all units in the circuit" and above.get_title() == "capitals"
