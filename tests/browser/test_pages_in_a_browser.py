"""Pages in a real browser: their numbers are the result's, they sum on the screen, and hostile texts do nothing."""

import base64
import dataclasses
import gzip
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import ENCODER

import duat_jax as duat
from duat_jax.display.examples import Example, Examples
from duat_jax.display.page.data import page_data
from duat_jax.models.targets.description import TargetDescription
from experiments import smollm2
from tests.browser.conftest import PHONE, keep_screenshot
from tests.every_result import MAKERS, result_of
from tests.helpers import near, relative
from tests.interpret.test_images_beside_texts import random_results

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
TEXT, OTHER = "def get(self, key, default=None): return", "def get(self, key, missing=None): return"
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"'&",
    "\x00\x1b[31m",
    "\u202eabc",
    "x" * 10_000,
)


@cache
def embedded():
    model = duat.load()
    return model, model.tokenizer


@cache
def language_model():
    model = duat.load(smollm2.path())
    return model, model.tokenizer


@cache
def encoder():
    model = duat.load(ENCODER)
    return model, model.tokenizer


def asked(ask, loaded, *arguments, **options):
    """Return a function that asks a model once."""

    @cache
    def answer():
        model, tokenizer = loaded()
        return ask(model, *arguments, tokenizer=tokenizer, **options)

    return answer


RESULTS = {
    "explanation": asked(duat.explain, embedded, TEXT),
    "log-probability": asked(duat.explain, embedded, TEXT, duat.targets.LogProbability(7)),
    "contrast": asked(duat.contrast, embedded, TEXT, OTHER),
    "contrast with two": asked(duat.contrast, embedded, TEXT, [OTHER, duat.baselines.Mean()]),
    "graph": asked(duat.graph, embedded, TEXT),
    "graph of MiniLM": asked(duat.graph, encoder, "A cat sits.", against="A dog runs.", top_neurons=2),
    "intervention": asked(
        duat.intervene, embedded, TEXT, [duat.edits.Heads(5, 3).set(0), duat.edits.Stream(2, tokens=-1).scale(0.9)]
    ),
    "SmolLM2": asked(duat.explain, language_model, "The capital of France is"),
    "MiniLM": asked(duat.explain, encoder, "A cat sits.", against="A dog runs."),
    "contrast of MiniLM": asked(duat.contrast, encoder, "A cat sits.", duat.baselines.Mask(), against="A dog runs."),
}


def cells(page, *, every=True):
    """Return the numbers of the table, row by row, as they stand there in full; of every token, or as it is shown."""
    columns = page.get_by_label("columns of the table")
    if every and columns.count():
        columns.select_option("all tokens")
    rows = page.eval_on_selector_all(
        ".grid tbody tr", "rows => rows.map(row => [...row.querySelectorAll('td')].map(td => td.dataset.say))"
    )
    return [[number(cell.rpartition(": ")[2]) for cell in row] for row in rows]


def number(text):
    """Return a number that the page shows."""
    return float(text.replace("−", "-"))


def require_accessible(page):
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(rule["id"], [node["html"][:150] for node in rule["nodes"][:3]]) for rule in found] == []


def content_of(html):
    """Return the data of a page."""
    kept = re.search(r'id="numbers">"([^"]*)"', html)[1]
    return json.loads(gzip.decompress(base64.b64decode(kept)))


@pytest.mark.parametrize("name", RESULTS)
def test_the_numbers_are_the_results_and_sum(opened, name):
    result = RESULTS[name]()
    page = opened(result.to_html())
    table = np.array(cells(page))
    result = result.explanation if isinstance(result, duat.results.Graph) else result
    tolerance = 4 * float(result.completeness.tolerance)
    if isinstance(result, duat.results.Contrast):
        parts = result.flow
        near(table[:, -1], result.difference, tolerance)
    else:
        if isinstance(result, duat.results.Intervention):
            parts, added = table[:-1, :-1].astype(np.float32), result.discontinuities
            near(table[:-1, -1], [effect.secant.sum() for effect in result.effects], 1e-5)
        else:
            parts, added = np.concatenate([result.embedding[None], result.term_tokens]), result.biases
        near(table[-1, :-1], parts.sum(0), 1e-6 * np.abs(parts).max() * len(parts))
        near(table[-1, -1] + sum(added.values()), float(result.completeness.value), tolerance)
        table = table[:-1]
    # Every number has the digits of its dtype.
    np.testing.assert_array_equal(table[:, : len(result.tokens)].astype(parts.dtype), parts)
    assert page.locator(".verdict").inner_text() == result.completeness.verdict


@pytest.mark.parametrize("name", ["explanation", "contrast"])
def test_a_cells_neurons_sum_to_it(opened, name):
    result = RESULTS[name]()
    page = opened(result.to_html(), address="#row=1&token=7")
    shown = page.locator(".parts").last if name == "contrast" else page.locator(".cell .parts")
    *parts, cell = [
        number(t)
        for t in shown.locator("tr:not(thead tr) td:nth-of-type(1)").evaluate_all("l => l.map(td => td.title)")
    ]
    relative(sum(parts), cell, 1e-5)
    expected = result.flow[1, 7] if name == "contrast" else result.term_tokens[0, 7]
    relative(cell, expected, 1e-6)
    if name == "explanation":
        largest = next(iter(result.terms.values()))[7]
        relative(parts[0], largest[np.abs(largest).argmax()], 1e-6)


def test_folded_tokens_stand_in_one_column_and_the_rows_still_sum(opened):
    result = RESULTS["contrast"]()
    page = opened(result.to_html(), address="#columns=10")
    table = np.array(cells(page, every=False))
    assert table.shape == (len(result.rows), 12)
    relative(table[:, :-1].sum(1), table[:, -1], 1e-5)
    page.get_by_label("columns of the table").select_option("all tokens")
    assert np.array(cells(page)).shape == (len(result.rows), len(result.tokens) + 1)
    assert f"columns={len(result.tokens)}" in page.url


def test_a_click_and_the_keyboard_open_a_cell_and_the_address_keeps_it(opened):
    page = opened(RESULTS["explanation"]().to_html())
    page.locator(".grid td").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert "layer 0, token 2" in page.locator(".cell h2").inner_text()
    assert "row=1&token=2" in page.url
    page.locator('td[data-row="2"][data-token="3"]').click()
    assert "layer 1, token 3" in page.locator(".cell h2").inner_text()
    page.get_by_label("collapse").check()
    assert "colouring=1" in page.url
    page.reload()
    page.wait_for_selector("h1")
    assert "layer 1, token 3" in page.locator(".cell h2").inner_text()
    assert page.get_by_label("collapse").is_checked()


@pytest.mark.parametrize("name", ["explanation", "contrast", "graph", "intervention"])
def test_hostile_tokens_are_only_text(opened, name):
    result = RESULTS[name]()
    told = result.explanation if name == "graph" else result
    tokens = (*HOSTILE, *told.tokens[len(HOSTILE) :])
    changed = dataclasses.replace(told, tokens=tokens, target=TargetDescription(f"logit of {HOSTILE[0]!r}", "Logit"))
    if name == "graph":
        neurons = tuple(each._replace(raised=((HOSTILE[0], 1.0), (HOSTILE[5], 0.5))) for each in result.neurons)
        groups = tuple(group._replace(name=HOSTILE[1]) for group in result.groups)
        changed = dataclasses.replace(result, explanation=changed, neurons=neurons, groups=groups)
    page = opened(changed.to_html(), viewport=PHONE, address="#row=1&token=1")
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert page.locator(".token").first.inner_text() == HOSTILE[0]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_cells_neurons_have_their_texts_which_are_only_text(opened, scheme):
    result = RESULTS["explanation"]()
    texts = [Example(text, text, text, 1.0) for text in HOSTILE]
    hostile = Examples("", "", 1, {layer: [texts] * 768 for layer in range(6)})
    for examples in (hostile, duat.survey.examples()):
        page = opened(
            result.to_html(examples=examples),
            address="#row=6&token=11",
            color_scheme=scheme,
            viewport=PHONE,
            bypass_csp=True,
        )
        rows = page.locator(".examples tbody tr")
        units = [int(unit) for unit in rows.locator("th").all_inner_texts()]
        assert units == [int(unit) for unit, *_ in page_data(result.view())["rows"][6]["units"][0]["top"][11]]
        for row, unit in zip(rows.all(), units, strict=True):
            shown = [each.replace("·", " ") for each in row.locator("mark").all_text_contents()]
            assert shown == [each.token.replace("\n", "⏎") for each in examples.find_texts(5, unit)]
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        require_accessible(page)
    keep_screenshot(page, f"examples-{scheme}")


@pytest.mark.parametrize(
    "address", ["#row=99&token=-7&columns=x&colouring=9", "#columns=0", "#" + "a" * 5000, "#row=0&token=999"]
)
def test_a_wrong_address_opens_the_page(opened, address):
    result = RESULTS["explanation"]()
    page = opened(result.to_html(), address=address)
    assert len(cells(page)[0]) == len(result.tokens) + 1


def test_a_damaged_or_newer_file_says_so(opened):
    html = RESULTS["contrast"]().to_html()
    kept = re.search(r'id="numbers">"([^"]*)"', html)[1]
    assert "damaged" in opened(html.replace(kept, kept[:200])).locator("main").inner_text()
    newer = base64.b64encode(gzip.compress(json.dumps(content_of(html) | {"format": 99}).encode())).decode()
    assert "format 99" in opened(html.replace(kept, newer)).locator("main").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["explanation", "contrast", "graph", "intervention"])
def test_a_page_has_no_violations_of_accessibility(opened, name, scheme):
    page = opened(RESULTS[name]().to_html(), color_scheme=scheme, bypass_csp=True, folded=True)
    keep_screenshot(page, f"{name}, {scheme}")
    require_accessible(page)
    page = opened(RESULTS[name]().to_html(), address="#row=1&token=7&neuron=1", color_scheme=scheme, bypass_csp=True)
    keep_screenshot(page, f"{name}, {scheme}, unfolded")
    require_accessible(page)


@pytest.mark.parametrize("name", RESULTS)
def test_a_phone_shows_everything_without_scrolling_sideways(opened, name):
    for scheme in ("light", "dark"):
        page = opened(RESULTS[name]().to_html(), viewport=PHONE, address="#row=1&token=1", color_scheme=scheme)
        keep_screenshot(page, f"{name}, phone, {scheme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("name", ["explanation", "contrast"])
def test_a_notebook_shows_the_page_in_a_frame(opened, name):
    shown = f"<!doctype html><meta charset=utf-8><h1>A notebook</h1>{RESULTS[name]()._repr_html_()}"
    page = opened(shown)
    frame = page.frame_locator("iframe")
    frame.locator("summary", has_text="All numbers").click()
    frame.locator('td[data-row="1"][data-token="2"]').click()
    assert "layer 0, token 2" in frame.locator(".cell h2").inner_text()
    assert page.locator("details").count() == 1


def test_the_same_numbers_give_the_same_file():
    result = RESULTS["explanation"]()
    assert result.to_html() == result.to_html()


def test_a_page_refuses_scripts_that_are_not_its_own(opened):
    html = RESULTS["explanation"]().to_html()
    page = opened(html)
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert policy.startswith("default-src 'none'; ") and "; script-src 'sha256-" in policy
    assert "unsafe" not in policy


def test_a_square_opens_what_it_is_the_sum_of(opened):
    graph = RESULTS["graph"]()
    page = opened(graph.to_html(), address="#row=2&token=9")
    (into, out) = page.locator(".cell:has(h3:has-text('It is the sum of')) .parts").all()
    for table in (into, out):
        *parts, total = [
            number(title)
            for title in table.locator("tr:not(thead tr) td:nth-of-type(1)").evaluate_all("l => l.map(td => td.title)")
        ]
        near(sum(parts), graph.streams[2, 9], 1e-4)
        near(total, graph.streams[2, 9], 1e-6)
    heads = into.locator("tbody tr").filter(has_text="moved from token 9 ").locator("td").all()
    moves = list(graph.moves.values())[1]
    (edge,) = np.flatnonzero((moves.sources == 9) & (moves.tokens == 9))
    near([number(td.get_attribute("title")) for td in heads[1:]], moves.parts[edge], 1e-6)


def test_a_square_of_the_picture_is_chosen_and_undone(opened):
    page = opened(RESULTS["graph"]().to_html())
    page.locator("svg rect").nth(15).click()
    assert "token" in page.locator(".cell h2").last.inner_text()
    page.get_by_label("number of arrows").fill("100")
    assert "arrows=100" in page.url
    for _ in range(2):
        page.get_by_role("button", name="Undo").click()
    assert "arrows=40" in page.url and "token=-1" in page.url
    assert page.get_by_role("button", name="Undo").is_disabled()


@pytest.mark.parametrize(("kind", "first"), [("SVG", b"<svg"), ("PNG", b"\x89PNG")])
@pytest.mark.parametrize("name", ["graph", "contrast"])
def test_a_picture_is_kept_as_a_file(opened, name, kind, first):
    page = opened(RESULTS[name]().to_html())
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Save as {kind}").click()
    content = Path(download.value.path()).read_bytes()
    assert content.startswith(first) and len(content) > 2000


def test_a_score_against_the_first_token_is_a_difference(opened):
    graph = RESULTS["graph"]()
    score = next(each for each in graph.scores if 0 not in (each.query, each.key))
    place = {name: getattr(score, name) for name in ("layer", "head", "query", "key")}
    model, tokenizer = embedded()
    first = duat.explain_attention(model, TEXT, **place, contrast=0, tokenizer=tokenizer)
    page = opened(dataclasses.replace(graph, scores=(first,)).to_html())
    page.get_by_role("button", name=f"layer {score.layer}, head {score.head}, from token").click()
    assert "The difference of the two scores is" in page.locator("section.cell", has=page.locator("h4")).inner_text()


def test_a_group_is_kept_with_the_page(opened):
    graph = RESULTS["graph"]()
    page = opened(graph.to_html())
    for place in (0, 3):
        page.locator(".units input").nth(place).check()
    page.get_by_label("name of the group").fill("</script> mine")
    page.get_by_role("button", name="group the marked ones").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save this page with its groups").click()
    kept = opened(Path(download.value.path()).read_text(encoding="utf-8"))
    row = kept.get_by_role("region", name="groups").locator("tr").filter(has_text="</script> mine")
    assert "not run again" in row.inner_text() and "--edit 'neuron 5:371@11 set 0'" in row.inner_text()
    predicted = -sum(graph.neurons[place].neuron.contribution for place in (0, 3))
    near(number(row.locator("td").nth(1).get_attribute("title")), predicted, 1e-6)


@pytest.mark.parametrize(("tokens", "most"), [(64, 1.5e6), (512, 12e6)])
def test_a_page_of_thirty_layers_is_small(opened, tokens, most):
    real, random = RESULTS["SmolLM2"](), np.random.default_rng(0)

    def draw(*shape):
        return random.standard_normal(shape).astype(np.float32)

    coefficients = {key: draw(tokens, part.shape[-1]) for key, part in real.coefficients.items()}
    result = dataclasses.replace(
        real,
        tokens=tuple(f" word{i}" for i in range(tokens)),
        embedding=draw(tokens),
        collapse=draw(tokens),
        coefficients=type(real.coefficients)(coefficients),
        activations=type(real.coefficients)({key: draw(*part.shape) for key, part in coefficients.items()}),
    )
    assert len(coefficients) == 30
    html = result.to_html()
    assert len(html.encode()) <= most
    page = opened(html)
    assert page.locator(".grid tbody tr").count() == 32


@pytest.mark.parametrize("kind", MAKERS)
def test_every_results_page_has_its_value_and_its_tables(opened, kind):
    view = result_of(kind).view()
    page = opened(result_of(kind).to_html())
    assert view.target in page.locator(".number").inner_text()
    shown_value = page.locator(".number strong").get_attribute("title")
    near(number(shown_value), view.value, 1e-6 * abs(view.value))
    shown = [] if view.graph else [table.title for table in view.tables if table.title]
    assert [title for title in page.locator("h2").all_inner_texts() if title in shown] == shown


HEADLINES = {
    "explanation": "The logit of",
    "contrast": "Less “ None” because token 7 is",
    "graph": "moves most",
    "intervention": "goes from",
    "MiniLM": "The cosine similarity",
    "contrast of MiniLM": "is higher: ",
}


@pytest.mark.parametrize("name", HEADLINES)
def test_a_page_begins_with_what_was_found_and_ends_with_how_it_was_made(opened, name):
    result = RESULTS[name]()
    page = opened(result.to_html(provenance={"model": HOSTILE[1]}), folded=True)
    view = result.view()
    assert HEADLINES[name] in view.headline
    tokens = [each.strip() for each in re.findall("“([^”]*)”", view.headline)]
    assert page.locator("h1 .quoted").all_inner_texts() == tokens
    made = page.locator("footer").inner_text()
    assert HOSTILE[1] in made and re.search(r"\d{4}-\d\d-\d\d", made) and "duat-jax" in made
    assert page.locator("details[open]").count() == 0


def test_arrows_of_a_contrast_are_its_moves(opened):
    result = RESULTS["contrast"]()
    page = opened(result.to_html(), address="#arrows=400")
    (largest,) = result.top_moves(1)
    thickest = page.locator("svg path[stroke-width='7']")
    thickest.dispatch_event("pointerenter")
    moved = largest.source, largest.token
    assert thickest.count() == 1 and largest.part == max(
        (part for each in result.moves.values() for part in each.parts.ravel().tolist()), key=abs
    )
    assert page.locator("svg path[fill='none']").count() == min(
        400, sum((m.parts != 0).sum() for m in result.moves.values())
    )
    assert moved[0] <= moved[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["an image that stands in the text", "a sound"])
def test_patches_lie_over_the_image_and_open_their_cells(opened, kind, scheme):
    explanation, _ = random_results(kind)
    page = opened(explanation.to_html(), color_scheme=scheme)
    grids = page.locator(".seen")
    assert grids.count() == 1 + (explanation.image.slots is not None)
    for grid, tokens in zip(grids.all(), (explanation.image.patches, explanation.image.in_text)):
        sides = [grid.locator(".token").nth(place).bounding_box() for place in (0, -1)]
        assert grid.locator(".token").count() == 6 and sides[0]["width"] > 20 and sides[0]["height"] > 20
        together = grid.locator("xpath=following-sibling::p").inner_text()
        near(float(re.search(r"together (\S+),", together)[1].replace("−", "-")), part_sum(explanation, tokens), 1e-4)
    grids.first.locator(".token").nth(1).click()
    place = explanation.image.patch_of(explanation.image.before + 1)
    assert place in page.locator(".cell h2").inner_text()
    keep_screenshot(page, f"{kind.replace(' ', '-')}-{scheme}")


def part_sum(explanation, tokens):
    """Return the sum of the direct parts of tokens."""
    return explanation.view().colourings[0].parts[tokens].sum()
