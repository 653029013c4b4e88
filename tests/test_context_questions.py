"""Questions with demonstrations, and the command that asks them."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax.analysis.context_questions import draw_question, question_of
from duat_jax.analysis.context_tasks import PAIRS
from duat_jax.cli import application


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


def test_questions_that_cannot_be_drawn_are_refused(tokenizer):
    with pytest.raises(duat.BadText, match="there is no task 'chess': choose one of antonyms"):
        draw_question(tokenizer, "chess", 1)
    with pytest.raises(duat.BadText, match="1000 demonstrations of 'capitals' are asked for, which has"):
        draw_question(tokenizer, "capitals", 1000)
    with pytest.raises(duat.BadText, match="the question is empty; the answer is empty"):
        question_of(tokenizer, ["a"], "", "")


def test_a_tokenizer_that_puts_a_space_before_a_text_reads_the_answer_where_it_stands():
    words = ["<s>", "▁", "\n", "▁Spain", "▁->", "▁Madrid", "Spain", "Italy", "▁Rome"]
    tokenizer = Tokenizer(models.Unigram([(word, -float(i)) for i, word in enumerate(words)], unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    found = question_of(tokenizer, ["Italy -> Rome"], "Spain ->", " Madrid")
    said = [tokenizer.id_to_token(int(token)) for token in found.ids]
    assert said == tokenizer.encode(found.text).tokens == ["▁", "\n", "Italy", "▁->", "▁Rome", "\n", "Spain", "▁->"]
    assert tokenizer.id_to_token(found.answer) == "▁Madrid"


def command(*arguments):
    return CliRunner().invoke(application, ["context", *map(str, arguments)])


@pytest.mark.slow
def test_the_command_shows_and_writes_the_ledger(tokenizer, tmp_path):
    picture, file = tmp_path / "ledger.png", tmp_path / "ledger.json"
    asked = "c =", "--demonstration", "a = 1", "--demonstration", "b = 1", "--answer", " 1"
    result = command(*asked, "--plot", picture, "--json", file)
    assert result.exit_code == 0, result.output
    assert "'·1' after" in result.stdout and "holds" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = json.loads(file.read_text())
    question = question_of(tokenizer, ["a = 1", "b = 1"], "c =", " 1")
    model = duat.load()
    ids, visible = question.task.ids, ~question.task.hidden
    runs = (jax.nn.log_softmax(model.output(model.embed(ids), seen))[-1, question.answer] for seen in (None, visible))
    np.testing.assert_allclose([said["with"], said["without"]], list(map(float, runs)), atol=1e-4)
    np.testing.assert_allclose(np.sum(said["layers"]), said["difference"], atol=1e-4)
    assert "".join(said["words"]) == said["text"] == question.text
    assert len(said["reach"]["density"]) == 6


@pytest.mark.slow
def test_the_pages_example_runs():
    page = (Path(__file__).parent.parent / "docs" / "in-context.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace = {}
    with jax.numpy_dtype_promotion("standard"):
        exec(block, namespace)
    assert namespace["account"].completeness.verdict == "holds" and namespace["account"].difference > 1
    assert namespace["joined"].density.min() > 0.5


def test_the_command_names_what_is_wrong(tmp_path):
    for arguments, what in (
        ((), "give a question or a --task"),
        (("a =", "--task", "capitals"), "give a question or a --task"),
        (("--task", "capitals", "--answer", "x"), "leave the others out"),
        (("--task", "chess"), "there is no task 'chess'"),
        (("a =", "--demonstration", "b = 1"), "the answer is empty"),
        (("a =", "--answer", " 1"), "give at least one --demonstration"),
        (("a =", "--answer", " 1", "--plot", tmp_path / "a.pdf"), "must end in .png"),
    ):
        result = command(*arguments)
        assert result.exit_code == 2 and what in result.stderr and result.stderr.count("\n") == 1, result.output
