"""Answers of several tokens, instructions and steps as contrasts, and correlations of attention's elements."""

import re
from itertools import product
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from helpers import close, far, modern, near
from test_rank_one import language_model
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

import duat_jax as duat
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, START
from experiments.estimate import Estimate, Method
from experiments.in_context import answers, contrasts, correlation, instructions
from experiments.in_context.answers import PAIRS, RIGHT
from experiments.in_context.correlation import APART, KINDS, NULL, SAME_BLOCK, SAME_KEY, SAME_QUERY
from experiments.in_context.pairs import FIRST, INVENTED, LAST, SINGLE, TASKS, draw_pair, slots_of

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
        drawn = answers.draw(code, task, seed)
        lines = {kind: [line.split(" -> ") for line in each.text.split("\n")[1:-1]] for kind, each in drawn.items()}
        shown = {kind: [word for word, _ in of_kind] for kind, of_kind in lines.items()}
        assert shown[RIGHT] == shown[EXCHANGED] == shown[REDRAWN]
        assert all(pairs[word] == answer for word, answer in lines[RIGHT])
        for kind in (EXCHANGED, REDRAWN):
            assert not [word for word, answer in lines[kind] if pairs[word] == answer]
        given = {kind: sorted(answer for _, answer in of_kind) for kind, of_kind in lines.items()}
        assert given[RIGHT] == given[EXCHANGED] and not {*given[RIGHT]} & {*given[REDRAWN]}
        question = drawn[RIGHT].text.rpartition("\n")[2].removesuffix(" ->")
        assert code.decode(drawn[RIGHT].answers) == f" {pairs[question]}" and question not in shown[RIGHT]
        questions.add(question)
    assert len(questions) == len(SEEDS)


def test_the_ledger_of_an_answer_is_the_sum_of_the_ledgers_of_its_tokens(code):
    model = language_model(modern, vocab=code.get_vocab_size(), layers=2)
    drawn = answers.draw(code, "number words", 0)
    right, exchanged = drawn[RIGHT], drawn[EXCHANGED]
    task = answers.padded(right)._replace(other=answers.padded(exchanged).ids)
    whole = answers.split(model, task)
    each = [
        answers.split(model, task._replace(places=task.places[i : i + 1], answers=task.answers[i : i + 1]))
        for i in range(len(right.answers))
    ]
    assert len(each) > 1
    for name, part in whole.items():
        if name != "error":
            near(part, sum(of_token[name] for of_token in each), within=1e-9)

    def log_of(asked):
        text = jnp.array([*asked.ids, *asked.answers])
        logs = jax.nn.log_softmax(model(text[:-1]))
        return jnp.take_along_axis(logs, text[1:, None], -1)[-len(asked.answers) :].sum()

    near(whole["difference"], log_of(right) - log_of(exchanged), within=1e-9)
    for parts in (answers.LEDGER[1:6], answers.LEDGER[6:]):
        near(whole["difference"], sum(whole[part] for part in parts), within=1e-9)
    found = pd.DataFrame(answers.measure_answers(model, code, "number words", 0))
    sums = found.groupby(["where", "demonstrations"]).log.sum()
    near(whole["difference"], sums["in view", RIGHT] - sums["in view", EXCHANGED], within=1e-9)
    # Hidden demonstrations of the same tokens leave the same run.
    near(sums["hidden", RIGHT], sums["hidden", EXCHANGED], within=1e-9)


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
    contrast = contrasts.measure_pair(small, words, task, 1, layers)
    (found,) = contrast["pairs"]
    parts, again = (
        dict(zip(("deciding", "rest"), (found[f"{of} deciding{words_}"], found[f"{of} others"]), strict=True))
        for of, words_ in (("part of the", " words"), ("run again:", ""))
    )
    logits = [small(jnp.asarray(ids))[-1] for ids in (pair.ids, pair.other)]
    first, second = (of[pair.answers[0]] - of[pair.answers[1]] for of in logits)
    near([found["first"], found["second"]], [first, second], within=1e-9)
    near(sum(parts.values()), first - second, within=1e-9)
    mixed = small(jnp.asarray(np.where(pair.deciding, pair.other, pair.ids)))[-1]
    near(again["deciding"], first - (mixed[pair.answers[0]] - mixed[pair.answers[1]]), within=1e-9)
    # Before the first layer two tokens differ, one of each kind.
    single, later = contrast["single"]
    top, other = ("deciding", "rest") if pair.deciding[single["token"]] else ("rest", "deciding")
    near([single["its part"], single["run again"]], [parts[top], again[top]], within=1e-9)
    near(single["at random"], again[other], within=1e-9)
    assert far(later["run again"], single["run again"])
    for row in contrast["rows"]:
        near(sum(row[of] for of in ("deciding words", "other words", "between", "last token")), 1, within=1e-9)


def test_the_words_of_a_reply_are_hidden_one_by_one(small, words):
    sentence = contrasts.SENTENCES[1]
    found = contrasts.measure_sentence(small, words, sentence, written=4)
    names, reply = [row["word"].partition(" ")[2] for row in found], found[0]
    assert names == ["Nui zi", "created", "gravitation", "and", "relativity", "theory"] and reply["tokens"] <= 4
    before = f"\n<|im_start|>user\n{sentence}<|im_end|>\n<|im_start|>assistant\n"
    ids = words.encode(before).ids
    start = len(ids)
    for _ in range(reply["tokens"]):
        ids.append(int(small(jnp.array(ids))[-1].argmax()))
    assert words.decode(ids[start:]) == reply["reply"]

    def log_of_reply(seen):
        states = small.states(small.embed(jnp.array(ids)), jnp.array(seen))
        logs = jax.nn.log_softmax(small.head.logits(states, small.unembedding))
        return sum(logs[place - 1, ids[place]] for place in range(start, len(ids)))

    created = words.token_to_id(" created")
    lost = log_of_reply([True] * len(ids)) - log_of_reply([token != created for token in ids])
    near(found[1]["lost"], lost, within=1e-9)


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
    assert {*KINDS, NULL, "layer"} < {*found[0]} and [row["layer"] for row in found] == [0, 1]
    assert all(0 <= row[of] <= 1 + 1e-9 for row in found for of in {*row} - {"layer"})
    shuffled, drawn = (correlation.inputs_of(ids, kind, 11, 0) for kind in (correlation.SHUFFLED, correlation.RANDOM))
    assert (np.sort(shuffled) == np.sort(ids)).all() and (shuffled != ids).any()
    assert drawn.shape == ids.shape and drawn.max() < 11
    assert correlation.inputs_of(ids, correlation.TEXT, 11, 0) is ids


# What decides.


def answered(number, swapped):
    """Return the log-probabilities of three draws: right ones add some nats beyond others at the last token."""
    rows = []
    for task, tokens, gain in (("number words", 3, number), ("swapped words", 2, swapped)):
        for draw, kind, where, token in product(range(3), answers.KINDS, ("in view", "hidden"), range(tokens)):
            beyond = (gain + 0.1 * draw) * (kind == RIGHT and token == tokens - 1)
            log = -9.0 + (where == "in view") * (1 + token + beyond)
            keys = {
                "task": task,
                "draw": draw,
                "demonstrations": kind,
                "where": where,
                "token": answers.ORDINALS[token],
            }
            rows.append(keys | {"log": log, "most probable": kind == RIGHT})
    return {"answers": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((1, 2), ["confirmed", "refuted"]),
        ((-0.1, -0.1), ["undecided", "confirmed"]),
        ((1, -0.1), ["undecided", "mixed"]),
    ],
)
def test_demonstrations_act_on_the_last_token_by_the_mapping(numbers, expected):
    frames = answered(*numbers)
    assert [str(of.verdict(frames)) for of in answers.STUDY.predictions] == expected
    found = answers.gains(frames["answers"]).set_index(["task", "token", "draw"])
    # Tokens in view gain 1, 2 and 3 nats, and the last one what right ones add.
    near(found.loc[("number words", "whole", 1), RIGHT], 6 + numbers[0] + 0.1, within=1e-9)
    near(found.loc[("number words", "whole", 1), EXCHANGED], 6, within=1e-9)
    near(found.loc[("swapped words", "second", 0), "right − redrawn"], numbers[1], within=1e-9)


def certain(*values):
    return [Estimate(value, value - 0.1, value + 0.1, 8, Method.STUDENT) for value in values]


def test_a_task_is_followed_in_both_orders_with_right_answers_or_it_isnt():
    assert instructions.follows(*certain(1, 1, 2, 2, 0.8, 0.9)) == "confirmed"
    assert instructions.follows(*certain(-1, 1, 2, 2, 0.8, 0.9)) == "refuted"
    assert instructions.follows(*certain(1, 1, 2, 2, 0.8, 0.2)) == "refuted"
    assert instructions.follows(*certain(0, 1, 2, 2, 0.8, 0.9)) == "undecided"
    assert instructions.one_may_be_zero(*certain(0, 1, 1, 0)) == "confirmed"
    assert instructions.one_may_be_zero(*certain(0, 1, 1, 1)) == "mixed"
    assert instructions.one_may_be_zero(*certain(-1, 1)) == "refuted"


def test_pairs_are_told_by_order_and_by_what_is_right(small, words):
    task = "two steps: whose language"
    drawn = [contrasts.measure_pair(small, words, task, seed, (1,)) for seed in range(4)]
    pairs = pd.DataFrame([{"task": task, "draw": i} | row for i, of in enumerate(drawn) for row in of["pairs"]])
    for order in (FIRST, LAST):
        ours = pairs[pairs.order == order]
        assert len(ours) == 2
        parts = ours["part of the deciding words"] - ours["part of the others"]
        found = instructions.of_pairs(task, order, "deciding − others", {"pairs": pairs})
        near(found.tolist(), parts.tolist(), within=1e-12)
        right = [a > 0 > b for a, b in zip(ours["first"], ours["second"], strict=True)]
        assert instructions.of_pairs(task, order, "both right", {"pairs": pairs}).tolist() == right


def correlated(text, chance, untrained):
    rows = [
        {"model": model, "inputs": inputs, "group": group, "layer": layer}
        | dict.fromkeys((*KINDS, correlation.WITHIN, correlation.PERMUTED), size + 0.001 * group + 0.2 * layer)
        | {NULL: chance + 0.001 * group + 0.2 * layer}
        for model in (correlation.SMOLLM2, correlation.EMBEDDED)
        for inputs, size in (
            ("text", text),
            ("shuffled tokens", text),
            ("random tokens", text),
            ("untrained, text", untrained),
        )
        for group, layer in product(range(3), range(2))
    ]
    return {"layers": pd.DataFrame(rows)}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((0.02, 0.02, 0.5), ["refuted", "confirmed", "confirmed"]),
        ((0.6, 0.02, 0.1), ["confirmed", "refuted", "refuted"]),
    ],
)
def test_verdicts_on_correlation_compare_with_chance_and_with_an_untrained_model(sizes, expected):
    frames = correlated(*sizes)
    assert [str(of.verdict(frames)) for of in correlation.STUDY.predictions] == expected
    beside = correlation._beside_controls(frames["layers"])
    near(beside[beside.control == "untrained, text"][APART].tolist(), [sizes[0] - sizes[2]] * 6, within=1e-9)
