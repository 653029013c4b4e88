"""What is measured on text that a model wasn't trained on is measured on such text."""

import pytest

from experiments import texts
from experiments.faithfulness import run as faithfulness
from experiments.in_context import models as context
from experiments.pruning import draws
from training.corpus import FEW, SHORT_LINE


@pytest.fixture(scope="module")
def trained():
    return texts.trained_sources()


@pytest.fixture(scope="module")
def held_out():
    return texts.held_out_sources()


def test_little_of_a_held_out_file_stands_in_training_files(trained, held_out):
    assert len(held_out) > 20 and not set(held_out) & set(trained)
    lines = {line.strip() for text in trained for line in text.splitlines()}
    for text in held_out:
        known = total = 0
        for line in map(str.strip, text.splitlines()):
            if len(line) > SHORT_LINE:
                total, known = total + len(line), known + len(line) * (line in lines)
        assert known <= FEW * max(total, 1)


def test_the_studies_read_held_out_files(trained, held_out, monkeypatch):
    calibration, evaluation = draws.texts_of(draws.EMBEDDED)
    assert set(calibration) < set(trained) and evaluation == held_out
    calibration, evaluation = draws.texts_of(draws.SMOLLM2)
    assert calibration and evaluation and not set(calibration) & set(evaluation)

    functions = faithfulness.held_out_functions()
    whole = "\n".join(held_out)
    assert len(functions) > 200 and all(function.splitlines()[0].strip() in whole for function in functions)

    monkeypatch.setattr(context, "model_of", lambda name: (None, None))
    monkeypatch.setattr(context, "stream", lambda tokenizer, read: read)
    monkeypatch.setattr(context, "windows", lambda read, *size, seed: read)
    assert context.texts_of(context.EMBEDDED) == held_out
