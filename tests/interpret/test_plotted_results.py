"""Pictures: what they show sums, of short and of long texts; no title is cut or lies over another; given axes."""

import io
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from rich.cells import cell_len

import duat_jax as duat
from duat_jax.cli.output import Answer, Files, deliver
from duat_jax.display.pictures import CHARACTERS, add_colour_bar, colour_scale, draw_heat, wrapped
from duat_jax.display.shown_tokens import LARGEST
from duat_jax.models.targets.description import TargetDescription
from duat_jax.transform.keys import Marked
from tests.every_result import every_result
from tests.helpers import near

LENGTHS = (3, 12, 117, 1000)
TARGET = TargetDescription(
    "the logit of '·a very long name of a token, with $dollars$, as people ask for it' at token 11, 'x'",
    "Logit",
)


@cache
def read():
    model = duat.load()
    tokenizer = model.tokenizer
    known = {"tokenizer": tokenizer}
    return [
        duat.explain(model, "for i in range(10", **known),
        duat.contrast(model, "for i in range(10", "for j in range(10", **known),
        duat.explain_attention(model, "for i in range(10", layer=1, head=0, key=0, **known),
    ]


def of_length(tokens):
    """Return an explanation, a contrast and an attention score of a number of tokens, a few of them much larger."""
    random = np.random.default_rng(tokens)

    def drawn(*shape):
        sizes = np.where(random.random(shape) < 0.02, 50.0, 0.1)
        return sizes * random.standard_normal(shape)

    def each(marked):
        return Marked({key: drawn(tokens, 2) for key in marked})

    explanation, contrast, score = read()
    labels = tuple(f"word{i}" for i in range(tokens))
    both = score.query_sources, score.key_sources
    sources = [
        tuple(source._replace(token=None if source.token is None else i % tokens) for i, source in enumerate(side))
        for side in both
    ]
    return [
        replace(
            explanation,
            tokens=labels,
            target=TARGET,
            embedding=drawn(tokens),
            coefficients=each(explanation.coefficients),
            activations=each(explanation.activations),
            collapse=drawn(tokens),
        ),
        replace(
            contrast,
            tokens=labels,
            target=TARGET,
            references=(contrast.references[0]._replace(tokens=("other", *labels[1:])),),
            flow=drawn(len(contrast.flow), tokens),
            heads=each(contrast.heads),
            neurons=each(contrast.neurons),
        ),
        replace(
            score,
            tokens=labels,
            query=tokens - 1,
            attention=np.full(tokens, 1 / tokens),
            query_sources=sources[0],
            key_sources=sources[1],
            queries=drawn(*score.queries.shape),
            keys=drawn(*score.keys.shape),
        ),
    ]


def heat_of(figure):
    """Return the numbers of the first heat map."""
    return next(axes.images[0].get_array() for axes in figure.axes if axes.images)


@pytest.mark.parametrize("tokens", LENGTHS)
def test_what_a_picture_shows_sums_to_the_whole(tokens):
    explanation, contrast, score = of_length(tokens)
    wholes = np.vstack([explanation.embedding, explanation.term_tokens]), contrast.flow, score.by_token()[1]
    for result, whole in zip((explanation, contrast, score), wholes):
        shown = heat_of(result.plot())
        assert shown.shape[1] <= (tokens + 1 if tokens < 100 else LARGEST + 2)
        near(shown.sum(), whole.sum(), within=1e-6 * np.abs(whole).sum())
        if result is not score:
            near(shown.sum(1), whole.sum(1), within=1e-6 * np.abs(whole).sum())


@pytest.mark.parametrize("tokens", LENGTHS)
def test_no_text_is_cut_and_no_title_lies_over_another(tokens):
    for result in of_length(tokens):
        figure = result.plot()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        titles = [axes.title for axes in figure.axes if axes.title.get_text()]
        titles += [figure._suptitle] if figure._suptitle is not None else []
        boxes = [title.get_window_extent(renderer) for title in titles]
        whole = figure.bbox.padded(1)
        for title, box in zip(titles, boxes):
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and box.y1 <= whole.y1, (tokens, title)
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i]), (tokens, titles)


@pytest.mark.parametrize(
    "text", ["logit of '" + "你好世界" * 9 + "' at token 3, 'x'", "a" * 99, str(TARGET), "two\nlines", ""]
)
def test_titles_are_wrapped_by_the_width_of_their_characters(text):
    lines = wrapped(text, 2.0).replace(r"\$", "$").split("\n")
    assert max(map(cell_len, lines)) <= 2 * CHARACTERS
    assert "".join(lines).replace(" ", "") == text.replace("\n", "").replace(" ", "")


@pytest.mark.slow
def test_every_picture_is_drawn_in_given_axes_alone():
    for result in every_result().values():
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert result.plot(ax=left) is figure
        assert left.has_data() and not right.has_data()
        colour_bar = {axes for axes in figure.axes if axes.get_label() == "<colorbar>"}
        assert set(figure.axes) - colour_bar == {left, right}


@pytest.mark.parametrize("form, start", [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_pictures_are_written_in_three_formats(tmp_path, form, start, capsys):
    explanation, *_ = read()
    deliver(Answer(result=explanation), Files(plot=tmp_path / f"a.{form}"))
    assert (tmp_path / f"a.{form}").read_bytes().startswith(start)
    file = io.BytesIO()
    explanation.plot().savefig(file, format=form)
    assert file.getvalue().startswith(start)


def test_colours_are_linear_unless_a_few_numbers_are_much_larger():
    table = np.linspace(-1, 1, 200).reshape(10, 20)
    linear = colour_scale(table)
    assert type(linear) is not AsinhNorm and float(linear(0.5)) == 0.75
    table[3, 4] = 100.0
    scale = colour_scale(table)
    assert type(scale) is AsinhNorm
    near([float(scale(x)) for x in (-100, 0, 100)], [0, 0.5, 1], within=1e-9)
    assert float(scale(1.0)) > 0.6
    assert (colour_scale(np.zeros(3)).vmin, colour_scale(np.zeros(3)).vmax) == (-1, 1)


def test_bars_and_colours_say_what_they_are():
    explanation, *_ = read()
    axes = explanation.plot().axes
    labels = {each.get_xlabel() for each in axes} | {each.get_ylabel() for each in axes}
    assert {"direct parts", "sum over tokens"} <= labels
    figure = Figure()
    heat = figure.subplots()
    table = np.array([[1.0] * 99 + [100.0]])
    add_colour_bar(draw_heat(heat, table, colour_scale(table)), heat, "part")
    assert figure.axes[1].get_ylabel() == "part, colours not linear"


def test_a_file_is_no_axes():
    explanation, *_ = read()
    with pytest.raises(duat.DuatError, match=r"give Matplotlib axes; plot\(\).savefig\(path\) writes a file"):
        explanation.plot(ax="picture.png")
