"""Words of the field are found: each stands on a page that treats it, and the list of words leads there."""

import re
from posixpath import normpath

import pytest
from shown_pages import ROOT

DOCS = ROOT / "docs"
WORDS = (DOCS / "reference" / "words.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.*?) \| (.*) \|$", WORDS.partition("\n## ")[0], re.MULTILINE)[2:]
SEARCHED = {
    "ablation": "how-to/interventions.md",
    "accelerator": "how-to/gpu-and-tpu.md",
    "activation patching": "how-to/interventions.md",
    "attribution": "explanation/attribution.md",
    "attribution patching": "findings/circuits.md",
    "batch": "how-to/gpu-and-tpu.md",
    "attribution graph": "how-to/graph.md",
    "bfloat16": "how-to/gpu-and-tpu.md",
    "causal tracing": "how-to/interventions.md",
    "Colab": "tutorials/notebooks.md",
    "direct logit attribution": "explanation/neighbours.md",
    "float16": "reference/checkpoints.md",
    "GPU": "how-to/gpu-and-tpu.md",
    "hook": "reference/words.md",
    "in-context learning": "findings/in-context.md",
    "indirect object": "findings/circuits.md",
    "induction head": "how-to/attention.md",
    "integrated gradients": "explanation/attribution.md",
    "linear probe": "reference/words.md",
    "logit lens": "reference/words.md",
    "memory": "how-to/memory.md",
    "residual stream": "explanation/how-it-works.md",
    "saliency map": "how-to/images.md",
    "sparse autoencoder": "reference/words.md",
    "steering": "how-to/interventions.md",
    "steering vector": "reference/commands/edit.md",
    "TPU": "how-to/gpu-and-tpu.md",
    "transcoder": "explanation/neighbours.md",
}
"""Words that readers look for, and the page that treats each."""


def says(page, word):
    """Return whether a page has a word, in any case and in the plural too."""
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    return re.search(rf"(?<![\w-]){re.escape(word)}s?(?![\w-])", text, re.IGNORECASE) is not None


@pytest.mark.parametrize("word", SEARCHED)
def test_a_word_that_is_looked_for_stands_on_the_page_that_treats_it(word):
    assert says(SEARCHED[word], word)
    assert says("reference/words.md", word), "the list of words has it"


@pytest.mark.parametrize(("words", "here"), ROWS, ids=[words for words, _ in ROWS])
def test_a_row_of_the_list_leads_to_a_page_that_has_one_of_its_words(words, here):
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", here)]
    pages = {normpath(f"reference/{link}") if link else "reference/words.md" for link in links}
    names = [re.sub(r"\(.*?\)", "", name).strip() for name in re.split(r"[,:]| or ", words)]
    names += re.findall(r"\(([^),]+)\)", words)
    found = [name for name in names for page in pages if name and page.endswith(".md") and says(page, name)]
    assert found or re.match("not |none ", here), (names, pages)


def test_the_list_is_in_alphabetical_order():
    words = [re.sub(r"\W", "", words.lower()) for words, _ in ROWS]
    assert words == sorted(words)
