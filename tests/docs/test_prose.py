"""Numbers in the sentences of pages that are no field of a kept result are computed here, and stand there."""

import re
import sys

import jax
import numpy as np
import pytest
from shown_pages import ROOT

import duat_jax as duat
from experiments import smollm2
from experiments.families import measured
from training.corpus import SHORT_LINE, sources, split, unseen

CODE = "def get(self, key, default=None): return self.data.get(key,"


def prose(page):
    """Return a page as one line."""
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


@pytest.fixture(autouse=True)
def as_a_reader():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def carried(score, side, layer, head):
    """Return the part of a score that a head of an earlier layer carries to its query or key."""
    name = f"layer {layer} head {head}"
    sources, axis = (score.query_sources, 1) if side == "query" else (score.key_sources, 0)
    of_source = np.asarray(score.pairs).sum(axis)
    return {source.token: part for source, part in zip(sources, of_source, strict=True) if source.part == name}


def attention(model, ids, layer, head, token):
    """Return a head's attention at a token, in percent."""
    recording = duat.record(model.hidden)(model.embed(np.asarray(ids)))
    return 100 * np.asarray(recording.dynamics.held[f"layers.{layer}.attention.pattern"])[head, token]


def test_the_difference_stays_at_the_parameter_up_to_layer_3():
    model = duat.load()
    tokenizer = model.tokenizer
    other = CODE.replace("default", "missing")
    found = duat.contrast(model, CODE, other, " default", contrast=" missing", tokenizer=tokenizer)
    assert f"{found.flow[4, 7]:.1f} of {found.difference:.1f} sit at the changed parameter" in prose(
        "tutorials/first-contrast.md"
    )


@pytest.mark.slow
def test_a_head_looks_for_what_came_before():
    model = duat.load()
    tokenizer = model.tokenizer
    text = "def area(width, height): return width * he"
    asked = {"layer": 4, "head": 1, "key": 7, "contrast": 11, "through_heads": True}
    score = duat.explain_attention(model, text, **asked, tokenizer=tokenizer)
    page = prose("how-to/attention.md")
    second, first, third = (carried(score, "key", *unit) for unit in ((2, 2), (1, 0), (3, 0)))
    assert f"layer 2's head 2 ({second[7]:+.2f})" in page
    assert f"layer 1's head 0 ({first[7]:+.2f}, and −{-first[11]:.2f} on the other key)" in page
    assert f"layer 3's head 0 ({third[7]:+.2f})" in page
    ids = tokenizer.encode(text).ids
    before = [attention(model, ids, layer, head, 7)[6] for layer, head in ((2, 2), (3, 0))]
    assert "to the token before, {:.0f} % and {:.0f} %".format(*before) in page


@pytest.mark.slow
def test_a_head_of_the_language_model_looks_for_what_came_before():
    model = duat.load(smollm2.path())
    tokenizer = model.tokenizer
    text, page = "When Henry and Frank went to the store, Frank", prose("how-to/attention.md")
    asked = {"layer": 17, "head": 4, "key": 4, "contrast": 2, "tokenizer": tokenizer}
    ids = tokenizer.encode(text).ids
    score = duat.explain_attention(model, text, **asked)
    _, table = score.by_token()
    assert f"head 4 gives {attention(model, ids, 17, 4, 9)[4]:.0f} % of its attention" in page
    assert f"Of {score.value:.2f}, the second `·Frank` gives {table[9].sum():.2f} on the query side" in page
    assert f"the first one {table[:, 3].sum():.2f} on the key side" in page
    assert f"the pair of the two alone is {table[9, 3]:.2f}" in page
    through = duat.explain_attention(model, text, **asked, through_heads=True)
    assert f"gives {attention(model, ids, 16, 0, 4)[3]:.0f} % of its attention" in page
    assert f"is {carried(through, 'key', 16, 0)[4]:.2f} of the key side" in page


def test_the_model_of_the_package_has_the_size_that_its_page_says():
    model = duat.load()
    size = sum(array.size for array in jax.tree.leaves(model))
    words = f"{size / 1e6:.1f} million parameters, six layers, a context of {model.config.positions} tokens"
    assert model.config.layers == 6 and words in prose("how-to/models.md")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the sources are those of the Python that trained the model"
)
def test_held_out_files_share_as_many_lines_with_training_files_as_the_page_says():
    training, held_out = split(sources())
    known = {line.strip() for text in training.values() for line in text.splitlines()}

    def shared(files):
        lines = [line.strip() for text in files.values() for line in text.splitlines()]
        counted = [line in known for line in lines if len(line) > SHORT_LINE]
        return f"{100 * np.mean(counted):.0f} %"

    page = prose("findings/tables/pruning.md")
    assert f"{shared(held_out)} stand in training files" in page
    assert f"in the others {shared(unseen(training, held_out))} of these lines do" in page


def test_pages_count_families_and_notebooks_rightly():
    assert len(measured()) == 45 and len(list((ROOT / "notebooks").glob("*.ipynb"))) == 13
    assert "forty-five families" in prose("../README.md")
    assert len(re.findall(r"^\d+\. \[", (ROOT / "docs/tutorials/notebooks.md").read_text("utf-8"), re.MULTILINE)) == 13
