"""Kept files belong to one run: each kind, renamed, exchanged with another run's, changed by a byte, cut off."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import save

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from duat_jax.lora import training as adapters
from duat_jax.sealed import digest_of, seal, unseal
from duat_jax.survey import run as survey
from duat_jax.training import Run, begin, follow, train


def content_of(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def training(folder, number):
    """Return a kept state, its reader, and the content of the state after two more steps."""
    run = Run(lambda w, batch: (w - batch) ** 2, optax.sgd(0.25), [jnp.ones(1)] * 4, steps=4)
    kept = train(run, jnp.array(float(number)), folder, every=2)
    file, later = sorted(folder.iterdir())
    return file, lambda: content_of(kept.read(2)), later.read_bytes()


def lora(folder, number):
    """The state of a training of adapters is replaced by later ones of its run, which are no other's."""
    file, state, run = folder / "work", (jnp.arange(3.0), jnp.zeros(2)), {"text": number, "sizes": (1, 2)}
    adapters._keep(file, state, run, 2)
    return file, lambda: content_of(adapters._restored(file, state, run)), None


def part(folder, number):
    manifest = {"corpus": number}
    files = [folder / f"{i}" for i in range(2)]
    for i, file in enumerate(files):
        file.write_bytes(survey.seal({"sums": np.arange(2.0) + i}, survey._head(manifest, i)))
    return files[0], lambda: content_of(survey._read(files[0], manifest, 0)), files[1].read_bytes()


def journal(folder, number):
    file, work = folder / "work", {"seed": number}

    def read():
        kept = Journal(file, work)
        return [kept.once(name, lambda name=name: {"loss": number + len(name)}) for name in ("a", "bb", "ccc")]

    read()
    content = file.read_bytes()
    return file, read, content.replace(b'"bb"', b'"x"').replace(b'"a"', b'"bb"').replace(b'"x"', b'"a"')


def result(folder, number):
    """A result may have any name, and belongs to nothing else."""
    file = folder / "result"
    follow(jnp.square, begin(jnp.square, jnp.array(0.0)), jnp.array(float(number))).save(file)

    def read():
        opened = duat.open(file)
        return str(opened.completeness), content_of([opened.values, opened.sums])

    return file, read, None


def table(folder, number):
    """Other kinds of the same file: a survey's corpus."""
    manifest, file = {"corpus": "same"}, folder / survey.CORPUS
    survey._begin(folder, manifest | {"corpus": str(number)}, {"windows": np.arange(4) + number})
    read = lambda: content_of(survey._read(file, {"corpus": str(number)}, "corpus"))  # noqa: E731
    return file, read, survey.seal({"windows": np.arange(4)}, survey._head({"corpus": str(number)}, 0))


KINDS = {each.__name__: each for each in (training, lora, part, table, journal, result)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kept_file_is_read_as_it_was_kept_or_refused(kind, tmp_path):
    runs = []
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        runs.append(KINDS[kind](tmp_path / str(number), number))
    (file, read, renamed), (other, _, _) = runs
    content, chosen, kept = file.read_bytes(), random.Random(0), read()

    def refused(changed):
        file.write_bytes(changed)
        try:
            again = read()
        except duat.DuatError as error:
            return bool(str(error)) and "\n" not in str(error)
        assert again == kept
        return False

    if renamed is not None:
        assert refused(renamed)
    exchanged = other.read_bytes()
    if kind == "journal":  # whose first line alone says which
        assert refused(content.splitlines(keepends=True)[0] + b"".join(exchanged.splitlines(keepends=True)[1:]))
    if kind != "result":
        assert refused(exchanged)
    flips = [(chosen.randrange(len(content)), 1 << chosen.randrange(8)) for _ in range(100)]
    flipped = [refused(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]) for at, bit in flips]
    assert sum(flipped) >= 80
    cut = [refused(content[:at]) for at in range(0, len(content), 1 + len(content) // 20)]
    assert kind == "journal" or all(cut)


@pytest.mark.parametrize("kind", ["training", "lora", "part"])
def test_a_file_of_an_older_version_is_refused_with_what_to_do(kind, tmp_path):
    file, read, _ = KINDS[kind](tmp_path, 1)
    file.write_bytes(save({"losses": np.zeros(2)}, {"run": "{}", "done": "2"}))
    with pytest.raises(duat.DuatError, match="has no digest, as a file of an older version.*: .*(remove|give)"):
        read()


def test_a_journal_of_an_older_version_is_read_with_a_warning(tmp_path):
    (tmp_path / "work").write_text('{"seed": 0}\n{"name": "a", "found": 2.5}\n')
    with pytest.warns(UserWarning, match="lines of an older duat-jax, without a digest"):
        kept = Journal(tmp_path / "work", {"seed": 0})
    assert kept.once("a", lambda: 0.0) == 2.5


def test_a_digest_depends_on_every_name_dtype_shape_and_number():
    arrays = {"a": np.zeros(2), "b": np.zeros(1)}
    others = [{"c": np.zeros(2), "b": np.zeros(1)}, {"a": np.zeros((2, 1)), "b": np.zeros(1)}]
    others += [{"a": np.zeros(2), "b": np.ones(1)}, {"a": np.zeros(4, np.float32), "b": np.zeros(1)}]
    digests = {digest_of({"part": 0}, each) for each in [arrays, *others]} | {digest_of({"part": 1}, arrays)}
    assert len(digests) == 6
    assert digest_of({2: (0, 1), 10: 0}) == digest_of({"10": 0, "2": [0, 1]})


def test_arrays_are_kept_by_their_numbers_however_they_lie_in_memory():
    rows = np.arange(6.0).reshape(2, 3)
    arrays = {"transposed": rows.T, "by columns": np.asfortranarray(rows), "scalar": np.float32(1), "none": rows[:0]}
    _, found, whole = unseal(seal(arrays, {}))
    assert whole and {name: array.shape for name, array in found.items()} == {n: a.shape for n, a in arrays.items()}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
