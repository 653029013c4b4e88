"""Words of the field are found: each stands on a page that treats it, and the list of words leads there."""

import re

import pytest
from shown_pages import ROOT

DOCS = ROOT / "docs"
WORDS = (DOCS / "words.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.*?) \| (.*) \|$", WORDS.partition("\n## ")[0], re.MULTILINE)[2:]
SEARCHED = {
    "ablation": "interventions.md",
    "accelerator": "how-it-works.md",
    "activation patching": "interventions.md",
    "attribution": "attribution.md",
    "attribution patching": "circuits.md",
    "batch": "how-it-works.md",
    "attribution graph": "graph.md",
    "bfloat16": "how-it-works.md",
    "causal tracing": "interventions.md",
    "Colab": "index.md",
    "direct logit attribution": "neighbours.md",
    "float16": "how-it-works.md",
    "GPU": "how-it-works.md",
    "hook": "words.md",
    "in-context learning": "in-context.md",
    "indirect object": "circuits.md",
    "induction head": "why-a-head-attends.md",
    "integrated gradients": "attribution.md",
    "linear probe": "words.md",
    "logit lens": "words.md",
    "memory": "how-it-works.md",
    "residual stream": "how-it-works.md",
    "saliency map": "images.md",
    "sparse autoencoder": "words.md",
    "steering": "interventions.md",
    "steering vector": "command-line.md",
    "TPU": "how-it-works.md",
    "transcoder": "neighbours.md",
}
"""Words that readers look for, and the page that treats each."""


def says(page, word):
    """Return whether a page has a word, in any case and in the plural too."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    return re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", text, re.IGNORECASE) is not None


@pytest.mark.parametrize("word", SEARCHED)
def test_a_word_that_is_looked_for_stands_on_the_page_that_treats_it(word):
    assert says(SEARCHED[word], word)
    assert says("words.md", word), "the list of words has it"


@pytest.mark.parametrize(("words", "here"), ROWS, ids=[words for words, _ in ROWS])
def test_a_row_of_the_list_leads_to_a_page_that_has_one_of_its_words(words, here):
    pages = {link.partition("#")[0] or "words.md" for link in re.findall(r"\]\(([^)]+)\)", here)}
    names = [re.sub(r"\(.*?\)", "", name).strip() for name in re.split(r"[,:]| or ", words)]
    names += re.findall(r"\(([^),]+)\)", words)
    found = [name for name in names for page in pages if name and page.endswith(".md") and says(page, name)]
    assert found or re.match("not |none ", here), (names, pages)


def test_the_list_is_in_alphabetical_order():
    words = [re.sub(r"\W", "", words.lower()) for words, _ in ROWS]
    assert words == sorted(words)
