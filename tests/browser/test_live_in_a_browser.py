"""The live page in a real browser: what is asked is answered, switched off, stopped, kept, and shown as text alone."""

import json
import re
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from playwright.sync_api import expect

import duat_jax as duat
from duat_jax.display.page.data import page_data
from duat_jax.display.page.document import module_of_page, style_of_page
from duat_jax.live.about import about
from tests import live_server
from tests.browser.conftest import PHONE, keep_screenshot
from tests.browser.test_pages_in_a_browser import (
    AXE,
    HOSTILE,
    OTHER,
    TEXT,
    cells,
    embedded,
    encoder,
    language_model,
    number,
)
from tests.helpers import near
from tests.live_server import KEY, serving

ANSWERED = 120_000
"""The milliseconds that an answer may take, compilation included."""


@pytest.fixture(scope="module")
def port():
    with serving(*embedded(), text=TEXT, longest=64) as found:
        yield found


@pytest.fixture
def live(chromium, port):
    """Return a function that opens the live page, and expects no request elsewhere and no message."""
    said, contexts = [], []

    def open_live(address="", *, at=None, viewport=None, **options):
        origin = f"http://127.0.0.1:{at or port}"
        contexts.append(chromium.new_context(viewport=viewport or {"width": 1280, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request", lambda request: request.url.startswith((origin, "blob:", "data:")) or said.append(request.url)
        )
        page.goto(f"{origin}/?key={KEY}{address}")
        page.wait_for_selector("textarea")
        return page

    yield open_live
    for context in contexts:
        context.close()
    assert said == []


def answered(page, kind):
    page.locator(f'.status[data-answered~="{kind}"]').wait_for(timeout=ANSWERED)


def contrasted(page, other=OTHER):
    """Give another text, and wait for the contrast."""
    page.get_by_role("textbox", name="Other text").fill(other)
    page.get_by_role("button", name="Ask").click()
    answered(page, "contrast")


def unfold(page):
    """Open all that an answer shows on demand."""
    page.evaluate("document.querySelectorAll('.tabs + div details').forEach((each) => { each.open = true; })")


def table_of(page):
    """Return the numbers of the table of an answer."""
    unfold(page)
    return cells(page)


def shows(page, kind):
    """Return whether a page shows an answer of a kind."""
    return page.get_by_label(kind, exact=True).is_checked()


def test_a_text_is_explained_as_the_function_explains_it(live):
    page = live()
    answered(page, "explain")
    model, tokenizer = embedded()
    expected = duat.explain(model, TEXT, tokenizer=tokenizer)
    table = np.array(table_of(page))[:-1, :-1]
    near(table, np.concatenate([expected.embedding[None], expected.term_tokens]), 1e-5)
    assert page.locator(".verdict").inner_text() == "holds"


def test_a_second_text_shows_the_contrast_and_gives_a_third_colouring(live):
    page = live()
    answered(page, "explain")
    contrasted(page)
    assert shows(page, "contrast") and "run again" in page.locator("main").inner_text()
    expected = duat.contrast(*embedded()[:1], TEXT, OTHER, tokenizer=embedded()[1])
    near(np.array(table_of(page))[:, :-1], expected.flow, 1e-5)
    assert "other=" in page.url and "text=" in page.url and "view=contrast" in page.url
    unfold(page)
    page.locator(".units button").first.click()
    page.get_by_role("button", name="as on the other text").first.click()
    answered(page, "intervene")
    assert re.fullmatch(r"head \d:\d@\d+ set reference", page.locator(".chips code").inner_text())
    assert "contrast" in page.get_by_role("region", name="What the edits did").locator("thead").inner_text()
    page.reload()
    answered(page, "intervene")
    assert shows(page, "contrast")
    page.get_by_label("explanation", exact=True).check()
    assert page.get_by_label("secant").count() == 1
    page.get_by_label("contrast", exact=True).check()
    page.get_by_role("button", name="take back head").click()
    page.get_by_role("textbox", name="Other text").fill("")
    page.get_by_role("button", name="Ask").click()
    answered(page, "explain")
    assert shows(page, "explanation") and page.get_by_label("contrast", exact=True).count() == 0


def test_what_the_model_says_next_is_chosen_by_a_click(live):
    page = live()
    answered(page, "explain")
    says, rather = page.locator(".next").first, page.get_by_role("button", name="rather than")
    assert says.locator("[aria-pressed=true]").count() == 1  # the most probable one is explained
    second = says.locator("li").nth(1).get_by_role("button").first
    label = second.locator("bdi").inner_text().replace("·", " ")
    second.click()
    answered(page, "explain")
    model, tokenizer = embedded()
    expected = duat.explain(model, TEXT, label, tokenizer=tokenizer)
    near(np.array(table_of(page))[:-1, :-1], np.concatenate([expected.embedding[None], expected.term_tokens]), 1e-5)
    rather.first.press("Enter")
    answered(page, "explain")
    assert "contrast=" in page.url and "minus that of" in page.locator("main").inner_text()
    assert rather.first.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="take back: rather than").click()
    page.get_by_role("button", name="take back: explained").click()
    assert "contrast=" not in page.url and "target=" not in page.url


def test_a_text_is_cut_into_tokens_while_it_is_typed(live):
    page = live()
    answered(page, "explain")
    tokenizer = embedded()[1]
    strips = page.locator(".cut")
    page.get_by_label("Text", exact=True).press_sequentially(" x")
    page.locator(".cut em", has_text=f"{len(tokenizer.encode(f'{TEXT} x').ids)} tokens").wait_for()
    page.get_by_label("Text", exact=True).fill("for i in range(10")
    page.get_by_role("textbox", name="Other text").fill("for name in range(10, 2")
    page.locator(".lengths", has_text="6 and 8 tokens").wait_for()
    assert strips.first.locator("span").all_inner_texts() == ["for", "·i", "·in", "·range", "(", "10"]
    page.get_by_role("button", name="Pair them").click()
    answered(page, "contrast")
    assert "alignment=0%3A0%2C1%3A3" in page.url and page.locator(".lengths").inner_text() == ""
    page.get_by_role("button", name="Try an example").wait_for(state="hidden")
    page.get_by_role("textbox", name="Other text").fill("for j in range(10")
    page.locator(".differs").first.wait_for()
    assert page.locator(".differs").all_inner_texts() == ["·i", "·j"]


def test_what_is_switched_off_is_predicted_and_run_again_and_taken_back(live):
    page = live("#row=5&token=11")
    answered(page, "explain")
    page.get_by_role("button", name="switch neuron").first.click()
    answered(page, "intervene")
    written = page.locator(".chips code").inner_text()
    layer, unit, token = map(int, re.fullmatch(r"neuron (\d+):(\d+)@(\d+) set 0", written).groups())
    model, tokenizer = embedded()
    expected = duat.intervene(model, TEXT, duat.edits.Neurons(layer, unit, tokens=token).set(0), tokenizer=tokenizer)
    row = page.get_by_role("region", name="What the edits did").locator("tbody tr td")
    shown = [number(title) for title in row.evaluate_all("l => l.map(td => td.title)")]
    effect = expected.effects[0]
    near(shown, [effect.frozen.sum(), effect.secant.sum(), effect.alone], 1e-5)
    assert "change=neuron" in page.url
    assert page.get_by_role("button", name="switch neuron").first.get_attribute("aria-pressed") == "true"
    # The cell is still open: a second edit beside the first one.
    page.get_by_role("button", name="switch neuron").nth(1).click()
    page.locator(".chips li").nth(1).wait_for()
    answered(page, "intervene")
    page.reload()
    page.locator(".chips li").nth(1).wait_for(timeout=ANSWERED)
    answered(page, "intervene")
    page.get_by_role("button", name="take back").first.click()
    assert page.locator(".chips li").count() == 1
    page.get_by_role("button", name="switch neuron").nth(1).click()  # the same button takes it back
    assert page.locator(".chips li").count() == 0


@pytest.mark.parametrize("viewport", [None, PHONE])
def test_the_answer_to_an_edit_stands_where_its_button_was_pressed_and_has_the_focus(live, viewport):
    page = live("#row=5&token=11", viewport=viewport)
    answered(page, "explain")
    off = page.get_by_role("button", name="switch neuron").nth(2)
    off.press("Enter")
    outcome = page.locator(".outcome", has_text="predicted")
    expect(outcome).to_be_in_viewport(timeout=ANSWERED)
    expect(off).to_be_focused()
    expect(off).to_have_accessible_description(outcome.inner_text())
    keep_screenshot(page, f"live, an edit{', phone' if viewport else ''}")
    off.press("Enter")  # taken back
    expect(page.locator(".chips li")).to_have_count(0)
    expect(off).to_be_focused()
    # What is typed is answered above the table of all edits.
    page.get_by_text("More:").click()
    page.get_by_text("Write an edit", exact=True).click()
    page.get_by_label("An edit", exact=True).fill("head 5:3 set 0")
    page.get_by_role("button", name="Add the edit").click()
    expect(page.locator(".changes .outcome", has_text="predicted")).to_be_in_viewport(timeout=ANSWERED)
    expect(page.locator(".changes .said tbody th")).to_have_text(["with the edits", "as it is"])


def test_what_the_model_says_next_stands_once(live):
    page = live()
    answered(page, "explain")
    contrasted(page)
    assert page.locator(".next").count() == 2 and page.locator(".said .chip").count() == 0
    assert page.locator(".said tbody tr").count() == 2


def test_a_token_an_edge_and_a_direction(live):
    page = live()
    answered(page, "explain")
    page.locator(".token").nth(3).click()
    page.get_by_role("button", name="switch token 3 off").click()
    answered(page, "intervene")
    page.get_by_text("More:").click()
    page.get_by_text("Steer along").click()
    page.get_by_label("Towards the text").fill('import "os"')
    page.get_by_label("Away from the text").fill("class Box:")
    page.get_by_role("button", name="Add the direction").click()
    page.locator(".chips li").nth(1).wait_for()
    answered(page, "intervene")
    page.get_by_label("graph", exact=True).check()
    answered(page, "graph")
    unfold(page)
    page.locator(".grid td").nth(20).click()
    page.locator("svg rect").last.click()
    page.get_by_role("button", name=re.compile("^head 0, moved from")).first.click()
    page.get_by_role("button", name="why the head attends there").click()
    answered(page, "score")
    assert page.locator("h4").count() == 1
    page.get_by_role("button", name="switch this edge off").click()
    page.locator(".chips li").nth(2).wait_for()
    answered(page, "intervene")
    chips = page.locator(".chips code").all_inner_texts()
    assert chips[0] == "token 3 set mean" and chips[1] == 'stream 3 steer 1 "import \\"os\\"" "class Box:"'
    assert re.fullmatch(r"edge \d:0 \d+>\d+ set 0", chips[2])


def test_a_neuron_opens_and_a_group_is_run_again(live):
    page = live("#row=5&token=11")
    answered(page, "explain")
    page.get_by_role("button", name="open neuron").first.click()
    answered(page, "neuron")
    opened = page.locator("section.cell", has_text="its pre-activation")
    assert opened.count() == 1
    opened.get_by_role("button", name="switch off").click()
    answered(page, "intervene")
    assert opened.get_by_role("button", name="switch off").get_attribute("aria-pressed") == "true"
    unfold(page)
    page.locator(".grid td").first.click()
    assert opened.count() == 0
    page.get_by_label("graph", exact=True).check()
    answered(page, "graph")
    unfold(page)
    for place in (0, 1):
        page.locator(".units input").nth(place).check()
    page.get_by_role("button", name="group the marked ones").click()
    page.get_by_role("button", name="run the model again").click()
    page.get_by_role("region", name="groups").locator("tr", has_text="add up").wait_for(timeout=ANSWERED)


def test_all_answers_are_kept_as_one_offline_page(live, opened):
    page = live()
    answered(page, "explain")
    contrasted(page)
    answered(page, "explain")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as an offline page").click()
    kept = opened(Path(download.value.path()).read_text(encoding="utf-8"))
    assert kept.get_by_label("contrast", exact=True).is_checked()
    for said in ("duat-jax", TEXT, OTHER):
        assert said in kept.locator("footer").inner_text() and said in page.locator("footer").inner_text()
    kept.get_by_label("explanation", exact=True).check()
    assert "view=1" in kept.url
    kept.reload()
    assert kept.get_by_label("explanation", exact=True).is_checked()


def test_what_was_asked_before_stands_in_the_history(live):
    page = live()
    answered(page, "explain")
    page.get_by_label("Text", exact=True).fill("import os")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text("History: 2").click(timeout=ANSWERED)
    page.get_by_role("button", name="default=None").click()
    assert "return" in page.locator(".text").inner_text()
    assert page.get_by_label("Text", exact=True).input_value() == TEXT


def test_a_question_is_stopped(live):
    page = live()
    answered(page, "explain")
    page.route("**/ask", lambda route: None)  # no answer ever
    page.get_by_label("Text", exact=True).fill("import re")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("button", name="Stop").click()
    page.locator(".status", has_text="stopped").wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("Text", "x " * 100, "at most 64"),
        ("Text", "", "empty"),
        ("Token that is explained", "a b c", "not one token"),
        ("Other text:", "a b", "alignment"),
        ("Minus this token", "]" * 9, "not one token"),
    ],
)
def test_a_mistake_is_a_sentence(live, field, value, says):
    page = live()
    answered(page, "explain")
    page.get_by_text("More:").click()
    page.get_by_label(field, exact=field == "Text").fill(value)
    page.get_by_role("button", name="Ask").click()
    page.locator(".status.problem", has_text=says).wait_for(timeout=ANSWERED)


def test_a_wrong_edit_and_a_server_that_is_gone_are_a_sentence(live):
    page = live()
    answered(page, "explain")
    page.get_by_text("More:").click()
    page.get_by_text("Write an edit", exact=True).click()
    page.get_by_label("An edit", exact=True).fill("head 99:0 set 0")
    page.get_by_role("button", name="Add the edit").click()
    page.locator(".status.problem", has_text="layer 99").wait_for()
    assert page.locator(".chips li").count() == 0
    page.route("**/ask", lambda route: route.fulfill(status=200, body=""))
    page.get_by_label("Text", exact=True).fill("import re")
    page.get_by_role("button", name="Ask").click()
    page.locator(".status.problem", has_text="is it still running").wait_for()


@pytest.mark.parametrize(
    "text", [HOSTILE[0], HOSTILE[1], "\u202eabc 🙂 é\u0301\n\tif", "</textarea><script>alert(3)</script>"]
)
def test_hostile_texts_are_only_text(live, text):
    page = live()
    answered(page, "explain")
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("textbox", name="Other text").fill(text[::-1])
    page.get_by_role("button", name="Ask").click()
    page.locator(".status", has_text=re.compile("answered|tokens")).wait_for(timeout=ANSWERED)
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_live_page_has_no_violations_of_accessibility(live, scheme):
    page = live("#row=5&token=11&change=head+5:3+set+0", color_scheme=scheme, bypass_csp=True)
    answered(page, "intervene")
    page.get_by_label("graph", exact=True).check()
    answered(page, "graph")
    keep_screenshot(page, f"live, {scheme}")
    page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(rule["id"], [node["html"][:150] for node in rule["nodes"][:3]]) for rule in found] == []


def test_a_phone_shows_it_without_scrolling_sideways(live):
    page = live("#row=5&token=11&change=head+5:3+set+0", viewport=PHONE)
    answered(page, "intervene")
    keep_screenshot(page, "live, phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_everything_is_reached_by_the_keyboard(live):
    page = live()
    answered(page, "explain")
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.press("End")
    page.keyboard.type(" x")
    page.keyboard.press("Control+Enter")
    page.get_by_text("History: 2").wait_for(timeout=ANSWERED)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.slice(0, 30) || document.activeElement.name"))
    assert {"other", "Ask", "vs", "More: name a token, write an edit, steer"[:30]} <= reached
    assert any("Save as" in each for each in reached)


def test_tabs_do_not_block_each_other(live):
    first, second = live(), live()
    for page in (first, second):
        answered(page, "explain")
    first.get_by_label("graph", exact=True).check()
    second.get_by_label("Text", exact=True).fill("import sys")
    second.get_by_role("button", name="Ask").click()
    second.get_by_text("History: 2").wait_for(timeout=ANSWERED)
    answered(first, "graph")


def test_smollm2_and_minilm_answer(live):
    model, tokenizer = language_model()
    with serving(model, tokenizer, name="SmolLM2", text="The capital of France is") as at:
        page = live("#target=+Paris&row=20&token=4&change=head+20:3+set+0", at=at)
        answered(page, "intervene")
        found = duat.explain(model, "The capital of France is", " Paris", tokenizer=tokenizer)
        near(np.array(table_of(page))[:-1, :-1].sum(), found.embedding.sum() + found.term_tokens.sum(), 1e-3)
    model, tokenizer = encoder()
    with serving(model, tokenizer, name="MiniLM") as at:
        page = live(at=at)
        page.get_by_label("Text", exact=True).fill("A cat sits.")
        page.get_by_label("Compared with").fill("A dog runs.")
        page.get_by_role("button", name="Ask").click()
        answered(page, "explain")
        found = duat.explain(model, "A cat sits.", against="A dog runs.", tokenizer=tokenizer)
        near(np.array(table_of(page))[:-1, :-1], np.concatenate([found.embedding[None], found.term_tokens]), 1e-5)


WIDGET = """<!doctype html><meta charset=utf-8><h1>A notebook</h1><div id=cell></div><script type=module>
import * as page from "data:text/javascript;charset=utf-8,{module}";
const heard = [], about = {about}, style = {style}, view = {view};
page.default.render({{ el: document.getElementById("cell"), model: {{
  get: (name) => ({{ about, style }})[name],
  on: (name, call) => heard.push(call),
  off: (name, call) => heard.splice(heard.indexOf(call), 1),
  send: ({{ number, question }}) => setTimeout(() => {{
    for (const call of [...heard]) call({{ number: "another", problem: "not this one" }});
    for (const call of [...heard]) call({{ number, progress: "explaining" }});
    for (const call of [...heard]) call({{ number, view }});
  }}),
}} }});
</script>"""


def test_a_notebooks_widget_shows_what_the_kernel_answers(opened):
    model, tokenizer = embedded()
    explanation = duat.explain(model, TEXT, tokenizer=tokenizer)
    page = opened(
        WIDGET.format(
            module=quote(module_of_page()),
            about=msgspec.json.encode(about(model.config, "embedded", 64, TEXT)).decode(),
            style=json.dumps(style_of_page()),
            view=msgspec.json.encode(page_data(explanation.view())).decode().replace("</", "<\\/"),
        )
    )
    page.locator('.status[data-answered~="explain"]').wait_for()
    near(np.array(cells_of(page))[:-1, 0], [explanation.embedding[0], *explanation.term_tokens[:, 0]], 1e-5)
    # Its style stays inside: the notebook's own headline has none of it.
    assert page.locator("h1").first.evaluate("h => getComputedStyle(h).fontFamily") != "system-ui, sans-serif"


def cells_of(page):
    rows = page.locator(".grid tbody tr").all()
    return [
        [number(td.get_attribute("data-say").rpartition(": ")[2]) for td in row.locator("td").all()] for row in rows
    ]


def test_what_the_decoder_said_is_asked_too(live, monkeypatch):
    monkeypatch.setattr(live_server, "about", lambda *given: msgspec.structs.replace(about(*given), pairs=True))
    with serving(*embedded(), text=TEXT) as port:
        page = live(at=port)
        answered(page, "explain")
        page.get_by_role("textbox", name="What the decoder said").fill("else")
        page.get_by_role("button", name="Ask").click()
        page.locator(".problem").wait_for(timeout=ANSWERED)  # that it was sent: this model has no decoder
        assert "reads one text, and no pair" in page.locator(".problem").inner_text() and "pair=else" in page.url
