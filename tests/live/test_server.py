"""The server's answers are the functions' results, what it refuses is refused in a sentence, and nobody waits."""

import http.client
import json
import threading
import time
from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import msgspec
import pytest
from cases import GOLDEN
from helpers import close, near

import duat_jax as duat
from duat_jax.display.page.data import page_data
from duat_jax.live import answers, server
from duat_jax.live.about import about
from tests.live_server import KEY, ask, request, serving

TEXT = "for i in range(10"
WORDS, WORDS_TOO = "w5 w17 w3 w44 w17 w20", "w5 w17 w8 w44 w9 w20"


@cache
def embedded():
    model = duat.load()
    return model, model.tokenizer


@pytest.fixture(scope="module")
def port():
    with serving(*embedded()) as found:
        yield found


@cache
def small():
    model = duat.load(GOLDEN / "gpt2")
    return model, model.tokenizer


@pytest.fixture(scope="module")
def small_port():
    with serving(*small(), name="small") as found:
        yield found


def plain(shown):
    return json.loads(msgspec.json.encode(shown))


def page_of(result):
    """Return what a page shows of a result."""
    return plain(page_data(result.view()))


def alike(found, expected):
    """Assert that two pages show the same, numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            alike(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for pair in zip(found, expected):
            alike(*pair)
    elif isinstance(expected, float):
        near(found, expected, 1e-4)
    else:
        assert found == expected


def test_an_explanation_is_the_functions(small_port):
    model, tokenizer = small()
    progress, answer = ask(small_port, ask="explain", text=WORDS, target="w7")
    alike(answer["view"], (page_of(duat.explain(model, WORDS, "w7", tokenizer=tokenizer))))
    assert progress[:2] == ["reading the texts", "explaining"] and progress[-1] == "writing it down"


def test_a_contrast_is_the_functions_of_the_most_probable_token_too(small_port):
    model, tokenizer = small()
    for target in (None, "w7"):
        answer = ask(small_port, ask="contrast", text=WORDS, other=WORDS_TOO, target=target)[1]
        expected = duat.contrast(model, WORDS, WORDS_TOO, target, head_runs=8, tokenizer=tokenizer)
        alike(answer["view"], page_of(expected))
    aligned = ask(small_port, ask="contrast", text=WORDS, other="w5 w8 w3", target="w7", alignment="1:1")[1]["view"]
    expected = duat.contrast(model, WORDS, "w5 w8 w3", "w7", alignment=[(1, 1)], head_runs=8, tokenizer=tokenizer)
    alike(aligned, (page_of(expected)))


def test_changes_are_the_functions(small_port):
    model, tokenizer = small()
    edits = duat.edits
    changes = {
        "head 2:1@-1 set 0": edits.Heads(2, 1, tokens=-1).set(0),
        "neuron 2:7@1 scale 2": edits.Neurons(2, 7, tokens=1).scale(2),
        "edge 1:1 1>5 set 0": edits.Heads(1, 1, tokens=5).steer(edits.HeadMove(1)),
        "token 1 set mean": edits.Stream(0, tokens=1).set(edits.MeanEmbedding()),
        'stream 2 steer 0.5 "w8" "w9"': edits.Stream(2).steer(edits.SteeringVector("w8", "w9", 0.5)),
        "stream 1@1 set reference": edits.Stream(1, tokens=1).set(edits.FromInput(WORDS_TOO)),
    }
    answer = ask(small_port, ask="intervene", text=WORDS, target="w7", changes=list(changes), other=WORDS_TOO)[1]
    expected = duat.intervene(model, WORDS, list(changes.values()), "w7", tokenizer=tokenizer)
    contrast = duat.contrast(model, WORDS, WORDS_TOO, "w7", tokenizer=tokenizer)
    patch = expected.effects[-1]._replace(contrast=-float(contrast.flow[1][1]))
    expected = replace(expected, effects=(*expected.effects[:-1], patch))
    alike(answer["view"], (page_of(expected)))
    (effects,) = answer["view"]["tables"]
    place = effects["columns"].index("contrast")
    assert [row[place] is not None for row in effects["rows"]] == [False] * 5 + [True]


def test_a_graph_a_neuron_and_a_score_are_the_functions(small_port):
    model, tokenizer = small()
    graph = duat.graph(model, WORDS, "w7", tokenizer=tokenizer)
    found = ask(small_port, ask="graph", text=WORDS, target="w7")[1]["view"]
    scores = found["graph"].pop("scores")
    assert scores == []  # the page asks for them one by one
    expected = page_of(graph)
    del expected["graph"]["scores"]
    alike(found, expected)
    neuron = graph.neurons[0].neuron
    place = {"layer": neuron.term.layer, "token": neuron.token_index, "unit": neuron.neuron}
    alike(ask(small_port, ask="neuron", text=WORDS, target="w7", **place)[1]["neuron"], found["graph"]["neurons"][0])
    known = graph.scores[0]
    place = {name: getattr(known, name) for name in ("layer", "head", "query", "key")}
    alike(ask(small_port, ask="score", text=WORDS, **place)[1]["score"], plain(known.score_view()))
    alone = ask(small_port, ask="score", text=WORDS, layer=1, head=0, query=0, key=0)[1]["score"]
    near(sum(part for _, part in alone["pairs"]), alone["value"], 1e-4)


def test_an_encoder_and_a_classifier_answer():
    model = duat.load(GOLDEN / "bert", head="hidden")
    tokenizer = model.tokenizer
    with serving(model, tokenizer, name="BERT") as port:
        answer = ask(port, ask="explain", text="w5 w17 w3", against="w9 w4 w8")[1]
        expected = duat.explain(model, "w5 w17 w3", against="w9 w4 w8", tokenizer=tokenizer)
        alike(answer["view"], (page_of(expected)))
        changes = ["head 1:1 set 0"]
        changed = ask(port, ask="intervene", text="w5 w17 w3", against="w9 w4 w8", changes=changes)[1]["view"]
        close(
            changed["value"],
            duat.intervene(
                model, "w5 w17 w3", duat.edits.Heads(1, 1).set(0), against="w9 w4 w8", tokenizer=tokenizer
            ).difference,
            layers=9,
        )
        assert "against another text" in ask(port, ask="explain", text="w5 w17 w3")[1]["problem"]


def test_texts_are_cut_into_tokens(small_port):
    assert ask(small_port, ask="tokens", texts=["w5 w17", ""])[1] == {"tokens": [["w5", "w17"], []]}


def test_a_token_without_its_space_is_noted(port):
    notes = ask(port, ask="explain", text=TEXT, target="default")[1]["view"]["notes"]
    assert any("' default' is another token" in note for note in notes)


QUESTIONS = {
    "no JSON": (b"{", "no question"),
    "nothing": (b"", "no question"),
    "another kind": (b'{"ask": "open", "text": "/etc/passwd"}', "no question"),
    "another field": (b'{"ask": "explain", "text": "a", "path": "/etc/passwd"}', "no question"),
    "a wrong type": (b'{"ask": "explain", "text": 3}', "no question"),
    "deeply nested": (b"[" * 20_000, "no question"),
    "no UTF-8": (b'{"ask": "explain", "text": "\xff"}', "no question"),
    "a lone surrogate": (b'{"ask": "explain", "text": "\\ud800"}', ""),
    "one text in the place of several": (b'{"ask": "tokens", "texts": "a"}', "no question"),
    "an empty text": (b'{"ask": "explain", "text": ""}', "empty"),
    "a long text": (json.dumps({"ask": "explain", "text": "x " * 100}).encode(), "at most 64"),
    "a long direction": (
        json.dumps({"ask": "intervene", "text": "a", "changes": [f'stream 1 steer 1 "{"x " * 100}" "a"']}).encode(),
        "at most 64",
    ),
    "no token": (b'{"ask": "explain", "text": "a", "target": "a b c"}', "not one token"),
    "no change": (b'{"ask": "intervene", "text": "a", "changes": ["head"]}', "is no edit"),
    "no changes": (b'{"ask": "intervene", "text": "a", "changes": []}', "at least one"),
    "a place that isn't there": (b'{"ask": "intervene", "text": "a", "changes": ["head 99:0 set 0"]}', "layer 99"),
    "a neuron that isn't there": (b'{"ask": "neuron", "text": "a", "layer": 9, "token": 0, "unit": 0}', "no neuron"),
    "a number that is none": (b'{"ask": "neuron", "text": "a", "layer": 1, "token": 0, "unit": -1}', "no neuron"),
    "a huge layer": (
        b'{"ask": "neuron", "text": "a", "layer": 1000000000000000000000000000000, "token": 0, "unit": 0}',
        "no neuron",
    ),
    "a large layer": (b'{"ask": "neuron", "text": "a", "layer": 1000000000000, "token": 0, "unit": 0}', "no neuron"),
    "a layer before the first": (
        b'{"ask": "score", "text": "a b", "layer": -1, "head": 0, "query": 1, "key": 0}',
        "layer -1",
    ),
    "an output that isn't there": (b'{"ask": "explain", "text": "a", "output": 1000000000000}', "1000000000000"),
    "an output before the first": (b'{"ask": "explain", "text": "a", "output": -1}', "-1"),
    "a change of many digits": (
        json.dumps({"ask": "intervene", "text": "a", "changes": [f"head {'9' * 5000}:0 set 0"]}).encode(),
        "is no edit",
    ),
    "a change to a huge number": (
        json.dumps({"ask": "intervene", "text": "a", "changes": [f"head 0:0 set {'9' * 5000}"]}).encode(),
        "isn't finite",
    ),
    "a score that isn't there": (
        b'{"ask": "score", "text": "a b", "layer": 0, "head": 9, "query": 1, "key": 0}',
        "head 9",
    ),
    "other lengths": (b'{"ask": "contrast", "text": "a b c", "other": "a"}', "alignment"),
    "no alignment": (b'{"ask": "contrast", "text": "a b", "other": "a", "alignment": "x"}', "must be pairs"),
    "a value on no other text": (
        b'{"ask": "intervene", "text": "a", "changes": ["head 1:0 set reference"]}',
        "give one",
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_cannot_be_answered_is_a_sentence(port, name):
    body, says = QUESTIONS[name]
    status, content = request(port, body=body)
    answer = json.loads(content.splitlines()[-1])
    assert status == 200 and says in answer["problem"] and len(answer["problem"]) < 1000
    assert "Traceback" not in answer["problem"]


def test_an_error_of_our_own_is_a_sentence_and_the_next_question_is_answered(port, monkeypatch, capsys):
    monkeypatch.setattr(answers, "explain", lambda *given, **more: 1 / 0)
    assert "ZeroDivisionError" in ask(port, ask="explain", text=TEXT)[1]["problem"]
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.undo()
    assert "view" in ask(port, ask="explain", text=TEXT)[1]


@pytest.mark.parametrize("path", ["/?key=wrong", "/", f"/?key={'x' * 5000}", "/?key=%ff", "/?KEY=a-key-of-tests"])
def test_a_page_needs_the_key(port, path):
    status, content = request(port, "GET", path)
    assert status == 403 and b"the key is missing or wrong" in content


@pytest.mark.parametrize("key", ["", "wrong", f"{KEY} ", "a-kéy"])
def test_a_question_needs_the_key(port, key):
    status, content = request(port, body=b'{"ask": "page"}', headers={"duat-key": key.encode("latin-1")})
    assert status == (200 if key.strip() == KEY else 403)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/page.js", "/ask/", "/static/x", "//", "/%00"],
)
def test_no_path_leads_to_a_file(port, path):
    for method in ("GET", "POST"):
        status, content = request(port, method, f"{path}?key=a-key-of-tests")
        assert status in (404, 405, 307) and b"root:" not in content


def test_another_method_another_host_and_a_large_question_are_refused(port):
    assert request(port, "GET", "/ask")[0] == 405 and request(port, "DELETE", "/?key=a-key-of-tests")[0] == 405
    for host in ("evil.example", "127.0.0.1.evil.example", "not a name", ""):
        status, content = request(port, body=b'{"ask": "page"}', headers={"host": host})
        assert status in (400, 403), content
    assert request(port, body=b'{"ask": "page"}', headers={"host": f"127.0.0.1:{port}"})[0] == 200
    status, content = request(port, body=b" " * (server.LARGEST + 1))
    assert status == 413 and b"at most 65536 bytes" in content


def test_the_page_is_one_document_that_may_ask_its_server_alone(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/?key=a-key-of-tests")
    response = connection.getresponse()
    page = response.read().decode()
    assert response.status == 200 and "connect-src 'self'" in page and "default-src 'none'" in page
    assert response.headers["cache-control"] == "no-store" and response.headers["referrer-policy"] == "no-referrer"
    assert KEY not in page
    connection.close()


class Held:
    """Answers that wait until they are let go."""

    def __init__(self, monkeypatch):
        self.begun, self.go, self.ended = threading.Event(), threading.Event(), []
        right = answers.answer

        def answer(loaded, question, work):
            if getattr(question, "text", "") != "held":
                return right(loaded, question, work)
            try:
                self.begun.set()
                while not self.go.wait(0.01):
                    work.step("waiting")
                return answers.LiveAnswer(problem="let go")
            finally:
                self.ended.append(question)

        monkeypatch.setattr(answers, "answer", answer)


def begin(port, text="held"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/ask", json.dumps({"ask": "explain", "text": text}), {"duat-key": KEY})
    return connection


def wait_for(condition):
    ends = time.monotonic() + 20
    while not condition() and time.monotonic() < ends:
        time.sleep(0.01)
    assert condition()


def test_one_question_does_not_wait_for_another(port, monkeypatch):
    held = Held(monkeypatch)
    waiting = begin(port)
    assert held.begun.wait(20)
    assert "view" in ask(port, ask="explain", text=TEXT)[1]
    held.go.set()
    assert json.loads(waiting.getresponse().read().splitlines()[-1]) == {"problem": "let go"}


def test_work_ends_when_nobody_listens_any_more(port, monkeypatch):
    held = Held(monkeypatch)
    waiting = begin(port)
    assert held.begun.wait(20) and not held.ended
    waiting.sock.close()
    wait_for(lambda: len(held.ended) == 1)
    assert "view" in ask(port, ask="explain", text=TEXT)[1]


def test_too_many_questions_at_a_time_are_refused_and_later_ones_answered(port, monkeypatch):
    held = Held(monkeypatch)
    several = [begin(port) for _ in range(server.AT_ONCE + server.WAITING)]
    assert held.begun.wait(20)
    wait_for(lambda: "too many questions" in ask(port, ask="page")[1].get("problem", ""))
    held.go.set()
    for each in several:
        each.getresponse().read()
    wait_for(lambda: "page" in ask(port, ask="page")[1])


def test_the_end_of_the_server_ends_work(monkeypatch):
    held = Held(monkeypatch)
    with serving(*embedded()) as port:
        begin(port)
        assert held.begun.wait(20)
        began = time.monotonic()
    wait_for(lambda: len(held.ended) == 1)
    assert time.monotonic() - began < 10


def test_a_second_text_of_a_length_compiles_nothing(small_port):
    changes = ["head 1:0 set 0", "head 2:1@1 set 0"]
    for text, change in zip((WORDS, "w4 w6 w3 w7 w9 w10"), changes):
        told = ask(small_port, ask="explain", text=text)[0]
        told += ask(small_port, ask="contrast", text=text, other=text.replace("w3", "w8"))[0]
        told += ask(small_port, ask="intervene", text=text, changes=[change])[0]
    assert not [each for each in told if "compiling" in each]


def test_the_question_that_a_page_begins_with_compiles_nothing():
    model = duat.load(GOLDEN / "gpt2", dtype=jnp.float64)  # no other test has compiled this one
    first = about(model.config, "small", 64, WORDS)
    answers.answer_first(answers.Loaded(model, model.tokenizer, 64), first)
    with serving(model, model.tokenizer, name="small") as port:
        told, answer = ask(port, ask="explain", text=first.text)
    assert "view" in answer and not [each for each in told if "compiling" in each]
