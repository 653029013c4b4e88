"""The lies, and who notices: completeness (the sum), and the reference (every part).

python tests/lies.py            # the table, over every case, in both dtypes
"""

import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
from cases import CASES, FUNCTIONS, REAL
from held_gradient import Parts, collapsed_parts, held_parts

import duat_jax as duat
from duat_jax.forms.affine_form import KINDS, collapsed_contributions
from duat_jax.forms.completeness import FACTOR, HOLDS, completeness_of
from duat_jax.transform import marks
from duat_jax.transform.recording import record_kinds

DTYPES = ("float32", "float64")
MANY = 60
"""Of this many parts each is lied about; of more, the largest and some others."""


@contextmanager
def precision(dtype):
    """Everything of one dtype, so that a function that says nothing of dtypes has it too."""
    with jax.enable_x64(dtype == "float64"):
        yield


def how(name):
    """Compiled where there are scans and where the answers are many; operation by operation elsewhere, to save time."""
    return nullcontext() if name in FUNCTIONS or name in REAL else jax.disable_jit()


def decomposed(case, *, neurons=True):
    """Return the library's parts by the reference's labels, with the value, and completeness."""
    found = duat.decompose(case.fn, case.x, by_neuron=neurons)
    parts = {f"input[{i}]": part for i, part in enumerate(jax.tree.leaves(found.input))}
    parts |= {f"term {key}": part for key, part in found.terms.items()}
    parts |= {f"offset {key}": part for key, part in found.offsets.items()}
    return numbers(parts | {"unmarked": found.unmarked}), found.completeness


def collapsed(case):
    """Return the parts of the library's collapse in the same way."""
    found = collapsed_contributions(record_kinds(case.fn, case.x, KINDS), gate_rule=case.gate_rule)
    parts = {f"input[{i}]": part for i, part in enumerate(jax.tree.leaves(found.input))}
    return numbers(parts | {"bias": found.bias}), found.completeness


def numbers(parts):
    return {label: np.asarray(part) for label, part in parts.items()}


def with_remainder(reference: Parts, label="unmarked"):
    """Return the reference with what its own parts leave of its value."""
    rest = np.asarray(reference.value - sum(part.sum() for part in reference.parts.values()), reference.value.dtype)
    rest = rest + reference.parts.get(label, np.zeros_like(rest))
    return reference._replace(
        parts=reference.parts | {label: rest}, sizes=reference.sizes | {label: flat(reference.parts)}
    )


def flat(parts):
    return np.concatenate([part.reshape(-1) for part in parts.values()])


def tolerances(reference: Parts):
    """Return what rounding may do to each part: the completeness rule, for the largest in each array."""
    factor = FACTOR * np.log2(sum(np.count_nonzero(part) for part in reference.parts.values()) + 4)
    eps = np.finfo(reference.value.dtype).eps
    # What nothing is left of is a difference of everything: there the root of squares counts.
    scale = {
        label: np.sqrt((size**2).sum()) if label in ("unmarked", "bias") else size.max(initial=0)
        for label, size in reference.sizes.items()
    }
    return {label: np.full(part.shape, factor * eps * scale[label]) for label, part in reference.parts.items()}


class Lie(NamedTuple):
    """All parts as a flat vector, with one thing wrong.

    Args:
        kind: how it lies.
        about: which part.
        parts: what it says.
    """

    kind: str
    about: str
    parts: np.ndarray


def _units(parts, scanned):
    """Return the parts by layer: where each is in the flat vector."""
    found, start = {}, 0
    for label, part in parts.items():
        places = np.arange(start, start + part.size).reshape(part.shape)
        start += part.size
        if (scanned and label.startswith("term") and part.ndim) or (label.startswith("offset") and part.ndim):
            found |= {f"{label}@{i}": place for i, place in enumerate(places)}
        else:
            found[label] = places
    return found


def _some(values, many=MANY):
    order = np.argsort(-np.abs(values))
    if len(order) <= many:
        return order
    return np.concatenate([order[: many // 2], order[:: -(-2 * len(order) // many)]])


def lies_about(parts, scanned):
    """Yield each lie: all parts, as a flat vector, with one thing wrong."""
    truth, units = flat(parts), _units(parts, scanned)

    def lie(kind, about, where, values):
        told = truth.copy()
        told[where] = values
        return Lie(kind, about, told)

    for i in _some(truth):
        yield lie("one part negated", f"part {i}", i, -truth[i])
    for label, places in units.items():
        yield lie("all of a term, bias or input negated", label, places, -truth[places])
    largest = np.argmax(np.abs(truth))
    yield lie("largest dropped", f"part {largest}", largest, 0)

    terms = [(label, places) for label, places in units.items() if label.startswith("term")]
    offsets = [(label, places) for label, places in units.items() if label.startswith("offset")]
    for here, there in (pair for group in (terms, offsets) for pair in pairwise(group)):
        a, b = here[1].reshape(-1), there[1].reshape(-1)
        if a.shape != b.shape:
            continue
        about = f"{here[0]} and {there[0]}"
        for i in _some(truth[a] - truth[b], 10):
            yield lie("two swapped between layers", about, [a[i], b[i]], truth[[b[i], a[i]]])
        yield lie("two layers swapped", about, [*a, *b], truth[[*b, *a]])
    for label, places in offsets:
        into = (terms or [*units.items()])[0]
        for i in places.reshape(-1):
            j = into[1].reshape(-1)[0]
            yield lie("bias moved into a term", f"{label} into {into[0]}", [i, j], [0, truth[i] + truth[j]])


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
def _completeness(value, parts):
    found = completeness_of(value, [parts])
    # What makes the verdict of one number "fails".
    return {"fails": ~found.within, "error": found.error, "tolerance": found.tolerance}


AT_ONCE = 16


def completeness_of_each(value, told):
    """Return of each of several vectors of parts whether its sum is reported, its error and the tolerance."""
    size = len(told[0])
    # Parts that are zero count for nothing: few shapes, few programs.
    width = 1 << (size - 1).bit_length()
    found = []
    for start in range(0, len(told), AT_ONCE):
        some = told[start : start + AT_ONCE]
        chunk = np.zeros((AT_ONCE, width), told[0].dtype)
        chunk[: len(some), :size] = some
        columns = {key: np.asarray(column) for key, column in _completeness(value, chunk).items()}
        found += [{key: column[i] for key, column in columns.items()} for i in range(len(some))]
    return found


class Judged(NamedTuple):
    """What was noticed of a lie.

    Args:
        lie: its kind.
        about: which part.
        by_sum: whether completeness reports it.
        by_reference: whether a part isn't the reference's.
        owed_by_sum: whether it changes the sum by more than rounding may, the truth's own error included.
        owed_by_reference: whether it changes a part by more than rounding may, its own error included.
        edge: whether it changes the sum by more than the tolerance, but not by the truth's own error more.
        largest_change: of a part, beside the largest part.
        tolerance: beside the largest part.
    """

    lie: str
    about: str
    by_sum: bool
    by_reference: bool
    owed_by_sum: bool
    owed_by_reference: bool
    edge: bool
    largest_change: float
    tolerance: float


def judge(case, parts, reference, value):
    """Yield what is noticed of each lie about some parts."""
    truth, expected, allowed = (flat(p) for p in (parts, reference.parts, tolerances(reference)))
    error = abs(float(completeness_of_each(value, [truth])[0]["error"]))
    largest = np.abs(truth).max()
    lies = [lie for lie in lies_about(parts, case.scanned) if (lie.parts != truth).any()]
    for lie, verdict in zip(lies, completeness_of_each(value, [lie.parts for lie in lies])):
        change = abs((lie.parts.astype(np.float64) - truth).sum())
        tolerance = float(verdict["tolerance"])
        off = np.abs(lie.parts - truth)
        yield Judged(
            lie.kind,
            lie.about,
            bool(verdict["fails"]),
            bool((np.abs(lie.parts - expected) > allowed).any()),
            change > tolerance + error,
            bool((off > allowed + np.abs(truth - expected)).any()),
            tolerance < change <= tolerance + error,
            off.max() / largest,
            tolerance / largest,
        )


def marked(case, kind):
    """Return the name of every mark of a kind, in the order in which they are made."""
    names, bind = [], marks.bind_mark

    def noted(x, a_kind, name):
        if a_kind == kind:
            names.append(name)
        return bind(x, a_kind, name)

    with mock.patch.object(marks, "bind_mark", noted):
        jax.make_jaxpr(anew(case).fn)(case.x)
    return names


def anew(case):
    """Return the case with a function that JAX hasn't traced yet: it keeps the traces of those that it has."""
    return case._replace(fn=lambda x: case.fn(x))


class Answers(NamedTuple):
    """The library's parts, the reference's, and completeness, of one case."""

    parts: dict[str, np.ndarray]
    reference: Parts
    completeness: Any


def answers(case, *, neurons=True):
    parts, completeness = decomposed(case, neurons=neurons)
    reference = held_parts(case.fn, case.x, neurons=neurons)
    return _ordered(parts, with_remainder(reference), completeness)


def collapsed_answers(case, *, share=0.5):
    parts, completeness = collapsed(case)
    share = share if case.gate_rule is None else 0.0
    return _ordered(parts, with_remainder(collapsed_parts(case.fn, case.x, share=share), "bias"), completeness)


def _ordered(parts, reference, completeness):
    assert parts.keys() == reference.parts.keys(), parts.keys() ^ reference.parts.keys()
    assert all(part.shape == reference.parts[label].shape for label, part in parts.items())
    ordered = {label: parts[label] for label in reference.parts}
    return Answers(ordered, reference, completeness)


def disagreement(parts, reference):
    """Return by label how far a part is from the reference's, in units of what rounding may do."""
    allowed = tolerances(reference)
    assert parts.keys() == reference.parts.keys(), parts.keys() ^ reference.parts.keys()
    off = {label: np.abs(part - reference.parts[label]) for label, part in parts.items()}
    return {
        label: float((off[label] / np.where(allowed[label] > 0, allowed[label], np.finfo(float).tiny)).max(initial=0))
        for label in off
    }


@contextmanager
def forgotten(kind, name, occurrence=None):
    """Leave out a mark, or one of those that are called so, as one who forgot it."""
    bind, seen = marks.bind_mark, Counter()

    def without(x, a_kind, a_name):
        if (a_kind, a_name) == (kind, name):
            seen[name] += 1
            if occurrence in (None, seen[name] - 1):
                return x
        return bind(x, a_kind, a_name)

    with mock.patch.object(marks, "bind_mark", without):
        yield


def tally(judged_by_dtype):
    """Return one row per dtype and kind of lie."""
    rows = {}
    for dtype, judged in judged_by_dtype:
        rows.setdefault((dtype, judged.lie), []).append(judged)
    return rows


def printed(rows):
    """Return the table as text.

    Args:
        rows: from `tally`.
    """
    head = ("dtype", "lie", "lies", "of the sum", "told by the sum", "by the reference", "by neither")
    head += ("largest unseen", "largest tolerance")
    lines = [head]
    for (dtype, kind), judged in rows.items():
        unseen = [j.largest_change for j in judged if not j.by_sum and not j.by_reference]
        lines.append(
            (
                dtype,
                kind,
                len(judged),
                sum(j.owed_by_sum for j in judged),
                sum(j.by_sum for j in judged),
                sum(j.by_reference for j in judged),
                len(unseen),
                f"{max(unseen, default=0):.1e}",
                f"{max(j.tolerance for j in judged):.1e}",
            )
        )
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main(names):
    """Print the table, and where a part isn't the reference's."""
    judged = []
    for dtype in DTYPES:
        for name in names:
            with precision(dtype), how(name):
                case = CASES[name](dtype)
                questions = {"": answers(case), "without neurons, ": answers(case, neurons=False)}
                questions["collapse of "] = collapsed_answers(case)
            with precision(dtype):
                for kind, found in questions.items():
                    worst = max(disagreement(found.parts, found.reference).items(), key=lambda item: item[1])
                    verdict = found.completeness.verdict
                    if worst[1] > 1 or verdict != HOLDS:
                        print(f"{dtype} {kind}{name}: {verdict}, worst {worst}")
                    judged += [(dtype, j) for j in judge(case, found.parts, found.reference, found.completeness.value)]
    print(printed(tally(judged)))
    print(f"{len(judged)} lies; at the edge: {sum(j.edge for _, j in judged)}")
    for dtype, j in judged:
        if (j.owed_by_sum and not j.by_sum) or (j.owed_by_reference and not j.by_reference):
            print(f"not noticed, {dtype}: {j}")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1:] or list(CASES))
