"""Heads of a contrast run again are what an intervention measures, and what the contributions predict."""

import numpy as np
import pytest
from heads import IDS, model_of
from helpers import close

import duat_jax as duat

OTHER, THIRD, TARGET = [5, 7, 4, 10, 2], [5, 9, 4, 10, 2], duat.targets.Logit(4, contrast=6)


def test_a_head_replaced_and_removed_is_what_interventions_measure():
    model, others = model_of("next token"), [OTHER, THIRD]
    contrast = duat.contrast(model, IDS, others, TARGET, head_runs=3)
    assert [runs.head for runs in contrast.head_runs] == contrast.top_heads(3)
    for head, replaced, predicted, removed in contrast.head_runs:
        place = duat.edits.Heads(head.layer, head.head, tokens=head.token_index)
        edits = [place.set(0), *(place.set(duat.edits.FromInput(other)) for other in others)]
        off, *patched = (duat.intervene(model, IDS, edit, TARGET).effects[0] for edit in edits)
        close(removed, off.alone)
        close(predicted, off.frozen.sum())
        close(replaced, np.mean([effect.alone for effect in patched]))


def test_a_page_and_a_file_have_the_heads_run_again(tmp_path):
    contrast = duat.contrast(model_of("next token"), IDS, OTHER, TARGET, head_runs=2)
    (table,) = contrast.view().tables
    head, *changes = contrast.head_runs[0]
    place = f"{head.layer}.{head.head}", f"{head.token_index} {IDS[head.token_index]}"
    assert table.rows[0] == (*place, head.contribution, *changes)
    contrast.save(tmp_path / "result")
    assert duat.open(tmp_path / "result").head_runs == contrast.head_runs
    assert contrast.as_dict()["head_runs"][1]["removed"] == contrast.head_runs[1].removed
    assert not duat.contrast(model_of("next token"), IDS, OTHER, TARGET).head_runs


@pytest.mark.parametrize("count", [-1, True])
def test_a_number_of_heads_that_is_none_is_refused(count):
    with pytest.raises(duat.InvalidInput, match="head_runs is"):
        duat.contrast(model_of("next token"), IDS, OTHER, head_runs=count)
