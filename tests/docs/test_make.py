"""The commands of a checkout: the targets of the Makefile, the studies, and what the pages say of both."""

import re
import subprocess
import sys

import pytest

from experiments.__main__ import main
from experiments.studies import ROOT, studies

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.search(r"^\.PHONY:((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)[1].replace("\\", " ").split())


def text_files():
    """Return every file of the repository in which a command is shown."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = [name for name in listed.splitlines() if re.search(r"\.(py|md|ipynb|yml|toml)$|^\.ci/|^Makefile$", name)]
    return [
        name for name in shown if name not in {"CHANGELOG.md", "tests/docs/test_make.py"} and (ROOT / name).exists()
    ]


def test_there_are_at_most_twenty_targets_and_each_says_what_it_does():
    rules = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
    explained = set(re.findall(r"^([a-z][\w-]*):.*## ", MAKEFILE, re.MULTILINE))
    assert TARGETS == rules == explained | {"clean"} and len(rules) <= 20


def test_every_target_and_every_study_that_is_shown_is_there():
    wrong = []
    for name in text_files():
        text = (ROOT / name).read_text(encoding="utf-8")
        targets = re.findall(r"(?:`|^ *\$ |^ {4}|run: |&& |^run )make ([a-z][\w-]*)", text, re.MULTILINE)
        wrong += [f"{name}: make {target}" for target in targets if target not in TARGETS]
        named = re.findall(r"python -m experiments (\w+)", text)
        wrong += [f"{name}: {study}" for study in named if study not in {*studies(), "NAME", "lists"}]
        modules = re.findall(
            r"python -m ((?:experiments|benchmarks|training|typesetting|tests|notebooks)\.[\w.]+\w)", text
        )
        files = [ROOT / f"{module.replace('.', '/')}.py" for module in modules if module != "benchmarks.NAME"]
        programs = [file for file in files if file.exists() and "__main__" in file.read_text(encoding="utf-8")]
        wrong += [f"{name}: {file.relative_to(ROOT)}" for file in set(files) - set(programs)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_studies_are_listed_and_others_are_refused_in_one_line(capsys):
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(studies()) and len(lines) > 40
    for arguments, refusal in ((["no_study"], "no study 'no_study'"), (["refined", "--quick"], "no options")):
        with pytest.raises(SystemExit, match=refusal) as raised:
            main(arguments)
        assert "\n" not in str(raised.value)


def test_a_study_is_measured_and_the_pages_are_written(monkeypatch):
    command, ran = sys.modules["experiments.__main__"], []
    monkeypatch.setattr(command, "measure", lambda name, study: ran.append((name, study.page)))
    monkeypatch.setattr(command, "keep_compiled", lambda: None)
    monkeypatch.setattr(command, "write_pages", lambda: ran.append("pages"))
    main(["circuits"])
    assert ran == [("circuits", "circuits"), "pages"]
