"""Many prompts in one process: `--out` of commands that ask about one text."""

import json
import re
import shutil

import pytest
from cases import GOLDEN
from command import run

from duat_jax import schemas
from duat_jax.cli import prompts
from duat_jax.cli.errors import DOES_NOT_HOLD, INTERRUPTED, MISTAKE
from duat_jax.errors import NotFinite

TINY = "--model", GOLDEN / "gpt2"
LINES = (
    {"text": "w5 w17 w3", "target": "w9"},
    "w1 w2",
    {"id": "../../x <b>", "text": "w7 w8 <script>w1</script>", "position": 1},
    {"text": "w3", "position": 99},
    {"text": "w4 w5 w6", "target": "w9", "contrast": "w5"},
)


def written(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def rows_of(out):
    return [json.loads(line) for line in (out / "rows.jsonl").read_bytes().splitlines()]


def files_of(out):
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Return a function that explains lines, with pages and their index, and the directory."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    file, out = written(tmp_path / "prompts.jsonl", *LINES), tmp_path / "out"

    def ask(*options, command="explain", model=TINY):
        return run(command, file, "--out", out, "--html", out / "index.html", *model, *options)

    return ask, file, out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("w1 w2", "line 2: JSON is malformed"),
        ("", "line 2: it is empty"),
        ("[1]", "line 2: Expected .*, got `array`"),
        ('{"text": "w1", "prompt": "w2"}', "line 2: Object contains unknown field `prompt`"),
        ('{"text": "w1", "reference": "w2"}', "line 2: Object contains unknown field `reference`;"),
        ('{"text": "w1", "positon": 2}', r"line 2: .* `positon` \(did you mean `position`\?\)"),
        ("\n".join(['{"text": "w1", "reference": "w2"}'] * 9), r"lines 2, 3, 4, 5, 6 and 4 more: .* `reference`;"),
        ('{"target": "w1"}', "line 2: Object missing required field `text`"),
        ('{"text": 3}', r"line 2: Expected `str`, got `int` - at `\$.text`"),
        ('{"text": "w1", "position": "2"}', r"line 2: .* got `str` - at `\$.position`"),
        ('{"text": "w1", "id": 1}', "line 2: the id '1' is that of line 1 too"),
        ('{"text": "w1", "id": "a"}', "line 3: the id 'a' is that of line 2 too"),
    ],
)
def test_wrong_lines_are_reported_at_once_before_anything_is_written(line, says, tmp_path):
    file, out = tmp_path / "prompts.jsonl", tmp_path / "out"
    file.write_text(f'"w1"\n{line}\n{{"text": "w2", "id": "a"}}\n4\n"w3"\n')
    last = 4 + line.count("\n")
    result = run("explain", file, "--out", out, *TINY)
    assert result.exit_code == MISTAKE and not out.exists()
    assert (
        re.search(says, result.stderr)
        and f"; line {last}: " in result.stderr
        and f"line {last + 1}" not in result.stderr
    )
    assert "with text and, if wanted, id, pair, image, target, contrast, against, position" in result.stderr


def test_a_prompt_has_the_record_of_a_question_of_its_own(asked):
    ask, _, out = asked
    result = ask("--top", 3)
    rows = rows_of(out)
    assert result.exit_code == MISTAKE and "5 prompts (holds: 4, refused: 1)" in result.stdout
    assert [row["verdict"] for row in rows] == ["holds", "holds", "holds", "refused", "holds"]
    assert [row["id"] for row in rows] == ["1", "2", "../../x <b>", "4", "5"]
    assert "position 99" in rows[3]["error"] and rows[3]["result"] is None
    assert "prompt 4 is refused: position 99" in result.stderr
    again = ask("--top", 3)
    assert "0 of them now" in again.stdout and "prompt 4 is refused: position 99" in again.stderr
    alone = run("explain", "w4 w5 w6", "--target", "w9", "--contrast", "w5", "--top", 3, *TINY, "--json", "-")
    assert [row["answer"] for row in rows] == ["w9", rows[1]["answer"], rows[2]["answer"], None, "w9"]
    assert rows[4]["result"] == json.loads(alone.stdout) and rows[4]["value"] == rows[4]["result"]["value"]
    assert all(type(schemas.read(json.dumps(row["result"]))) in schemas.KINDS for row in rows if row["result"])


@pytest.mark.parametrize(
    ("command", "options", "line"),
    [
        ("contrast", (), {"reference": "w4 w5 w6"}),
        ("contrast", ("--reference", "w4 w5 w6"), {}),
        ("contrast", (), {"reference": "w4 w5", "align": "0:0,2:1"}),
        ("attribute", (), {"reference": "w4 w5 w6"}),
        ("graph", ("--top-neurons", 1), {"target": "w9"}),
        ("intervene", ("--edit", "head 0:0 set reference"), {"reference": "w4 w5 w6"}),
    ],
)
def test_every_question_about_one_text_takes_many(command, options, line, tmp_path):
    file, out = written(tmp_path / "a.jsonl", {"text": "w1 w2 w3", **line}), tmp_path / "out"
    result = run(command, file, "--out", out, *options, *TINY)
    (row,) = rows_of(out)
    given = [word for name, value in line.items() for word in (f"--{name}", value)]
    alone = run(command, "w1 w2 w3", *given, *options, *TINY, "--json", "-")
    assert result.exit_code == 0 and row["verdict"] == ("answered" if command == "attribute" else "holds")
    assert row["result"] == json.loads(alone.stdout) and row["largest_token"]


@pytest.mark.parametrize("command", ["contrast", "attribute"])
@pytest.mark.parametrize(
    "line",
    [{"reference": "w4 w5 w6"}, {"baseline": "mean"}, {"baseline": ["mean"], "reference": ["w4 w5 w6", "w1 w1 w1"]}],
)
def test_what_a_line_is_compared_with_takes_the_place_of_the_commands(command, line, tmp_path):
    file, out = written(tmp_path / "a.jsonl", {"text": "w1 w2 w3", **line}), tmp_path / "out"
    alone, of_both = (
        run(command, file, "--out", directory, *options, *TINY).exit_code
        for directory, options in ((out, ()), (tmp_path / "b", ("--reference", "w7 w8 w9", "--baseline", "mean")))
    )
    ((of_line,), (of_command,)) = rows_of(out), rows_of(tmp_path / "b")
    assert alone == of_both == 0 and of_line == of_command
    asked = of_line["reference"], of_line["baseline"]
    assert asked == tuple([value] if isinstance(value, str) else value for value in map(line.get, prompts.COMPARED))


@pytest.mark.parametrize("command", ["explain", "contrast", "graph", "intervene", "attribute"])
def test_the_columns_are_the_numbers_of_the_headline(command, tmp_path):
    line = {"text": "w1 w2 w3", "target": "w9"} | ({} if command in ("explain", "graph") else {"reference": "w4 w2 w3"})
    file, out = written(tmp_path / "a.jsonl", line), tmp_path / "out"
    edits = ("--edit", "head 0:0 set reference") if command == "intervene" else ()
    run(command, file, "--out", out, *edits, *TINY)
    (row,) = rows_of(out)
    token, part, unit = (row[f"largest_{name}"] for name in ("token_index", "token_part", "unit_part"))
    assert row["largest_token"] == row["result"]["tokens"][token] and row["answer"] == "w9"
    named = {"explain": part, "graph": unit, "attribute": part}.get(command, 0.0)
    says = f"because token {token} is" if command == "contrast" else f"{abs(named):z.2f}" if named else ""
    assert says in row["headline"]
    assert row["value"] == row["result"]["after" if command == "intervene" else "value"]
    if row["difference"] is None:
        assert command in ("explain", "graph") and row["reference_value"] is None
    else:
        assert row["difference"] == row["result"]["difference"]
        assert row["value"] - row["reference_value"] == pytest.approx(row["difference"], abs=1e-6)


def test_an_interrupted_run_ends_with_the_same_bytes(asked):
    ask, _, out = asked
    assert ask().exit_code == MISTAKE
    whole, lines = files_of(out), (out / "rows.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(LINES)
    for done, half in enumerate(lines):
        (out / "rows.jsonl").write_bytes(b"".join(lines[:done]) + half[: len(half) // 2])
        (out / "index.html").unlink()
        result = ask()
        assert files_of(out) == whole and f"{len(lines) - done} of them now" in result.stdout


def test_an_interruption_keeps_the_rows_before_it(asked, monkeypatch):
    ask, _, out = asked
    answer = prompts.answer_prompt

    def interrupted(question, arguments, prompt, page):
        if prompt.line == 3:
            raise KeyboardInterrupt
        return answer(question, arguments, prompt, page)

    monkeypatch.setattr(prompts, "answer_prompt", interrupted)
    result = ask()
    assert result.exit_code == INTERRUPTED and "the same command continues from there" in result.stderr
    assert len(rows_of(out)) == 2 and not (out / "index.html").exists()


@pytest.mark.parametrize(
    ("options", "lines", "says"),
    [
        (("--top", 3), LINES, "--top was 10 and is 3"),
        (("--target", "w2"), LINES, "--target was None and is 'w2'"),
        ((), ("w9", *LINES[1:]), "line 1: text was 'w5 w17 w3' and is 'w9'; line 1: target was 'w9' and is None"),
        ((), LINES[:2], "5 lines were answered, and 2 are given"),
        ((), LINES[:4], "5 lines were answered, and 4 are given"),
    ],
)
def test_other_work_is_refused_and_says_what_differs(options, lines, says, asked):
    ask, file, out = asked
    ask()
    before = files_of(out)
    written(file, *lines)
    result = ask(*options)
    assert result.exit_code == MISTAKE and says in result.stderr and files_of(out) == before


def test_another_model_command_or_directory_is_refused(asked):
    ask, _, out = asked
    ask()
    assert "weights was " in ask(model=("--model", GOLDEN / "gptj")).stderr
    assert "command was 'explain' and is 'contrast'" in ask("--baseline", "mean", command="contrast").stderr
    (out / "manifest.json").unlink()
    assert "is not empty, and has no rows of prompts" in ask().stderr
    (out / "manifest.json").write_text("{")
    assert "damaged" in ask().stderr


def test_more_lines_are_answered_and_refused_ones_begin_anew(asked):
    ask, file, out = asked
    written(file, LINES[3])
    assert ask().exit_code == MISTAKE
    written(file, "w1 w2")
    assert ask().exit_code == 0
    first = rows_of(out)
    written(file, "w1 w2", "w3 w4")
    assert ask().exit_code == 0 and rows_of(out)[:1] == first and len(rows_of(out)) == 2


def test_a_line_with_an_error_is_corrected_in_its_place(asked):
    ask, file, out = asked
    ask()
    corrected = *LINES[:3], {"id": "four", "text": "w3", "position": 0}, LINES[4]
    written(file, *corrected)
    result = ask()
    assert result.exit_code == 0 and "5 prompts (holds: 5), 1 of them now" in result.stdout
    continued = files_of(out)
    shutil.rmtree(out)
    assert ask().exit_code == 0 and files_of(out) == continued


def test_pages_are_made_of_rows_that_have_none(asked):
    ask, file, out = asked
    ask()
    whole = files_of(out)
    shutil.rmtree(out)
    assert run("explain", file, "--out", out, *TINY).exit_code == MISTAKE and len(files_of(out)) == 2
    assert "4 of them now" in ask().stdout and files_of(out) == whole
    assert "0 of them now" in ask().stdout and files_of(out) == whole


def test_no_id_or_text_leaves_the_directory_or_becomes_markup(asked):
    ask, _, out = asked
    ask()
    assert {path.name for path in out.parent.iterdir()} == {"prompts.jsonl", "out"}
    assert {path.name for path in (out / "pages").iterdir()} == {f"{line}.html" for line in (1, 2, 3, 5)}
    index = (out / "index.html").read_text()
    assert "<script" not in index and "<b>" not in index and "default-src 'none'" in index
    assert "holds: 4, refused: 1. An answer holds" in index
    links = re.findall(r'href="(pages/[^"]*)"', index)
    assert links == [f"pages/{line}.html" for line in (1, 2, 3, 5)] and "position 99 is outside" in index


def test_a_number_that_is_not_finite_fails_its_prompt_alone(asked, monkeypatch):
    ask, _, out = asked

    def failing(answer):
        if len(answer.record["tokens"]) == 2:
            raise NotFinite("the logit is NaN")

    monkeypatch.setattr(prompts, "certify", failing)
    assert ask().exit_code == DOES_NOT_HOLD
    assert [row["verdict"] for row in rows_of(out)] == ["holds", "failed", "holds", "refused", "holds"]


def test_rows_are_a_table_of_parquet(asked):
    parquet = pytest.importorskip("pyarrow.parquet")
    ask, _, out = asked
    ask("--parquet", out / "rows.parquet")
    rows = rows_of(out)
    table = parquet.read_table(out / "rows.parquet").to_pylist()
    assert [row | {"result": json.loads(row["result"])} for row in table] == rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--out", "new", "--json", "a.json", "--csv", "a.csv"), "--csv, --json: "),
        (("--parquet", "a.parquet"), "ask about every line"),
        ((), "give --out DIR"),
    ],
)
def test_options_of_one_answer_and_of_many_are_not_mixed(options, says, asked, monkeypatch):
    _, file, out = asked
    monkeypatch.chdir(out.parent)
    result = run("explain", file, *TINY, *options)
    assert result.exit_code == MISTAKE and says in result.stderr
    assert {path.name for path in out.parent.iterdir()} == {"prompts.jsonl"}


def test_a_text_is_no_file_of_prompts(tmp_path):
    for text in ("w1 w2", "w" * 5000, "a\0b"):
        result = run("explain", text, "--out", tmp_path / "out", *TINY)
        assert result.exit_code == MISTAKE and "is not a file: with --out" in result.stderr
