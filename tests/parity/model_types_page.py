"""Write `docs/reference/model-types.md` and its table from the kept results of every model type."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.markdown import table
from tests.parity.small_models import CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "model-types.md"
FULL = ROOT / "docs" / "reference" / "tables" / "model-types.md"
KEPT = ROOT / "experiments" / "results" / "model_types.json"
USED_MOST = (
    *("llama", "qwen2", "qwen3", "qwen3_5", "gemma2", "gemma3", "gemma4", "mistral", "ministral3", "mixtral"),
    *("deepseek_v3", "glm4", "glm4_moe", "nemotron_h", "lfm2", "gpt2", "opt", "phi3", "falcon_h1", "mamba2", "rwkv"),
    *("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "modernbert-decoder", "deberta-v2", "t5", "mt5"),
    *("t5gemma", "bart", "whisper", "wav2vec2", "hubert", "clip", "siglip2", "dinov3_vit", "vit", "llava", "qwen2_vl"),
    *("qwen3_vl", "paligemma", "llama4", "gemma3n", "bamba", "jetmoe", "kimi_linear", "recurrent_gemma", "longformer"),
    *(
        "led",
        "ibert",
        "seamless_m4t_v2",
        "wav2vec2-bert",
        "speecht5",
        "vits",
        "bark",
        "musicgen",
        "encodec",
        "mimi",
        "clap",
    ),
    *("blip", "blip-2", "instructblip", "idefics", "kosmos-2", "vilt", "pix2struct", "trocr", "vision-encoder-decoder"),
    *("layoutlmv2", "detr", "rt_detr", "rt_detr_v2", "table-transformer", "yolos", "deformable_detr", "grounding-dino"),
    *("owlvit", "sam", "sam2", "sam_hq", "mask2former", "maskformer", "oneformer", "depth_pro", "swinv2", "convnextv2"),
    *("mobilevit", "vit_mae", "timm_wrapper", "timm_backbone", "timesfm", "timesfm2_5", "time_series_transformer"),
)
"""Architectures of text, sound and images that are used most."""
WHY = {
    "it needs a package of its own": r"requires the .* library",
    "it has no floating-point input that this command knows": "has no floating-point input",
    "its outputs depend on its input through discrete choices alone": "its outputs don't depend",
    "its code branches on a tensor's values": "chooses its way by",
    "it takes more memory or time than it is given": "MemoryError|TimeoutError",
    "its outputs differ from PyTorch's": r"in JAX and .* in PyTorch|another structure",
}
"""Why model types aren't certified, and by which words of the reason each is known."""
AT = {
    "built": "no small model was found that PyTorch runs",
    "converted": "torchax lacks an operation, or computes it differently from PyTorch",
    "secant": "the secant can't follow it",
    "marked": "the decomposition can't follow it",
    "float64": "it isn't converted in float64",
    "done": "a check fails, or its numbers are smaller than rounding",
}
"""The same for any other reason, by where it came up."""
HEAD = (
    *("model type", "class", "float32", "float64", "secant", "decomposition", "terms", "not attributed", "family"),
    "seconds",
)
INTRODUCTION = """# Model types of Transformers

**`duat` explains a checkpoint of `transformers` by running its PyTorch code. Of {types} model types of `transformers`
{transformers} that were tested, {holds} are converted and certified: a small random model of each has the same outputs
in JAX as in PyTorch, and its parts sum to them.**

[Explain a PyTorch model](../how-to/pytorch.md) has the commands. {family} of these types are also
[families](families.md) whose checkpoints `duat.load` reads without PyTorch, with the same parts.
"""
HOW = """
## How a type is tested

A model is built by the type's own class with random weights and at least two layers. [JAX runs its PyTorch
code](../how-to/pytorch.md), and `duat.auto` marks it. A random combination of its logits, or of its first output, is
explained from the embeddings of a text, from an image or from sound. Where outputs depend on an input by no more than
rounding, matrices are drawn larger, or another input takes its place. The types that are used most were tested first;
others haven't been tested yet.

**Certified** means: the logits agree with PyTorch's, the verdict on the difference between two inputs (the secant) is
that its parts sum to it, and the verdict on the parts at one input (the decomposition) is the same.

[The full table](tables/model-types.md) has every type with its differences, verdicts and, where it fails, the reason.
It was made with torch {torch}, torchax {torchax} and jax {jax}; `python -m tests.parity.model_types` makes it again
and writes this page. `make parity` tests a few types again with every third commit.
"""
TABLES = """# Model types: every result

[Model types of Transformers](../model-types.md) sums up and says how a type is tested. The columns are:

- **float32, float64**: the largest difference to PyTorch's logits, relative to the largest of them, where it was
  measured. Much code computes norms and positions in float32 always.
- **secant**: the verdict on the difference between two inputs.
- **decomposition**: the verdict on the parts at one input. **terms**: how many activation functions have parts of their
  own. **not attributed**: the share of the value that no mark reaches.
- **family**: where the type is a [family](../families.md) of this package, the largest difference between its parts and
  those of the PyTorch code: the value, the embedding's part and each neuron's coefficient, relative to the largest of
  each. A token's neurons of experts are compared in the order of their size, since each code has its own order. Of
  GPT-OSS, `duat.auto` has the clipped factors as neurons, and the family has their product.
- **seconds**: about how much processor time the type takes.
"""


def cells(name: str, row: dict[str, Any]) -> list[str]:
    """Return a row of the table.

    Args:
        name: the model type.
        row: what was found of it.
    """
    share = row.get("not attributed")
    return [
        f"`{name}`",
        row.get("class", ""),
        *(f"{row[key]:.0e}" if row.get(key) is not None else "" for key in ("float32", "float64")),
        row.get("secant", ""),
        row.get("marked", ""),
        str(row.get("terms", "")),
        "" if share is None else f"{100 * share:.2g} %",
        f"{row['family']:.0e}" if isinstance(row.get("family"), float) else "",
        f"{row['seconds']:.0f}",
    ]


def certified(row: dict[str, Any]) -> bool:
    """Return whether both verdicts on a model type are that it holds, for logits that float32 can tell from zero.

    Args:
        row: what was found of it.
    """
    return row.get("secant") == row.get("marked") == "holds" and (row.get("float32") or 0) < 1e-4


def reason(row: dict[str, Any]) -> str:
    """Return why a model type isn't certified, for a cell of a table.

    Args:
        row: what was found of it.
    """
    verdicts = f"secant {row.get('secant')}, decomposition {row.get('marked')}, logits apart by {row.get('float32')}"
    return row.get("reason", verdicts).replace("|", "/").replace("`", "'")


def why(row: dict[str, Any]) -> str:
    """Return what kind of reason a model type has for not being certified.

    Args:
        row: what was found of it.
    """
    return next((kind for kind, words in WHY.items() if re.search(words, reason(row))), AT[row["step"]])


def counts(rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Return how many model types there are, were tested, and passed each step.

    Args:
        rows: what was found of every model type.
    """
    holds = [row for row in rows.values() if certified(row)]
    return {
        "with a model": len(CLASSES),
        "tested": len(rows),
        "converted, with PyTorch's outputs": sum(
            row["step"] in ("secant", "marked", "float64", "done") for row in rows.values()
        ),
        "secant holds": sum(row.get("secant") == "holds" for row in rows.values()),
        "decomposition holds": sum(row.get("marked") == "holds" for row in rows.values()),
        "both hold, and the logits agree": len(holds),
        "of these, no share is left unattributed": sum(not row["not attributed"] for row in holds),
        "with the same parts as the family of this package": sum(
            isinstance(row.get("family"), float) and row["family"] < 1e-4 for row in rows.values()
        ),
    }


def by_reason(rows: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return the names of the model types that aren't certified by the kind of reason, the most frequent first.

    Args:
        rows: what was found of every model type.
    """
    kinds: dict[str, list[str]] = {}
    for name in sorted(rows):
        if not certified(rows[name]):
            kinds.setdefault(why(rows[name]), []).append(name)
    return {kind: kinds[kind] for kind in sorted(kinds, key=lambda kind: (-len(kinds[kind]), kind))}


def summary(versions: dict[str, str], rows: dict[str, dict[str, Any]]) -> str:
    """Return the page that sums up.

    Args:
        versions: those of the libraries.
        rows: what was found of every model type.
    """
    count = counts(rows)
    numbers = {
        "types": len(rows),
        "holds": count["both hold, and the logits agree"],
        "family": count["with the same parts as the family of this package"],
        **versions,
    }
    used = [name for name in USED_MOST if name in rows]

    def names(holds: bool) -> str:
        return ", ".join(f"`{name}`" for name in used if certified(rows[name]) == holds)

    lines = [
        INTRODUCTION.format(**numbers),
        *table(["model types", "count"], ([name, str(number)] for name, number in count.items())),
        "\n## The types that are used most\n",
        f"Certified: {names(True)}.\n",
        f"Not certified: {names(False)}.\n",
        "Kimi K2, LLaDA and RWKV 7 have no type in this version of `transformers`: their checkpoints bring code.",
        "\n## Why a type isn't certified\n",
        *table(["reason", "model types"], ([kind, str(len(of))] for kind, of in by_reason(rows).items())),
        HOW.format(**numbers).rstrip(),
    ]
    return "\n".join(lines) + "\n"


def tables(rows: dict[str, dict[str, Any]]) -> str:
    """Return the page of tables.

    Args:
        rows: what was found of every model type.
    """
    grouped = by_reason(rows)
    fails = [name for of in grouped.values() for name in of]

    def reasons(names: Iterable[str]) -> Iterator[list[str]]:
        return ([f"`{name}`", rows[name]["step"], f"`{reason(rows[name])}`"] for name in names)

    lines = [
        TABLES,
        "## Used most\n",
        *table(HEAD, (cells(name, rows[name]) for name in USED_MOST if name in rows)),
        "\n## All that are certified\n",
        *table(HEAD, (cells(name, rows[name]) for name in sorted(rows) if certified(rows[name]))),
        "\n## Not certified\n",
        *table(
            ["reason", "count", "model types"], ([kind, str(len(of)), ", ".join(of)] for kind, of in grouped.items())
        ),
        "\nOf the most used, these fail. The column *at* has the last step: the model was built, converted, asked for"
        " the secant, or marked.\n",
        *table(["model type", "at", "reason"], reasons(name for name in USED_MOST if name in fails)),
        "\nThe others:\n",
        *table(["model type", "at", "reason"], reasons(name for name in fails if name not in USED_MOST)),
    ]
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Write both pages."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(summary(kept["versions"], kept["types"]), encoding="utf-8")
    FULL.write_text(tables(kept["types"]), encoding="utf-8")


if __name__ == "__main__":
    write_page()
