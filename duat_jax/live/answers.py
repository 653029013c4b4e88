"""Answers to the questions of a live page: each is what a page shows of a result."""

import traceback
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from duat_jax.display.examples import Examples
from duat_jax.display.page.data import page_data
from duat_jax.display.page.document import document
from duat_jax.display.page.graph_view import NeuronView, ScoreView
from duat_jax.display.result import Displayed
from duat_jax.errors import DuatError, InvalidInput
from duat_jax.inputs.baselines import read_pairs
from duat_jax.inputs.labels import readable
from duat_jax.inputs.leading_space import space_notes
from duat_jax.inputs.model_inputs import encode_pair
from duat_jax.inputs.question import ask_once
from duat_jax.interpret.attention.compute import explain_attention
from duat_jax.interpret.contrast.compute import contrast
from duat_jax.interpret.contrast.heads import HEAD_RUNS
from duat_jax.interpret.explain.compute import answer as explain
from duat_jax.interpret.graph.compute import graph
from duat_jax.interpret.graph.neurons import read_neuron
from duat_jax.interpret.intervene.patching import from_reference, intervene_beside_contrast
from duat_jax.interpret.intervene.result import Intervention
from duat_jax.interpret.intervene.sources import SteeringVector
from duat_jax.interpret.intervene.written import parse_edits
from duat_jax.interpret.pipeline import read_target
from duat_jax.live.about import About
from duat_jax.live.questions import (
    ContrastTexts,
    CutTexts,
    EmptyPage,
    Explain,
    ExplainScore,
    FollowGraph,
    Intervene,
    OpenNeuron,
    Targeted,
    read_question,
)
from duat_jax.live.work import Stopped, Work
from duat_jax.models.encoding import encode
from duat_jax.models.transformer import Transformer
from duat_jax.models.vocabulary.token import token_label

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Loaded(NamedTuple):
    """A model that answers.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        longest: the largest number of tokens of a text.
        examples: the texts in which its neurons are strongest, if they are known.
    """

    model: Transformer
    tokenizer: "Tokenizer"
    longest: int
    examples: Examples | None = None


class LiveAnswer(msgspec.Struct, omit_defaults=True):
    """An answer, of which one field is there.

    Args:
        view: a result.
        score: an attention score.
        neuron: a neuron.
        tokens: of each text, its tokens.
        page: an offline page without numbers, as HTML.
        problem: why there is no answer.
        progress: what is being done; no answer yet.
    """

    view: dict[str, Any] | None = None
    score: ScoreView | None = None
    neuron: NeuronView | None = None
    tokens: list[list[str]] | None = None
    page: str | None = None
    problem: str | None = None
    progress: str | None = None


def answer(loaded: Loaded, question: Any, work: Work) -> LiveAnswer:
    """Answer one question."""
    if isinstance(question, EmptyPage):
        return LiveAnswer(page=document([]))
    if isinstance(question, CutTexts):
        return LiveAnswer(tokens=[_cut(loaded.tokenizer, text) for text in question.texts])
    work.step("reading the texts")
    edits = parse_edits(question.edits, question.other) if isinstance(question, Intervene) else []
    sources = [edit.added for edit in edits if isinstance(edit.added, SteeringVector)]
    _require_short(loaded, question, [text for each in sources for text in (each.towards, each.away)])
    model, tokenizer, *_ = loaded
    if isinstance(question, ExplainScore):
        work.step("explaining the attention")
        place = {name: getattr(question, name) for name in ("layer", "head", "query", "key")}
        contrasted = "other" if question.query else None
        return LiveAnswer(
            score=explain_attention(
                model, question.text, **place, contrast=contrasted, tokenizer=tokenizer
            ).score_view()
        )
    text, other = (_paired(loaded, question, getattr(question, name, None)) for name in ("text", "other"))
    about, edits = _about(loaded, question, text), from_reference(edits, other)
    match question:
        case Explain():
            work.step("explaining")
            result: Displayed = explain(model, ask_once(model, text, **about), collapse=True)
        case ContrastTexts():
            work.step("contrasting")
            pairs = None if question.alignment is None else read_pairs(question.alignment, "the alignment")
            result = contrast(model, text, other, alignment=pairs, head_runs=HEAD_RUNS, **about)
        case Intervene():
            result = intervene_beside_contrast(model, text, edits, other, step=work.step, **about)
        case FollowGraph():
            work.step("following the value")
            result = graph(model, text, top_heads=0, **about)
        case OpenNeuron():
            work.step("opening the neuron")
            at = question.layer, question.token, question.unit
            explanation, neuron = read_neuron(model, text, *at, **about)
            return LiveAnswer(neuron=neuron.view(explanation))
    work.step("writing it down")
    given = {name: getattr(question, name) for name in ("target", "contrast")}
    view = result.view()
    notes = space_notes(model.config, tokenizer, given, view.runs[int(isinstance(result, Intervention))].predictions)
    return LiveAnswer(view=page_data(replace(view, notes=(*view.notes, *notes)), loaded.examples))


def answer_first(loaded: Loaded, about: About) -> None:
    """Answer the first question of a page, so that its programs are compiled when it is asked."""
    if about.text and about.kind != "hidden":
        answer_in_words(loaded, {"ask": "explain", "text": about.text}, Work(lambda doing: None))


def answer_in_words(loaded: Loaded, question: Any, work: Work) -> LiveAnswer:
    """Answer one question; whatever goes wrong is a sentence."""
    try:
        with work:
            return answer(loaded, read_question(question), work)
    except Stopped:
        return LiveAnswer(problem="stopped")
    except DuatError as error:
        return LiveAnswer(problem=str(error))
    except Exception as error:  # a page gets an answer whatever it is, and further questions are answered
        traceback.print_exc()
        return LiveAnswer(problem=f"duat-jax itself failed ({type(error).__name__}); what it printed has the details")


def _paired(loaded: Loaded, question: Targeted, text: str | None) -> Any:
    """Return a text with what the decoder said, or with the second text of a pair, if there is one."""
    if text is None or question.pair is None:
        return text
    config = loaded.model.config
    if config.head.kind == "next token" and config.decoder_start is None:
        raise InvalidInput("this model reads one text, and no pair: leave the pair out")
    return encode_pair(loaded.tokenizer, text, question.pair, config)


def _about(loaded: Loaded, question: Targeted, text: Any) -> dict[str, Any]:
    """Return the arguments that say which number it is; of the most probable output, its number."""
    # One program then serves what a user names and what the model says.
    model, tokenizer, *_ = loaded
    about: dict[str, Any] = {
        "target": question.target if question.output is None else question.output,
        "contrast": question.contrast,
        "against": question.against,
        "tokenizer": tokenizer,
    }
    if about["target"] is None and model.config.head.kind != "hidden":
        asked = ask_once(model, text, **about)
        about["target"] = int(read_target(model, asked.input, asked.target)[0].output)
    return about


def _cut(tokenizer: "Tokenizer", text: str) -> list[str]:
    """Return the tokens of a text with white space visible; none of an empty text."""
    with suppress(InvalidInput):
        return list(map(token_label, readable(tokenizer, encode(tokenizer, text, "the text"))))
    return []


def _require_short(loaded: Loaded, question: Any, texts: list[str]) -> None:
    """Raise if a text has more tokens than are allowed here."""
    for text in (*(getattr(question, name, None) for name in ("text", "pair", "other", "against")), *texts):
        if text is not None and (count := len(encode(loaded.tokenizer, text, "the text"))) > loaded.longest:
            raise InvalidInput(
                f"a text has {count} tokens, and this page takes at most {loaded.longest}: give a shorter one"
            )
