"""Questions with demonstrations, and the command that asks them."""

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import near
from tokenizers import Tokenizer, models, normalizers
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.in_context.controls import answers_of, controls_of, distinct_seeds, exchange, replies
from duat_jax.in_context.prompts import EXCHANGED, REDRAWN, draw_question, question_of
from duat_jax.in_context.runs import mean_log_probabilities
from duat_jax.inputs.few_shot_tasks import PAIRS


@pytest.fixture(scope="module")
def tokenizer():
    return duat.load_tokenizer()


@pytest.mark.parametrize("task", PAIRS)
def test_more_demonstrations_stand_before_the_same_question(tokenizer, task):
    fewer, more = (draw_question(tokenizer, task, count, seed=3) for count in (1, 3))
    assert more.text.endswith(fewer.text.removeprefix("\n")) and more.answer == fewer.answer
    assert more.ids[~more.hidden].tolist() == fewer.ids[~fewer.hidden].tolist()
    assert tokenizer.decode(more.ids.tolist()) == more.text
    demonstrations = more.text.strip().split("\n")
    assert len(demonstrations) == 4 and len(set(demonstrations)) == 4
    assert draw_question(tokenizer, task, 0, seed=3).hidden.sum() == 0
    assert draw_question(tokenizer, task, 3, seed=4).text != more.text


def pairs_of(question):
    *lines, asked = question.text.strip().split("\n")
    return [tuple(line.split(" -> ")) for line in lines], asked


@pytest.mark.parametrize("task", PAIRS)
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_controls_keep_the_form_and_no_right_answer(tokenizer, task, count, seed):
    right, asked = pairs_of(draw_question(tokenizer, task, count, seed=seed))
    answers = dict(PAIRS[task])
    assert all(answers[one] == other for one, other in right)
    for control in controls_of(task)[1:]:
        question = draw_question(tokenizer, task, count, seed=seed, control=control)
        pairs, same = pairs_of(question)
        assert same == asked and len(pairs) == count
        assert question.ids[~question.hidden].tolist() == draw_question(tokenizer, task, 0, seed=seed).ids.tolist()
        if control in PAIRS:
            assert all(dict(PAIRS[control])[one] == other for one, other in pairs)
            continue
        assert [one for one, _ in pairs] == [one for one, _ in right]
        assert all(answers[one] != other for one, other in pairs)
        # The right answer to the question stands nowhere.
        assert answers[asked.removesuffix(" ->")] not in [other for _, other in pairs]
        others = {other for _, other in pairs}
        assert len(others) == count and others <= set(answers.values())
        if control == EXCHANGED:
            assert others == {other for _, other in right}
        else:
            assert control == REDRAWN and not others & {other for _, other in right}


@pytest.mark.parametrize("task", PAIRS)
def test_exchanged_answers_leave_the_length_and_the_questions_place(tokenizer, task):
    right, other = (draw_question(tokenizer, task, 4, seed=1, control=control) for control in (None, EXCHANGED))
    both = exchange(right, other)
    assert both.ids.shape == both.other.shape and sorted(both.ids.tolist()) == sorted(both.other.tolist())
    assert both.ids.tolist() == right.ids.tolist() and both.other.tolist() == other.ids.tolist() != right.ids.tolist()


def test_draws_with_distinct_seeds_ask_different_questions(tokenizer):
    seeds = distinct_seeds("capitals", tokenizer, 12)
    asked = [draw_question(tokenizer, "capitals", 0, seed=seed).text for seed in seeds]
    assert len(set(asked)) == 12 and seeds == sorted(seeds)
    with pytest.raises(duat.InvalidInput, match="'capitals' has 35 questions"):
        distinct_seeds("capitals", tokenizer, 36)


def test_controls_that_cannot_be_drawn_are_refused(tokenizer):
    with pytest.raises(duat.InvalidInput, match="the answers of 1 demonstrations can't be exchanged"):
        draw_question(tokenizer, "capitals", 1, control=EXCHANGED)
    with pytest.raises(duat.InvalidInput, match="'capitals' has 14 other pairs"):
        draw_question(tokenizer, "capitals", 20, control=REDRAWN)
    with pytest.raises(
        duat.InvalidInput, match="no control 'chess' of 'capitals': choose one of exchanged, redrawn, antonyms"
    ):
        draw_question(tokenizer, "capitals", 2, control="chess")
    two, three = (draw_question(tokenizer, "capitals", count) for count in (2, 3))
    with pytest.raises(duat.InvalidInput, match="tokens: give two of one length"):
        exchange(two, three)
    first, second = (question_of(tokenizer, ["a = 1"], ask, " 2") for ask in ("b =", "c ="))
    with pytest.raises(duat.InvalidInput, match="give the same question"):
        exchange(first, second)


def test_a_reply_is_that_of_the_plain_model(tokenizer):
    """`log p(answer)` is that of the task's answers plus that among them, and hidden demonstrations aren't read."""
    model, answers = duat.load(), answers_of(tokenizer, "uppercase")
    questions = [draw_question(tokenizer, "uppercase", count, seed=2) for count in (1, 3)]
    for hidden in (False, True):
        for question, said in zip(questions, replies(model, questions, answers, hidden=hidden), strict=True):
            seen = ~question.task.hidden if hidden else None
            logs = np.asarray(jax.nn.log_softmax(model.output(model.embed(question.task.ids), seen))[-1], np.float64)
            near(said.of_task, np.log(np.exp(logs[answers]).sum()), within=1e-4)
            near(said.of_task + said.among_task, logs[question.answer], within=1e-4)
            assert said.right == (logs.argmax() == question.answer)
    assert question.answer in answers and len(answers) == len(set(answers))
    with pytest.raises(duat.InvalidInput, match="isn't among those of the task"):
        replies(model, questions, answers_of(tokenizer, "capitals"))


def test_questions_that_cannot_be_drawn_are_refused(tokenizer):
    with pytest.raises(duat.InvalidInput, match="there is no task 'chess': choose one of antonyms"):
        draw_question(tokenizer, "chess", 1)
    with pytest.raises(duat.InvalidInput, match="1000 demonstrations of 'capitals' are requested, which has"):
        draw_question(tokenizer, "capitals", 1000)
    with pytest.raises(duat.InvalidInput, match="the question is empty; the answer is empty"):
        question_of(tokenizer, ["a"], "", "")


def test_a_tokenizer_that_puts_a_space_before_a_text_reads_the_answer_where_it_stands():
    words = ["<s>", "▁", "\n", "▁Spain", "▁->", "▁Madrid", "Spain", "Italy", "▁Rome"]
    tokenizer = Tokenizer(models.Unigram([(word, -float(i)) for i, word in enumerate(words)], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    found = question_of(tokenizer, ["Italy -> Rome"], "Spain ->", " Madrid")
    said = [tokenizer.id_to_token(int(token)) for token in found.ids]
    assert said == tokenizer.encode(found.text).tokens == ["▁", "\n", "Italy", "▁->", "▁Rome", "\n", "Spain", "▁->"]
    assert tokenizer.id_to_token(found.answer) == "▁Madrid"


def test_a_whole_answer_is_every_token_after_those_before_it(tokenizer):
    """The parts of an answer's tokens sum to its log-probability, and its demonstrations stay hidden or exchanged."""
    model, answer = duat.load(), " self.value"
    right, other = (question_of(tokenizer, [line], "b ->", answer) for line in ("a -> self.name", "a -> name.self"))
    whole, count = right.whole, len(right.answers)
    assert count > 1 and tokenizer.decode(right.answers) == answer and right.answer == right.answers[0]
    assert whole.ids.tolist() == [*right.ids.tolist(), *right.answers[:-1]]
    assert whole.hidden.tolist() == [*right.hidden.tolist(), *[False] * (count - 1)]
    assert right.task.ids.tolist() == right.ids.tolist() and right.task.answers.tolist() == [right.answer]
    logs = jax.nn.log_softmax(model(jnp.array([*right.ids, *right.answers])))
    expected = sum(float(logs[len(right.ids) - 1 + i, token]) for i, token in enumerate(right.answers)) / count
    near(mean_log_probabilities(model, whole)[0], expected, within=1e-4)
    compared = exchange(right, other, whole=True)
    assert compared.other.tolist() == other.whole.ids.tolist() and len(compared.other) == len(compared.ids)
    with pytest.raises(duat.InvalidInput, match="the same question and answer"):
        exchange(right, other._replace(answers=(*right.answers[:-1], 5)))


def command(*arguments):
    return CliRunner().invoke(application, ["in-context", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_shows_and_writes_the_ledger(tokenizer, tmp_path):
    picture, file = tmp_path / "ledger.png", tmp_path / "ledger.json"
    asked = "c =", "--demonstration", "a = 1", "--demonstration", "b = 1", "--answer", " 1"
    result = command(*asked, "--plot", picture, "--json", file)
    assert result.exit_code == 0, result.output
    assert "' 1' after" in result.stdout and "holds" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = json.loads(file.read_text())
    question = question_of(tokenizer, ["a = 1", "b = 1"], "c =", " 1")
    model = duat.load()
    ids, visible = question.task.ids, ~question.task.hidden
    runs = (jax.nn.log_softmax(model.output(model.embed(ids), seen))[-1, question.answer] for seen in (None, visible))
    near([said["first"], said["second"]], list(map(float, runs)), within=1e-4)
    near(np.sum(said["layers"]), said["difference"], within=1e-4)
    assert "".join(said["words"]) == said["text"] == question.text
    assert len(said["reach"]["density"]) == 6


@pytest.mark.slow
def test_the_command_explains_all_tokens_of_an_answer(tokenizer, tmp_path):
    file = tmp_path / "ledger.json"
    result = command("c =", "--demonstration", "a = self.b", "--answer", " self.b", "--json", file)
    assert result.exit_code == 0, result.output
    question = question_of(tokenizer, ["a = self.b"], "c =", " self.b")
    assert f"a mean over the {len(question.answers)} tokens of the answer" in result.stdout
    said = json.loads(file.read_text())
    near([said["first"], said["second"]], mean_log_probabilities(duat.load(), question.whole), within=1e-4)
    assert said["answer"] == " self.b" and len(said["words"]) == len(said["hidden"]) == len(question.whole.ids)


@pytest.mark.slow
def test_the_command_compares_with_other_demonstrations(tokenizer, tmp_path):
    file = tmp_path / "ledger.json"
    asked = "c =", "--demonstration", "a = 1", "--demonstration", "b = 1", "--answer", " 1"
    result = command(*asked, "--reference", "a = 2", "--reference", "b = 2", "--json", file)
    assert result.exit_code == 0, result.output
    assert "Moved inputs" in result.stdout and "compared with others" in result.stdout
    said = json.loads(file.read_text())
    texts = [question_of(tokenizer, [f"a = {n}", f"b = {n}"], "c =", " 1") for n in (1, 2)]
    model = duat.load()
    runs = [float(jax.nn.log_softmax(model(text.task.ids))[-1, text.answer]) for text in texts]
    near([said["first"], said["second"]], runs, within=1e-4)
    near(np.sum(said["layers"]) + sum(said["inputs"]), runs[0] - runs[1], within=1e-4)
    assert said["reference"] == texts[1].text
    drawn = command("--task", "uppercase", "--demonstrations", 2, "--control", "exchanged", "--json", file)
    assert drawn.exit_code == 0, drawn.output
    assert json.loads(file.read_text())["reference"] == draw_question(tokenizer, "uppercase", 2, control=EXCHANGED).text


@pytest.mark.slow
def test_the_pages_example_runs():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "in-context.md").read_text(encoding="utf-8")
    namespace = {}
    with jax.numpy_dtype_promotion("standard"):
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(block, namespace)
    assert namespace["account"].completeness.verdict == "holds" and namespace["account"].difference > 1
    assert namespace["joined"].density.min() > 0.5


def test_the_command_names_what_is_wrong(tmp_path):
    for arguments, what in (
        ((), "give a question or a --task"),
        (("a =", "--task", "capitals"), "give a question or a --task"),
        (("--task", "capitals", "--answer", "x"), "leave out other ones"),
        (("--task", "chess"), "there is no task 'chess'"),
        (("a =", "--demonstration", "b = 1"), "the answer is empty"),
        (("a =", "--answer", " 1"), "give at least one --demonstration"),
        (
            ("a =", "--demonstration", "b = 1", "--answer", " 1", "--control", "exchanged"),
            "give other demonstrations by",
        ),
        (("a =", "--demonstration", "b = 1", "--answer", " 1", "--reference", "b = 1, 1"), "give two of one length"),
        (("--task", "capitals", "--control", "chess"), "there is no control 'chess'"),
        (("a =", "--answer", " 1", "--plot", tmp_path / "a.gif"), "must end in .png"),
    ):
        result = command(*arguments)
        assert result.exit_code == 2 and what in result.stderr and result.stderr.count("\n") == 1, result.output
