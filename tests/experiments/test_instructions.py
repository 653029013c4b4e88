"""Answers of several tokens, instructions and steps as contrasts, and correlations of attention's elements."""

import re
from itertools import product
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close, far, modern, near
from test_rank_one import language_model
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

import duat_jax as duat
from duat_jax.evaluation.statistics import bootstrap
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, START
from experiments.in_context import contrasts, correlation, whole_answers
from experiments.in_context.contrasts_tables import contrasts as tables_of_contrasts
from experiments.in_context.correlation import APART, KINDS, NULL, SAME_BLOCK, SAME_KEY, SAME_QUERY
from experiments.in_context.correlation_tables import correlation as tables_of_correlation
from experiments.in_context.instructions import FIRST, INVENTED, LAST, SINGLE, TASKS, draw_pair, slots_of
from experiments.in_context.whole_answers import PAIRS, RIGHT
from experiments.in_context.whole_answers_tables import whole_answers as tables_of_answers
from experiments.markdown import cells

SEEDS = range(6)


@pytest.fixture(scope="module")
def words():
    """Return a tokenizer of words, each with the space before it."""
    pattern = r"<\|im_end\|>|\n| ?[A-Za-z]+| ?[^A-Za-z\s]"
    drawn = [
        slots_of(task, Random(f"{seed} {task}"), order) for task, seed, order in product(TASKS, SEEDS, (FIRST, LAST))
    ]
    prompts = [
        f"{each.text.format(deciding=a, rest=b)} {c}" for each in drawn for a, b, c in zip(*each[1:], strict=True)
    ]
    chats = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in contrasts.SENTENCES]
    found = dict.fromkeys(word for text in [*prompts, *chats] for word in re.findall(pattern, START + text))
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(found)}))
    tokenizer.pre_tokenizer = Split(Regex(pattern), "isolated")
    return tokenizer


@pytest.fixture(scope="module")
def small(words):
    return language_model(modern, vocab=words.get_vocab_size(), layers=2)


# Answers of several tokens.


@pytest.fixture(scope="module")
def code():
    return duat.load_tokenizer()


@pytest.mark.parametrize("task", PAIRS)
def test_each_kind_of_demonstrations_keeps_what_it_says(code, task):
    pairs, questions = dict(PAIRS[task]), set()
    for seed in SEEDS:
        drawn = whole_answers.draw(code, task, seed)
        lines = {kind: [line.split(" -> ") for line in each.text.split("\n")[1:-1]] for kind, each in drawn.items()}
        shown = {kind: [word for word, _ in of_kind] for kind, of_kind in lines.items()}
        assert shown[RIGHT] == shown[EXCHANGED] == shown[REDRAWN]
        assert all(pairs[word] == answer for word, answer in lines[RIGHT])
        for kind in (EXCHANGED, REDRAWN):
            assert not [word for word, answer in lines[kind] if pairs[word] == answer]
        answers = {kind: sorted(answer for _, answer in of_kind) for kind, of_kind in lines.items()}
        assert answers[RIGHT] == answers[EXCHANGED] and not {*answers[RIGHT]} & {*answers[REDRAWN]}
        question = drawn[RIGHT].text.rpartition("\n")[2].removesuffix(" ->")
        assert code.decode(drawn[RIGHT].answers) == f" {pairs[question]}" and question not in shown[RIGHT]
        questions.add(question)
    assert len(questions) == len(SEEDS)


def test_the_ledger_of_an_answer_is_the_sum_of_the_ledgers_of_its_tokens(code):
    model = language_model(modern, vocab=code.get_vocab_size(), layers=2)
    drawn = whole_answers.draw(code, "number words", 0)
    right, exchanged = drawn[RIGHT], drawn[EXCHANGED]
    task = whole_answers.padded(right)._replace(other=whole_answers.padded(exchanged).ids)
    whole = whole_answers.split(model, task)
    each = [
        whole_answers.split(model, task._replace(places=task.places[i : i + 1], answers=task.answers[i : i + 1]))
        for i in range(len(right.answers))
    ]
    assert len(each) > 1
    for split in ("parts", "form"):
        for name, part in whole[split].items():
            near(part, sum(of_token[split][name] for of_token in each), within=1e-9)

    def log_of(asked):
        text = jnp.array([*asked.ids, *asked.answers])
        logs = jax.nn.log_softmax(model(text[:-1]))
        return jnp.take_along_axis(logs, text[1:, None], -1)[-len(asked.answers) :].sum()

    near(whole["difference"], log_of(right) - log_of(exchanged), within=1e-9)
    near(whole["difference"], sum(whole["parts"].values()), within=1e-9)
    near(whole["difference"], sum(whole["form"].values()), within=1e-9)
    found = whole_answers.measure_answers(model, code, "number words", 0)
    in_view = [sum(found[kind]["in view"]["logs"]) for kind in (RIGHT, EXCHANGED)]
    near(whole["difference"], in_view[0] - in_view[1], within=1e-9)
    # Hidden demonstrations of the same tokens leave the same run.
    near(found[RIGHT]["hidden"]["logs"], found[EXCHANGED]["hidden"]["logs"], within=1e-9)


# Instructions and steps.


@pytest.mark.parametrize("task", TASKS)
def test_two_prompts_have_the_same_words_at_exchanged_places(words, task):
    for seed in SEEDS:
        pair = draw_pair(words, task, seed)
        assert len(pair.ids) == len(pair.other) and pair.answers[0] != pair.answers[1]
        assert ((pair.ids != pair.other) == (pair.deciding ^ pair.rest)).all() and pair.deciding.any()
        assert pair.rest.any() == (task not in SINGLE)
        if task in SINGLE or task == INVENTED:
            continue
        assert sorted(pair.ids) == sorted(pair.other)
        places = [int(np.flatnonzero(where)[0]) for where in (pair.deciding, pair.rest)]
        assert (places[0] < places[1]) == (pair.order == FIRST)


def test_a_contrast_of_prompts_is_whole_and_a_patched_embedding_is_an_exchanged_word(small, words):
    task, layers = "two steps: whose language", (0, 1)
    pair = draw_pair(words, task, 1)
    found = contrasts.measure_pair(small, words, task, 1, layers)
    logits = [small(jnp.asarray(ids))[-1] for ids in (pair.ids, pair.other)]
    first, second = (of[pair.answers[0]] - of[pair.answers[1]] for of in logits)
    near([found["first"], found["second"]], [first, second], within=1e-9)
    near(sum(found["parts"].values()), first - second, within=1e-9)
    mixed = small(jnp.asarray(np.where(pair.deciding, pair.other, pair.ids)))[-1]
    near(found["again"]["deciding"], first - (mixed[pair.answers[0]] - mixed[pair.answers[1]]), within=1e-9)
    # Before the first layer two tokens differ, one of each kind.
    single = found["single"]["0"]
    top, other = ("deciding", "rest") if pair.deciding[single["token"]] else ("rest", "deciding")
    near([single["part"], single["measured"]], [found["parts"][top], found["again"][top]], within=1e-9)
    near(single["random"], found["again"][other], within=1e-9)
    later = found["single"]["1"]
    assert far(later["measured"], single["measured"])


def test_the_words_of_a_reply_are_hidden_one_by_one(small, words):
    sentence = contrasts.SENTENCES[1]
    found = contrasts.measure_sentence(small, words, sentence, written=4)
    names = [name.partition(" ")[2] for name in found["words"]]
    assert names == ["Nui zi", "created", "gravitation", "and", "relativity", "theory"] and found["tokens"] <= 4
    before = f"\n<|im_start|>user\n{sentence}<|im_end|>\n<|im_start|>assistant\n"
    ids = words.encode(before).ids
    start = len(ids)
    for _ in range(found["tokens"]):
        ids.append(int(small(jnp.array(ids))[-1].argmax()))
    assert words.decode(ids[start:]) == found["reply"]

    def log_of_reply(seen):
        states = small.states(small.embed(jnp.array(ids)), jnp.array(seen))
        logs = jax.nn.log_softmax(small.head.logits(states, small.unembedding))
        return sum(logs[place - 1, ids[place]] for place in range(start, len(ids)))

    created = words.token_to_id(" created")
    lost = log_of_reply([True] * len(ids)) - log_of_reply([token != created for token in ids])
    near(found["words"]["2. created"], lost, within=1e-9)


# Correlations of elements.


def test_elements_are_those_of_the_dense_matrix_and_correlations_those_of_numpy():
    heads, tokens, features, texts = 2, 6, 5, 7
    key = jax.random.split(jax.random.key(0), 3)
    patterns = np.array(jax.nn.softmax(jax.random.normal(key[0], (texts, heads, tokens, tokens))))
    value, output = (
        np.array(jax.random.normal(k, shape))
        for k, shape in zip(key[1:], ((heads, features, 3), (heads, 3, features)), strict=True)
    )
    dense = sum(np.einsum("tqk,mn->tqkmn", patterns[:, h], value[h] @ output[h]) for h in range(heads))
    draw = np.random.default_rng(0)
    for kind in KINDS:
        pair = correlation.draw_elements(draw, kind, tokens, features)
        shared = [(pair[0].query == pair[1].query).all(), (pair[0].key == pair[1].key).all()]
        apart = [(pair[0].query != pair[1].query).all(), (pair[0].key != pair[1].key).all()]
        both = [kind in (SAME_BLOCK, SAME_QUERY), kind in (SAME_BLOCK, SAME_KEY)]
        assert shared == both and apart == [not each for each in both]
        values = []
        for elements in pair:
            assert (elements.key <= elements.query).all() and (elements.query >= tokens // 2).all()
            values.append(correlation.values_of(patterns, value, output, elements))
            close(values[-1], dense[:, *elements])
        by_numpy = [np.corrcoef(a, b)[0, 1] for a, b in zip(*(of.T[:9] for of in values), strict=True)]
        near(correlation.correlations(*values)[:9], by_numpy, within=1e-9)
        vectors = [patterns[:, :, elements.query, elements.key] for elements in pair]
        found = correlation.within_one_matrix(*vectors, correlation.covariances(value, output))
        blocks = [dense[3, elements.query[8], elements.key[8]].ravel() for elements in pair]
        near(found[3, 8], np.corrcoef(*blocks)[0, 1], within=1e-9)


def test_with_one_head_elements_of_a_block_are_fully_correlated_whatever_the_weights():
    """So that a high correlation within a block needs no training; elements that share no token have none."""
    draw = np.random.default_rng(1)
    patterns = draw.dirichlet(np.ones(8), (50, 1, 8))
    value, output = draw.normal(size=(1, 6, 3)), draw.normal(size=(1, 3, 6))
    sizes = {}
    for kind in KINDS:
        values = [
            correlation.values_of(patterns, value, output, elements)
            for elements in correlation.draw_elements(draw, kind, 8, 6)
        ]
        sizes[kind] = np.abs(correlation.correlations(*values))
    near(sizes[SAME_BLOCK], 1, within=1e-9)
    vectors = patterns[:, :, 5, :4], patterns[:, :, 7, 4:]
    near(correlation.within_one_matrix(*vectors, correlation.covariances(value, output)), 1, within=1e-9)
    # Of 50 independent pairs of numbers the mean size is √(2 / 49 π).
    near(sizes[APART].mean(), np.sqrt(2 / 49 / np.pi), within=0.02)
    assert sizes[SAME_QUERY].mean() > sizes[APART].mean()


def test_the_study_of_correlation_on_a_small_model(small):
    ids = np.random.default_rng(0).integers(0, small.config.vocab, (9, 12)).astype(np.int32)
    found = correlation.measure_correlation(small, ids, 0)
    assert {*KINDS, NULL} < {*found} and all(len(sizes) == 2 for sizes in found.values())
    assert all(0 <= size <= 1 + 1e-9 for sizes in found.values() for size in sizes)
    shuffled, drawn = (correlation.inputs_of(ids, kind, 11, 0) for kind in (correlation.SHUFFLED, correlation.RANDOM))
    assert (np.sort(shuffled) == np.sort(ids)).all() and (shuffled != ids).any()
    assert drawn.shape == ids.shape and drawn.max() < 11
    assert correlation.inputs_of(ids, correlation.TEXT, 11, 0) is ids


# The tables.


def reply(logs, right):
    return {"logs": logs, "right": [right] * len(logs)}


def test_tables_of_answers_sum_over_tokens():
    pieces = {}
    for draw, gain in enumerate((1.0, 3.0)):
        hidden = reply([-9.0, -5.0], False)
        right, exchanged, redrawn = ([-9.0 + k * gain, -5.0 + gain] for k in (4, 2, 1))
        by_kind = {RIGHT: right, EXCHANGED: exchanged, REDRAWN: redrawn}
        pieces[f"answers, swapped words, {draw}"] = {
            kind: {"in view": reply(logs, kind == RIGHT), "hidden": hidden} for kind, logs in by_kind.items()
        }
        account = {"difference": 5 * gain, "parts": {"attention": 5 * gain}, "form": {"`c_j`": 5 * gain}, "error": 1e-6}
        first = {"difference": gain, "parts": {"attention": gain}, "form": {"`c_j`": gain}, "error": 0.0}
        pieces[f"answer_ledgers, swapped words, {draw}"] = {
            part: {"whole": account, "first": first} for part in ("mapping", "format")
        }
    pieces |= {name.replace("swapped", "number"): piece for name, piece in pieces.items()}
    found = cells(tables_of_answers(pieces))
    row = "Answers of several tokens / swapped words, {} / {}"
    assert found[row.format("whole", "added in all")] == bootstrap(np.array([5.0, 15.0])).written(2, "+")
    assert found[row.format("first", "mapping: right − exchanged")].startswith("+4.00 ")
    assert found[row.format("second", "mapping: right − exchanged")] == "+0.00"
    assert found[row.format("whole", "right − redrawn")].startswith("+6.00 ")
    assert found[row.format("whole", "most probable: hidden")].startswith("0.0 [")
    assert found[row.format("whole", "right")].startswith("100.0 [")
    ledger = "The ledgers of whole answers / mapping: right − exchanged, swapped words, later / attention"
    assert found[ledger].startswith("+8.00 ")


def test_tables_of_contrasts_have_both_orders_and_controls(small, words):
    task = "two steps: whose language"
    drawn = {f"pair, {task}, {seed}": contrasts.measure_pair(small, words, task, seed, (1,)) for seed in range(4)}
    sentence = contrasts.SENTENCES[0]
    text = tables_of_contrasts(
        drawn | {f"sentence, {sentence}": {"reply": "a\nb", "tokens": 2, "words": {"1. Nui zi": 0.5}}}
    )
    found = cells(text)
    for order in (FIRST, LAST):
        row = f"Two prompts / {task}, {order}"
        ours = [draw for draw in drawn.values() if draw["order"] == order]
        assert found[f"{row} / draws"] == str(len(ours)) == "2"
        parts = np.array([draw["parts"]["deciding"] - draw["parts"]["rest"] for draw in ours])
        assert found[f"{row} / deciding − others"] == bootstrap(parts).written(2, "+")
    sizes = np.array([abs(draw["single"]["1"]["part"]) for draw in drawn.values()])
    assert found[f"Single tokens run again / {task} / its part"] == bootstrap(sizes).written(2, "+")
    assert "“a b”" in text and "| +0.50 |" in text


def test_tables_of_correlation_subtract_controls():
    names = (*KINDS, NULL, "within", "within, heads by themselves")
    pieces = {
        f"correlation, The embedded model, {inputs}, {group}": {name: [size, size + 0.2] for name in names}
        for inputs, size in (("text", 0.5), ("untrained, text", 0.7))
        for group in range(2)
    }
    text = tables_of_correlation(pieces)
    row = next(line for line in text.splitlines() if line.startswith("| The embedded model | untrained, text | 0.80"))
    assert "| 0.70 to 0.90 |" in row
    assert "| The embedded model | untrained, text | -0.20 | -0.20 | -0.20 |" in text


def test_without_measurements_there_are_no_tables():
    assert tables_of_answers({}) == tables_of_contrasts({}) == tables_of_correlation({}) == ""
