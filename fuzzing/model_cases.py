"""Cases of drawn checkpoints: texts explained and contrasted, changed files loaded, changed results opened."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import duat_jax as duat
from duat_jax.interpret.explain.result import Explanation
from duat_jax.models.transformer import Transformer
from duat_jax.sealed import seal, unseal
from fuzzing import models
from fuzzing.rounding import carried
from fuzzing.verdicts import Tally

OTHER_WORDS = ("é", "w99", "W1")
"""Words that a checkpoint's vocabulary lacks; they are token 0."""

GAPS = (" ", "  ", "\n", "\t ")
KINDS = ("models", "files", "results")
"""The kinds of cases, by what is drawn."""


class Sizes(NamedTuple):
    """The numbers of texts, pairs and changed files that are drawn for one checkpoint.

    Args:
        texts: that are explained.
        pairs: of texts that are contrasted.
        files: changed copies of its weights.
        results: changed copies of a kept explanation.
    """

    texts: int = 3000
    pairs: int = 150
    files: int = 100
    results: int = 100


class _Subject(NamedTuple):
    """A checkpoint that is asked: its name, the loaded model, and its forward pass in NumPy."""

    name: str
    model: Transformer
    logits: Callable[..., np.ndarray]
    chance: np.random.Generator


def ask(seed: int, tallies: dict[str, Tally], sizes: Sizes) -> None:
    """Explain and contrast texts with a drawn checkpoint and with changed copies of it; open changed results.

    Args:
        seed: what decides.
        tallies: count the answers, by kind.
        sizes: how much is asked.
    """
    chance = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        directory, kept = Path(folder) / "model", Path(folder) / "result"
        models.write(directory, seed)
        subject = _Subject(f"model {seed}", duat.load(directory), models.read(directory), chance)
        explained = _explain(subject, sizes.texts, tallies["models"])
        for _ in range(sizes.pairs):
            _contrast(subject, tallies["models"])
        for _ in range(sizes.results):
            answer, number = explained[chance.integers(len(explained))]
            answer.save(kept)
            kept.write_bytes(_changed_result(kept.read_bytes(), chance))
            _open(f"a result of model {seed}", kept, number, tallies["results"])
        weights = directory / "model.safetensors"
        original = weights.read_bytes()
        for file in range(sizes.files):
            weights.write_bytes(_changed(original, chance))
            try:
                model = duat.load(directory)
            except duat.DuatError:
                tallies["files"].refuse()
            else:
                changed = _Subject(f"file {file} of model {seed}", model, models.read(directory), chance)
                _explain(changed, 1, tallies["files"])


def _text(chance: np.random.Generator, length: int) -> tuple[str, list[int]]:
    """Draw a text, and return it with its token ids."""
    words = [str(chance.choice((*models.WORDS, *OTHER_WORDS))) for _ in range(length)]
    ids = [models.WORDS.index(word) if word in models.WORDS else 0 for word in words]
    return "".join(word + str(chance.choice(GAPS)) for word in words), ids


class _Number(NamedTuple):
    """A logit at the last token, or a difference of two."""

    subject: _Subject
    ids: Sequence[int]
    target: int
    contrast: int | None = None

    def of(self, numbers: Callable[[np.ndarray], np.ndarray] = models.double) -> np.ndarray:
        """Compute it in some numbers."""
        logits = self.subject.logits(self.ids, numbers)[-1]
        return np.asarray(logits[self.target] - (0 if self.contrast is None else logits[self.contrast]))

    def rounding(self) -> float:
        """Return how far single precision carries it: in NumPy, or in double precision that rounds as coarsely."""
        exact, eps = self.of(), float(np.finfo(np.float32).eps)
        off = carried(lambda rounded: self.of(lambda weights: rounded(models.double(weights))), exact, eps, seed=0)
        return float(np.max([abs(self.of(lambda weights: weights.astype(np.float32)) - exact), *off]))


def _explain(subject: _Subject, count: int, tally: Tally) -> list[tuple[Explanation, _Number]]:
    """Explain texts, judge the answers, and return them with what they explain."""
    chance = subject.chance
    texts = [_text(chance, int(chance.integers(1, models.POSITIONS + 1))) for _ in range(count)]
    target, contrast = map(int, chance.choice(models.VOCAB, 2, replace=False))
    try:
        answers = duat.explain(subject.model, [text for text, _ in texts], target, contrast=contrast)
    except duat.DuatError:
        tally.refuse(count)
        return []
    found = []
    for (_, ids), answer in zip(texts, answers, strict=True):
        number = _Number(subject, ids, target, contrast)
        case = f"{subject.name}, explain {ids}, {target} minus {contrast}"
        tally.judge(case, answer.completeness, number.of(), number.rounding)
        found.append((answer, number))
    return found


def _contrast(subject: _Subject, tally: Tally) -> None:
    """Contrast two texts, and judge the answer."""
    length, target = int(subject.chance.choice((2, models.POSITIONS))), int(subject.chance.integers(models.VOCAB))
    (text, ids), (reference, others) = (_text(subject.chance, length) for _ in range(2))
    try:
        answer = duat.contrast(subject.model, text, reference, target)
    except duat.DuatError:
        tally.refuse()
        return
    here, there = (_Number(subject, each, target) for each in (ids, others))
    case = f"{subject.name}, contrast {ids} with {others}, {target}"
    tally.judge(case, answer.completeness, here.of() - there.of(), lambda: here.rounding() + there.rounding())


def _changed(content: bytes, chance: np.random.Generator) -> bytes:
    """Return a file with a few bytes of it changed, moved or cut off."""
    place, length = int(chance.integers(len(content))), int(chance.integers(1, 9))
    match chance.integers(4):
        case 0:
            return content[:place]
        case 1:
            return content[:place] + content[place + length :]
        case 2:
            return content[:place] + chance.bytes(length) + content[place:]
        case _:
            return content[:place] + chance.bytes(length) + content[place + length :]


def _changed_result(content: bytes, chance: np.random.Generator) -> bytes:
    """Return a kept result with some bytes changed, or with one number changed and a digest that is right."""
    if chance.random() < 0.5:
        return _changed(content, chance)
    head, arrays, _ = unseal(content)
    name = str(chance.choice([name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]))
    array = np.array(arrays[name])
    array.flat[chance.integers(array.size)] *= chance.choice((-1, 0, 1.5, 1 + 1e-6, 1e3))
    return seal(arrays | {name: array}, head)


def _open(case: str, file: Path, number: _Number, tally: Tally) -> None:
    """Open a changed result, and judge the sum of the parts that it has now."""
    try:
        found = duat.open(file)
    except duat.DuatError:
        tally.refuse()
        return
    parts = [float(array.values.sum()) for array in found.arrays() if array.part in PARTS]
    completeness = found.completeness._replace(sum=np.float64(sum(parts)))
    tally.judge(case, completeness, number.of(), number.rounding)


PARTS = ("embedding", "terms", "biases", "remainder")
"""The parts of an explanation that sum to its number."""
