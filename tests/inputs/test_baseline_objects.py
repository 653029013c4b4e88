"""A baseline is an object, and a string is a text, whatever it says."""

import numpy as np
import pytest
from helpers import described

import duat_jax as duat
from duat_jax.inputs.baseline_kinds import KINDS
from duat_jax.inputs.baselines import ask_contrast


@pytest.mark.parametrize("word", KINDS)
def test_a_baselines_word_is_a_text_where_a_tokenizer_reads_it(word):
    config, tokenizer = duat.load_config(), duat.load_tokenizer()
    ids = tokenizer.encode(word).ids
    request = ask_contrast(described(config), [5] * len(ids), word, 7, tokenizer=tokenizer)
    assert request.others[0].inputs.given.tolist() == ids and request.texts == (True,)


def test_an_old_name_that_can_be_no_text_warns_and_stands_for_its_baseline():
    config = duat.load_config()
    with pytest.warns(FutureWarning, match=r"the baseline 'mean' is called duat.baselines.Mean\(\) now"):
        old = ask_contrast(described(config), [5, 6], "mean", 7)
    new = ask_contrast(described(config), [5, 6], duat.baselines.Mean(), 7)
    assert old.names == new.names and np.array_equal(old.others[0].averaged, new.others[0].averaged)


def test_a_baseline_of_no_known_kind_says_which_there_are():
    with pytest.raises(duat.InvalidInput, match=r"^Baseline\(\) is no baseline of a known kind: give Mask\(\)"):
        ask_contrast(described(duat.load_config()), [5, 6], duat.baselines.Baseline(), 7)
