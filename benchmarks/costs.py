"""Table of costs in docs/reference/tables/costs.md, from the stored results of several benchmarks."""

from typing import Any

from experiments.kept_results import kept
from experiments.markdown import Fields


def _times(measured: dict[str, Any]) -> str:
    """Return the median of a ratio and its quartiles."""
    low, high = measured["quartiles_of_ratio"]
    return f"{measured['median_of_ratio']:.2f} × [{low:.2f}, {high:.2f}]"


def _seconds(measured: dict[str, Any], digits: int = 1) -> str:
    low, high = measured["quartiles_s"]
    return f"{measured['median_s']:.{digits}f} s [{low:.{digits}f}, {high:.{digits}f}]"


def _batch(measured: dict[str, Any]) -> str:
    low, high = measured["quartiles_of_ratio"]
    return f"{measured['ratio']:.2f} × [{low:.2f}, {high:.2f}]"


def _bits(measured: dict[str, Any]) -> str:
    return f"{measured['model']:.2f} (5-gram byte model {measured['five_gram']:.2f}, `xz -9` {measured['xz_9']:.2f})"


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages.

    Args:
        results: none of its own.
    """
    table, latency, batches, loading = (kept(study) for study in ("table", "latency", "batches", "loading"))
    long, spectrum = kept("long"), kept("spectrum")
    symbolic, startup, bits = (kept(study) for study in ("symbolic", "startup", "language_model"))
    shapes = {"128": "GPT-2-small's shape, 128 tokens", "512": "GPT-2-small's shape, 512 tokens"}
    costs = {f"table {short}": _times(table[name]["with_neurons"]) for short, name in shapes.items()}
    costs |= {f"without neurons {short}": _times(table[name]["without_neurons"]) for short, name in shapes.items()}
    for name in ("with_neurons", "without_neurons"):
        counted = [table[shapes["128"]][program]["operations"] for program in (name, "forward")]
        costs[f"operations {name.replace('_', ' ')}"] = f"{counted[0] / counted[1]:.2f}"
    costs["table 128, short"] = f"{table[shapes['128']]['with_neurons']['median_of_ratio']:.1f}"
    for tokens in (1024, 4096):
        low, high = long[f"{tokens}_tokens"]["with_neurons"]["quartiles_of_ratio"]
        costs[f"long {tokens}"] = f"{low:.2f}–{high:.2f} ×"
    costs["memory 4096"] = f"{long['4096_tokens']['without_neurons']['temporary_mb'] / 1e3:.2f} GB"
    costs["triplets"], costs["triplets of logits"] = (
        f"{spectrum[f'{name}: triplets']['ratio']:.0f}" for name in ("last state", "logits")
    )
    costs["map applied"] = f"{spectrum['last state: map applied']['ratio']:.2f}"
    costs["memory 512"] = f"{table[shapes['512']]['with_neurons']['memory_ratio_without_table']:.2f}"
    costs |= {name.replace("_", " "): _seconds(latency[name]) for name in ("first", "second")}
    costs["resident"] = _seconds(latency["resident_second"], 2)
    costs["next text"] = _seconds(latency["next_text_of_a_bucket"], 3)
    costs |= {f"{layers} layers": _seconds(latency[f"{layers}_layers_compiled"]) for layers in (6, 12, 24, 48)}
    costs["SmolLM2 load"], costs["SmolLM2 first"], costs["SmolLM2 next"] = (
        _seconds(latency[f"smollm2_{name}"], 2) for name in ("load", "first_text", "next_text")
    )
    costs |= {name.replace("_", " "): _batch(batches[name]) for name in ("embedded", "gpt2_small_shape")}
    costs |= {
        dtype: f"{loading[f'llama_1.1b_to_{dtype}']['peak_over_weights']:.2f}" for dtype in ("bfloat16", "float32")
    }
    costs["proof"] = _seconds(symbolic["proof_of_all_blocks"], 2)
    costs["document"] = _seconds(symbolic["document_of_32_layers"])
    costs["audit"] = _seconds(symbolic["audit"])
    costs["Block.from_function"] = _seconds(symbolic["block_of_the_embedded_models_layer"])
    costs["import"] = f"{startup['everything_public']['median_s'] / startup['jax_and_flax']['median_s']:.2f}"
    costs["bits"] = _bits(bits["all_files"])
    costs["bits of new files"] = _bits(bits["files_with_under_10_percent_known_lines"])
    return costs
