"""Agreement of every family's checkpoints with Hugging Face transformers, for docs/reference/families.md."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from experiments.kept_results import ROOT
from experiments.markdown import Fields, table, tables_of
from experiments.pictures.panels import OTHER, OURS

PAGE = ROOT / "docs" / "reference" / "tables" / "families.md"
COLUMNS = "float32", "float64", "exactness"
HEAD = "`model_type`", "models", "input", "output", "checkpoints", "refused", *COLUMNS
OUTPUTS = {"logits": "next token", "masked": "masked token", "classes": "classes", "hidden": "hidden states"}
IMAGES = ("vit",)
MODELS = {
    "gpt2": "GPT-2",
    "gpt_neox": "GPT-NeoX, Pythia",
    "opt": "OPT",
    "gptj": "GPT-J",
    "llama": "Llama, SmolLM2",
    "mistral": "Mistral",
    "qwen2": "Qwen 2, Qwen 2.5",
    "qwen3": "Qwen 3",
    "gemma2": "Gemma 2",
    "mixtral": "Mixtral",
    "gemma3_text": "Gemma 3, text alone",
    "qwen3_moe": "Qwen 3, experts",
    "phi3": "Phi-3",
    "olmo2": "OLMo 2",
    "starcoder2": "StarCoder 2",
    "smollm3": "SmolLM3",
    "olmo3": "OLMo 3",
    "gemma": "Gemma",
    "phi": "Phi-1, Phi-2",
    "stablelm": "StableLM",
    "granite": "Granite",
    "cohere": "Command R",
    "gpt_oss": "GPT-OSS",
    "ministral": "Ministral",
    "seed_oss": "Seed-OSS",
    "helium": "Helium",
    "ernie4_5": "ERNIE 4.5",
    "exaone4": "EXAONE 4",
    "glm": "GLM",
    "glm4": "GLM-4",
    "cohere2": "Command R7B",
    "olmoe": "OLMoE",
    "granitemoe": "Granite, experts",
    "gemma3": "Gemma 3, the language model",
    "gpt_bigcode": "StarCoder, SantaCoder",
    "gpt_neo": "GPT-Neo",
    "bert": "BERT",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-RoBERTa",
    "camembert": "CamemBERT",
    "electra": "ELECTRA",
    "distilbert": "DistilBERT",
    "vit": "ViT",
    "albert": "ALBERT",
    "modernbert": "ModernBERT",
}
"""Names by which the models of each family are known."""

Rows = list[dict[str, str]]


def compared() -> dict[str, Rows]:
    """Return the rows of every family's table, by column."""
    return {
        family: [dict(zip(head, row, strict=True)) for row in rows]
        for family, (head, *rows) in tables_of(PAGE.read_text(encoding="utf-8"))
    }


def measured() -> dict[str, dict[str, list[float]]]:
    """Return what was measured of every checkpoint, by family and column of its table."""
    return {
        family: {column: [float(row[column]) for row in rows if row["exactness"]] for column in COLUMNS}
        for family, rows in compared().items()
    }


def _rows() -> Iterator[tuple[str, ...]]:
    """Yield the row of each family: its name, inputs, outputs, number of checkpoints and largest differences."""
    numbers = measured()
    for family, rows in sorted(compared().items()):
        heads = {row["head"]: None for row in rows}
        columns = numbers[family]
        yield (
            f"`{family}`",
            MODELS[family],
            "image" if family in IMAGES else "text",
            ", ".join(words for head, words in OUTPUTS.items() if head in heads),
            str(len(columns["exactness"])),
            ", ".join(f"`{row['switch']}`" for row in rows if not row["exactness"]),
            f"{max(columns['float32']):.0e}",
            f"{max(columns['float64']):.0e}",
            f"{max(columns['exactness']):.2f}",
        )


def fields(kept: dict[str, Any]) -> Fields:
    """Return the numbers of families and of checkpoints, the largest difference of each kind, and a row a family."""
    families = measured()
    largest = {column: max(max(family[column]) for family in families.values()) for column in COLUMNS}
    (version,) = re.findall(r"`transformers` ([\d.]*\d)", PAGE.read_text(encoding="utf-8"))
    return {
        "families": str(len(families)),
        "checkpoints": str(sum(len(family["exactness"]) for family in families.values())),
        "largest float32": f"{largest['float32']:.0e}",
        "largest float64": f"{largest['float64']:.0e}",
        "largest exactness": f"{largest['exactness']:.2f}",
        "transformers": version,
        "table": "\n".join(table(HEAD, _rows())),
    }


@styled
def draw_families(numbers: dict[str, Any]) -> Figure:
    """Draw the largest difference to the reference implementation of every checkpoint, by family and precision."""
    figure = Figure(figsize=(7.2, 5.6))
    axes = figure.subplots()
    for column, colour in (("float64", OURS), ("float32", OTHER)):
        points = [(error, place) for place, family in enumerate(numbers.values()) for error in family[column]]
        axes.plot(*np.array(points).T, ".", color=colour, alpha=0.5, label=column)
    axes.set_xscale("log")
    axes.set_yticks(range(len(numbers)), list(numbers))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("largest difference to Hugging Face transformers, of the largest entry")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper")
    return figure
