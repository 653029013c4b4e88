"""Write `docs/model-types.md` from what was found of every model type."""

import json
from pathlib import Path
from typing import Any

from experiments.pages import table
from tests.parity.small_models import CLASSES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "model-types.md"
KEPT = ROOT / "experiments" / "results" / "model_types.json"
USED_MOST = (
    *("llama", "qwen2", "qwen3", "qwen3_5", "gemma2", "gemma3", "gemma4", "mistral", "ministral3", "mixtral"),
    *("deepseek_v3", "glm4", "glm4_moe", "nemotron_h", "lfm2", "gpt2", "opt", "phi3", "falcon_h1", "mamba2", "rwkv"),
    *("bert", "roberta", "xlm-roberta", "distilbert", "modernbert", "modernbert-decoder", "deberta-v2", "t5", "mt5"),
    *("t5gemma", "bart", "whisper", "wav2vec2", "hubert", "clip", "siglip2", "dinov3_vit", "vit", "llava", "qwen2_vl"),
    *("qwen3_vl", "paligemma"),
)
"""Architectures of text, sound and images that are used most."""
HEAD = (
    *("model type", "class", "float32", "float64", "secant", "decomposition", "terms", "not attributed", "seconds"),
)
INTRODUCTION = """# Model types of Transformers

**Of {types} model types of `transformers` {transformers} that were tried, {holds} are converted and certified: a small
random model of each has the same outputs in JAX as in PyTorch, and its parts sum to them.**

Each is built by its own class, with at least two layers; [its PyTorch code is run by JAX](pytorch.md), and
`duat.auto` marks it. A random combination of its logits, or of its first output, is explained from the embeddings of a
text, from an image or from sound. Those that are used most were tried first, then those whose configuration is easily
made small; the others aren't tried yet, and some need packages of their own, such as `timm`.

- **float32, float64**: the largest difference to PyTorch's logits, relative to the largest of them, where it was
  measured. Much code computes norms and positions in float32 always.
- **secant**: the verdict on the difference between two inputs.
- **decomposition**: the verdict on the parts at one input; **terms**: how many activation functions have parts of their
  own; **not attributed**: the share of the value that no mark reaches.

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
    }
    fails = [[f"`{name}`", rows[name]["step"], f"`{reason(rows[name])}`"] for name in names if name not in holds]
    lines = [
        INTRODUCTION.format(types=len(rows), holds=len(holds), **versions),
        *table(["model types", "count"], ([name, str(count)] for name, count in counts.items())),
        "\n## Used most\n",
        *table(HEAD, (cells(name, rows[name]) for name in USED_MOST if name in rows)),
        "\nKimi K2, LLaDA and RWKV 7 have no type in this version of `transformers`: their checkpoints bring code.",
        "\n## All that hold\n",
        *table(HEAD, (cells(name, rows[name]) for name in holds)),
        "\n## What fails\n",
        "It was built, converted, asked for the secant, or marked, when it failed.\n",
        *table(["model type", "at", "reason"], fails),
    ]
    return "\n".join(lines) + "\n"


def write_page() -> None:
    """Write the page."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    PAGE.write_text(page(kept["versions"], kept["types"]), encoding="utf-8")


if __name__ == "__main__":
    write_page()
