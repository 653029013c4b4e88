"""Deletion and insertion of tokens: methods, runs, curves, rank agreement, intervals; long work; the command."""

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from helpers import close
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import duat_jax as duat
from duat_jax.attribution.tokens import methods_of
from duat_jax.evaluation.deletion import (
    REMOVALS,
    SIZES,
    TextMetric,
    baselines_of,
    curves,
    kept_sets,
    leave_one_out,
    pin_targets,
    questions_of,
    run,
    scores_of,
)
from duat_jax.evaluation.deletion_study import compared, names_of
from duat_jax.evaluation.statistics import agreement, bootstrap
from duat_jax.inputs.baselines import Reference
from duat_jax.inputs.model_inputs import Inputs
from duat_jax.models.config import Head
from duat_jax.models.targets.base import Reader, reading
from duat_jax.nn import BlockConfig
from duat_jax.verification.networks import randomised

WORDS = ["?", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "f", "g", "h"]
VOCAB = len(WORDS)
IDS = np.array([4, 9, 6, 11, 5, 8])


def model_of(kind="next token", random=True, **settings):
    block = BlockConfig(**{"arrangement": "pre-norm", "features": 8, "heads": 2, "neurons": 6, **settings})
    layers = 1 if settings.get("norm") == "none" else 2  # where there is no norm, the linear model
    head = Head(kind=kind, outputs=0 if kind == "hidden" else VOCAB, tied=kind != "hidden")
    config = duat.models.Config(
        family="test",
        blocks=(block,) * layers,
        vocab=VOCAB,
        positions=16,
        position_embedding=layers > 1,
        final_norm=layers > 1,
        head=head,
    )
    model = duat.models.Transformer(config, dtype=jnp.float64, rngs=nnx.Rngs(0))
    return randomised(model, 0) if random else model


def tokenizer_of(special=False):
    words = WORDS if special else [word.strip("[]") for word in WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        tokenizer.add_special_tokens(WORDS[1:4])
        pair = [("[CLS]", 1), ("[SEP]", 2)]
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=pair)
    return tokenizer


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Total(Reader):
    """The sum over tokens of `⟨v, x_t⟩`, or its square."""

    vector: Any
    squared: Any

    def read(self, model, passed):  # noqa: D102
        weights = passed.real.astype(jnp.float64)[:, None] * self.vector
        total = (weights * passed.states).sum()
        return reading(jnp.where(self.squared, total**2, total), weights)


def question_of(ids=IDS, vector=None, squared=False, removable=None):
    given = Inputs(np.asarray(ids), np.ones(len(ids), bool), None)
    removable = np.ones(len(ids), bool) if removable is None else removable
    vector = np.ones(8) if vector is None else vector
    return TextMetric(given, {"mean": Reference(given, removable)}, removable, Total(vector, np.array(squared)))


def linear_model():
    """A model that is linear in its embeddings, whose mean is zero: attention is uniform, and MLPs say nothing."""
    model = model_of(norm="none", causal=False, attention_bias=False, output_bias=False, mlp_bias=False)
    for block in model.stack.blocks:
        block.attention.query.kernel[...] = jnp.zeros_like(block.attention.query.kernel[...])
        block.mlp.output.kernel[...] = jnp.zeros_like(block.mlp.output.kernel[...])
    table = model.embedding.token
    table[...] = table[...] - table[...].mean(0)
    return model


def scores(model, name, *questions):
    return scores_of(name, methods_of(model.config, ("mean",))[name], model, questions)


LINEAR = [
    name
    for name in methods_of(linear_model().config, ("mean",))
    if name not in ("attention rollout", "integrated gradients, 128 steps, mean")
]


def test_on_a_linear_model_every_method_gives_what_a_token_adds():
    model, vector = linear_model(), np.random.default_rng(0).normal(size=8)
    question = question_of(vector=vector)
    # What each token's embedding adds, by the model's matrix read off column by column.
    x = np.asarray(model.embed(jnp.asarray(IDS)))
    alone = [float((model.states(jnp.zeros((len(x), 8)).at[i].set(x[i])) * vector).sum()) for i in range(len(x))]
    for name in LINEAR:
        close(scores(model, name, question)[0], alone)
    (total,), asked = pin_targets(model, [question])
    close(total, sum(alone))
    close(leave_one_out(model, asked, np.array([total]), "masked")[0], alone)
    # The curves: the largest summands go first, or the smallest do.
    ((most_first, least_first),) = curves(model, asked, {"any": [np.array(alone)]}, "masked")["any"]
    gone = [1, 2, 3, 4, 5]
    ordered = np.sort(alone)
    close(most_first, [ordered[: 6 - k].sum() for k in gone])
    close(least_first, [ordered[k:].sum() for k in gone])


def test_two_tokens_whose_square_is_read_by_hand():
    """The number is (3 + 1)²; without the one token 1, without the other 9."""
    model = linear_model()
    for block in model.stack.blocks:
        block.attention.output.kernel[...] = jnp.zeros_like(block.attention.output.kernel[...])
    table = jnp.zeros((VOCAB, 8)).at[4, 0].set(3.0).at[5, 0].set(1.0).at[6, 0].set(-4.0)
    model.embedding.token[...] = table
    question = question_of([4, 5], squared=True)
    values, asked = pin_targets(model, [question])
    assert values == pytest.approx([16.0])
    expected = {
        "gradient x change, mean": [24.0, 8.0],
        "gradient x input": [24.0, 8.0],
        "secant, mean": [12.0, 4.0],
        "integrated gradients, 32 steps, mean": [12.0, 4.0],
    }
    for name, by_hand in expected.items():
        close(scores(model, name, question)[0], by_hand)
    smoothed = scores(model, "SmoothGrad x input", question)[0]
    assert np.abs(smoothed - [24, 8]).max() < 6 and np.abs(smoothed - [24, 8]).min() > 1e-3
    for removal in REMOVALS:
        close(leave_one_out(model, asked, values, removal)[0], [15.0, 7.0])
        ((most_first, least_first),) = curves(model, asked, {"any": [np.array([2.0, 1.0])]}, removal)["any"]
        assert most_first == pytest.approx([1.0] * 5) and least_first == pytest.approx([9.0] * 5)


@jax.jit
def states(model, x):
    return model.output(x)


def said(model, x):
    return np.asarray(jax.nn.log_softmax(states(model, x)[-1]))


@pytest.fixture(scope="module")
def language():
    model = model_of(mlp="gated")
    (question,) = questions_of(model, tokenizer_of(), ["a f c h b e g d a b c d"], 1, longest=6)
    return model, pin_targets(model, [question])


def test_of_a_language_model_its_own_next_token_is_read(language):
    model, ((value,), (question,)) = language
    assert (question.inputs.given == IDS).all() and question.removable.all()
    expected = said(model, model.embed(jnp.asarray(IDS)))
    assert question.reader.token == expected.argmax()
    close([value], [expected.max()])


def test_a_run_is_the_model_on_what_is_left(language):
    model, (_, (question,)) = language
    kept = np.array([[1, 0, 1, 1, 0, 1], [0, 1, 1, 1, 1, 0], [1, 1, 0, 1, 1, 0]], bool)
    token, mean = int(question.reader.token), model.embedding.token[...].mean(0)
    places, x = model.embedding.position[...][:6], model.embed(jnp.asarray(IDS))
    for row, masked, removed in zip(kept, *(run(model, [question], [kept], removal)[0] for removal in REMOVALS)):
        close([masked], [said(model, jnp.where(row[:, None], x, mean + places))[token]])
        close([removed], [said(model, model.embed(jnp.asarray(IDS[row])))[token]])


@pytest.mark.slow
def test_of_an_encoder_the_similarity_is_read_and_special_tokens_stay():
    model, tokenizer = model_of("hidden", arrangement="post-norm", causal=False), tokenizer_of(special=True)
    texts = ["a f c h b", "b b d a g e", "? c c a h"]
    assert baselines_of(tokenizer) == ("mask", "mean")
    values, asked = pin_targets(model, questions_of(model, tokenizer, texts, 2, longest=3))
    ids = [np.array(tokenizer.encode(text).ids) for text in texts]
    kept = [np.array([[True, False, True, True, False, True]])[:, : one.removable.sum()] for one in asked]

    def cosine(one, other):
        a, b = (np.asarray(states(model, model.embed(jnp.asarray(each)))).mean(0) for each in (one, other))
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert sorted(len(one.removable) for one in asked) == [7, 8]
    for value, one, *found in zip(values, asked, *(run(model, asked, kept, removal) for removal in REMOVALS)):
        text, following = (ids[0], ids[1]) if len(one.removable) == 7 else (ids[1], ids[2])
        assert (one.removable == [False, *[True] * (len(text) - 2), False]).all()
        stays = np.array([True, True, False, True, True, False, True, True])[: len(text)]
        stays[-1] = True
        masked = np.where(stays, text, 3)
        expected = [cosine(each, following) for each in (text, masked, text[stays])]
        close([value, *np.concatenate(found)], expected)


@pytest.mark.slow
def test_methods_on_a_model_that_is_not_linear(language):
    """Each beside a computation of its own: autodiff of the plain pass, differences of runs, patterns by hand."""
    model, (_, (question,)) = language
    token, x = int(question.reader.token), model.embed(jnp.asarray(IDS))
    y = model.embedding.token[...].mean(0) + model.embedding.position[...][:6]

    @jax.jit
    def number(x):
        return jax.nn.log_softmax(model.output(x)[-1])[token]

    gradient_at = jax.jit(jax.grad(number))
    gradient = gradient_at(x)
    found = {name: scores(model, name, question)[0] for name in METHODS_TRIED}
    close(found["gradient x input"], (gradient * x).sum(-1))
    close(found["gradient x change, mean"], (gradient * (x - y)).sum(-1))
    close([found["secant, mean"].sum()], [number(x) - number(y)], layers=30)
    steps = (np.arange(32) + 0.5) / 32
    mean = np.mean([gradient_at(y + t * (x - y)) for t in steps], 0)
    close(found["integrated gradients, 32 steps, mean"], (mean * (x - y)).sum(-1))
    # The table of the explanation, token by token.
    explained = duat.explain(model, IDS, duat.targets.LogProbability(token))
    close(found["collapse, halves"], explained.collapse)
    close(found["contributions, linear path"], explained.embedding)
    close(found["contributions"], explained.embedding + explained.term_tokens.sum(0))
    # The collapse's matrix, and the covector that reads a log-probability with probabilities held.
    p, rows = np.exp(said(model, x)), np.asarray(model.unembedding)
    readout = np.zeros((6, 8))
    readout[-1] = rows[token] - p @ rows
    matrix = duat.collapse(model.states, x).linear.dense()
    close(found["collapse x change, mean"], ((readout.reshape(-1) @ matrix).reshape(6, 8) * (x - y)).sum(-1))
    # Every path from a token to the last one: half of it stays, half is spread as heads attend on average.
    held = duat.record(model.states)(x).dynamics.held
    first, second = (np.asarray(held[f"layers.{i}.attention.pattern"]).mean(0) for i in range(2))
    by_hand = [sum((second[-1, j] + (j == 5)) * (first[j, i] + (j == i)) / 4 for j in range(6)) for i in range(6)]
    close(found["attention rollout"], by_hand)


METHODS_TRIED = (
    *("secant, mean", "collapse, halves", "collapse x change, mean", "contributions", "contributions, linear path"),
    *("gradient x input", "gradient x change, mean", "integrated gradients, 32 steps, mean", "attention rollout"),
)


def test_a_model_is_asked_what_it_has():
    gated, encoder = model_of(mlp="gated"), model_of("hidden", arrangement="post-norm", causal=False)
    assert {"collapse, gate", "collapse, factor", "collapse, halves"} <= set(names_of(gated.config, tokenizer_of()))
    names = names_of(encoder.config, tokenizer_of(special=True))
    assert {"collapse", "secant, mask", "secant, mean"} <= set(names) and "secant, pad" not in names


@pytest.mark.parametrize("tokens", [2, 5, 6, 9, 30])
def test_tokens_go_in_the_order_of_their_scores(tokens):
    order = np.random.default_rng(tokens).permutation(tokens).astype(float)
    most_first, least_first = kept_sets(order)
    gone = np.clip(np.rint(np.array(SIZES) * tokens), 1, tokens - 1)
    for k, most, least in zip(gone, most_first, least_first):
        assert set(order[most]) == set(np.arange(tokens - k)) and set(order[least]) == set(np.arange(k, tokens))
    # Deleting the least relevant is inserting the most relevant, read backwards, but for a token where sizes round.
    assert (np.count_nonzero(least_first[::-1] != ~most_first, 1) <= 1).all()


def test_rank_agreement_of_every_permutation_of_five():
    one = np.arange(5.0)
    for other in map(np.array, permutations(one)):
        inversions = sum(other[i] > other[j] for i, j in combinations(range(5), 2))
        expected = 1 - 6 * np.square(one - other).sum() / (5 * 24), 1 - 4 * inversions / (5 * 4)
        assert agreement(one, np.exp(other)) == pytest.approx(expected, abs=1e-12)
    assert agreement(np.ones(5), one) == (0.0, 0.0)


def test_what_all_texts_say_of_methods_by_hand():
    def of_text(shift):
        def method(best, agree):
            most, least = [best + shift] * 5, [1.0 + shift, 1.0 + shift, 2.0 + shift, 3.0 + shift, 3.0 + shift]
            return {"numbers": [most, least], "agreement": (agree, agree / 2)}

        return {"masked": {"one": method(0.0, 0.5 + shift / 10), "other": method(0.25, 0.0)}}

    table = compared([of_text(0.0), of_text(1.0)], ["one", "other"], "masked")
    assert (table["one"].deletion.value, table["one"].insertion.value) == (0.5, 2.5)
    assert table["one"].spearman.value == pytest.approx(0.55) and table["one"].kendall.value == pytest.approx(0.275)
    # Texts differ by more than methods do, and paired differences don't.
    assert table["other"].ahead == pytest.approx((0.25, 0.25, 0.25)) and table["one"].ahead == (0.0, 0.0, 0.0)
    assert table["one"].deletion.high - table["one"].deletion.low == 1
    assert table["one"].least_first.tolist() == [1.5, 1.5, 2.5, 3.5, 3.5]
    assert table["one"].gaps.tolist() == [2.0, 2.0] and table["other"].gaps.tolist() == [1.75, 1.75]


def test_intervals_of_comparisons_are_corrected_for_how_many_there_are():
    draw = np.random.default_rng(0)
    names = ["one", *map(str, range(13))]
    of_texts = [
        {"masked": {name: {"numbers": draw.normal(size=(2, 5)).tolist(), "agreement": (0.0, 0.0)} for name in names}}
        for _ in range(50)
    ]
    pair, many = (compared(of_texts, some, "masked")["0"] for some in (names[:2], names))
    assert many.ahead.low < pair.ahead.low < pair.ahead.value == many.ahead.value < pair.ahead.high < many.ahead.high
    assert many.deletion == pair.deletion
    gaps = compared(of_texts, names, "masked")["one"].gaps - many.gaps
    assert many.ahead == bootstrap(gaps, comparisons=13)


TEXTS = ["a f c h b e", "b b d a g e c", "h c c a f b", "d e f g a a b c", "c a d g b a"]
NAMES = ["gradient x input", "leave-one-out, removed", "random"]
