"""Write `docs/reference/model-types.md` from what was found of every model type."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.markdown import table
from tests.parity.small_models import CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "model-types.md"
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
    "its outputs depend on its input by choices alone": "its outputs don't depend",
    "its code chooses its way by a tensor's numbers": "chooses its way by",
    "it takes more memory or time than it is given": "MemoryError|TimeoutError",
    "PyTorch's outputs are others": r"in JAX and .* in PyTorch|another structure",
}
"""Why model types aren't certified, and by which words of the reason each is known."""
AT = {
    "built": "no small model of it was found that PyTorch computes",
    "converted": "torchax lacks an operation, or takes it otherwise than PyTorch",
    "secant": "the secant can't follow it",
    "marked": "the decomposition can't follow it",
    "float64": "it isn't converted in float64",
    "done": "a verdict is another one, or its numbers are smaller than rounding",
}
"""The same for any other reason, by where it came up."""
HEAD = (
    *("model type", "class", "float32", "float64", "secant", "decomposition", "terms", "not attributed", "family"),
    "seconds",
)
INTRODUCTION = """# Model types of Transformers

**Of {types} model types of `transformers` {transformers} that were tried, {holds} are converted and certified: a small
random model of each has the same outputs in JAX as in PyTorch, and its parts sum to them.**

Each is built by its own class, with at least two layers; [its PyTorch code is run by JAX](pytorch.md), and
`duat.auto` marks it. A random combination of its logits, or of its first output, is explained from the embeddings of a
text, from an image or from sound. Those that are used most were tried first; others aren't tried yet. Where outputs
depend on an input by no more than rounding, matrices are drawn larger, or another input takes its place.

- **float32, float64**: the largest difference to PyTorch's logits, relative to the largest of them, where it was
  measured. Much code computes norms and positions in float32 always.
- **secant**: the verdict on the difference between two inputs.
- **decomposition**: the verdict on the parts at one input; **terms**: how many activation functions have parts of their
  own; **not attributed**: the share of the value that no mark reaches.
- **family**: where this package has the family too, the largest difference between its parts and those of the code: the
  value, the embedding's part and each neuron's coefficient, relative to the largest of each. A token's neurons of
  experts are compared in the order of their size, since each code has its own order. Of GPT-OSS, `duat.auto` has the
  clipped factors as neurons, and the family their product.
- **seconds**: about how much processor time it takes.

`python -m tests.parity.model_types` tries them all and writes this page, here with torch {torch}, torchax {torchax} and
jax {jax}; `make parity` tries a few again with every commit that it runs for.
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


def page(versions: dict[str, str], rows: dict[str, dict[str, Any]]) -> str:
    """Return the page.

    Args:
        versions: those of the libraries.
        rows: what was found of every model type.
    """
    names, holds = sorted(rows), sorted(name for name in rows if certified(rows[name]))
    counts = {
        "with a model": len(CLASSES),
        "tried": len(rows),
        "converted, with PyTorch's outputs": sum(
            row["step"] in ("secant", "marked", "float64", "done") for row in rows.values()
        ),
        "secant holds": sum(row.get("secant") == "holds" for row in rows.values()),
        "decomposition holds": sum(row.get("marked") == "holds" for row in rows.values()),
        "both hold, for logits that agree": len(holds),
        "of these, nothing is left unattributed": sum(not rows[name]["not attributed"] for name in holds),
        "with the parts of the family here": sum(
            isinstance(rows[name].get("family"), float) and rows[name]["family"] < 1e-4 for name in rows
        ),
    }
    fails = [name for name in names if name not in holds]
    kinds = sorted(
        {why(rows[name]) for name in fails}, key=lambda kind: -sum(why(rows[name]) == kind for name in fails)
    )
    grouped = [[name for name in fails if why(rows[name]) == kind] for kind in kinds]

    def reasons(names: Iterable[str]) -> Iterator[list[str]]:
        return ([f"`{name}`", rows[name]["step"], f"`{reason(rows[name])}`"] for name in names)

    lines = [
        INTRODUCTION.format(types=len(rows), holds=len(holds), **versions),
        *table(["model types", "count"], ([name, str(count)] for name, count in counts.items())),
        "\n## Used most\n",
        *table(HEAD, (cells(name, rows[name]) for name in USED_MOST if name in rows)),
        "\nKimi K2, LLaDA and RWKV 7 have no type in this version of `transformers`: their checkpoints bring code.",
        "\n## All that hold\n",
        *table(HEAD, (cells(name, rows[name]) for name in holds)),
        "\n## What fails\n",
        *table(
            ["reason", "count", "model types"],
            ([kind, str(len(of)), ", ".join(of)] for kind, of in zip(kinds, grouped, strict=True)),
        ),
        "\nOf the most used, these fail. They were built, converted, asked for the secant, or marked, when they did.\n",
        *table(["model type", "at", "reason"], reasons(name for name in USED_MOST if name in fails)),
        "\nThe others:\n",
        *table(["model type", "at", "reason"], reasons(name for of in grouped for name in of if name not in USED_MOST)),
    ]
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Write the page."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(page(kept["versions"], kept["types"]), encoding="utf-8")


if __name__ == "__main__":
    write_page()
