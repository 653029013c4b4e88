"""Compile programs into Transformers whose circuits are known: writes experiments/ground_truth/compiled/*.npz.

    python -m venv .venv-tracr && .venv-tracr/bin/pip install tracr-pypi==1.0.0
    .venv-tracr/bin/python -m experiments.ground_truth.programs

Every model computes two programs side by side, the one that is read, A, and another one, B, and from both a third that
reads B and ignores it: `(a, b) ↦ a`. Of each neuron and each head it is known which variable of the programs it writes.
Pairs of inputs differ in one token and in what A says at the last one.

Source: Lindner et al., "Tracr: Compiled Transformers as a Laboratory for Interpretability", 2023.
"""

import itertools
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

PROGRAMS = Path(__file__).parent / "compiled"
TOKENS, PAIRS, BEGIN = 5, 32, "BOS"


class Program(NamedTuple):
    """A pair of programs.

    Args:
        read: the program whose circuit is searched for, A.
        distractor: another program in the same model, B.
        vocab: the tokens that they read.
        numerical: whether what they say is a number on one feature; otherwise it is one of several values.
    """

    read: Any
    distractor: Any
    vocab: tuple[Any, ...]
    numerical: bool = False


def programs() -> dict[str, Program]:
    """Return every pair of programs, by the name of the program that is read."""
    from tracr.compiler import lib
    from tracr.rasp import rasp

    tokens, letters, digits = rasp.tokens, ("a", "b", "c"), (1, 2, 3)
    is_a = rasp.numerical(tokens == "a").named("is_a")
    return {
        "count a token": Program(lib.make_count(tokens, "a"), lib.make_hist(), letters),
        "histogram": Program(lib.make_hist(), lib.make_count(tokens, "c"), letters),
        "reverse": Program(lib.make_reverse(tokens), lib.make_hist(), letters),
        "find a pattern": Program(lib.detect_pattern(tokens, "abc"), lib.make_hist(), letters),
        "sort": Program(lib.make_sort(tokens, tokens, max_seq_len=TOKENS, min_key=1), lib.make_hist(), digits),
        "sort by frequency": Program(lib.make_sort_freq(TOKENS), lib.make_count(tokens, 1), digits),
        "balanced brackets": Program(lib.make_shuffle_dyck(["()"]), lib.make_hist(), ("(", ")", "x")),
        "fraction of a token": Program(
            lib.make_frac_prevs(is_a), lib.make_pair_balance(tokens, "b", "c"), letters, True
        ),
    }


def compiled(program: Program) -> tuple[Any, str, str, set[str]]:
    """Compile both programs into one model, and return its labels of A, of `(a, b) ↦ a` and of all variables of A."""
    from tracr.compiler import compiling, rasp_to_graph
    from tracr.rasp import rasp

    read, distractor = program.read.named("A"), program.distractor.named("B")
    if program.numerical:
        both = rasp.numerical(rasp.LinearSequenceMap(read, distractor, 1, 0)).named("C")
    else:
        both = rasp.SequenceMap(lambda a, b: a, read, distractor).named("C")
    model = compiling.compile_rasp_to_model(both, vocab=set(program.vocab), max_seq_len=TOKENS, compiler_bos=BEGIN)
    return model, read.label, both.label, set(rasp_to_graph.extract_rasp_graph(read).graph.nodes)


def pairs(program: Program) -> list[tuple[tuple, tuple]]:
    """Return random pairs of inputs that differ in one token and in the output of A at the last token."""
    kept = []
    for clean in itertools.product(program.vocab, repeat=TOKENS):
        for place, token in itertools.product(range(TOKENS), program.vocab):
            corrupted = (*clean[:place], token, *clean[place + 1 :])
            outputs = [program.read(list(text))[-1] for text in (clean, corrupted)]
            if None not in outputs and outputs[0] != outputs[1]:
                kept.append((clean, corrupted))
    return Random(0).sample(kept, min(PAIRS, len(kept)))


NOTHING, OTHER, OWN, LAST = range(4)
"""Kinds of a unit by its output: nothing; a value that A doesn't read; one that A reads on the way to its result;
`(a, b) ↦ a`."""


def roles(written: np.ndarray, labels: list[str], own: set[str], last: str) -> list[int]:
    """Return the role of each unit, by the variables that it writes."""
    # A count is computed in two steps, of which the first one has no variable of its own.
    names = np.array([label.partition(":")[0].removesuffix("_selector_width_attn_output") for label in labels])
    result = []
    for unit in written:
        variables = set(names[np.any(unit.reshape(-1, len(labels)) != 0, axis=0)])
        result.append(NOTHING if not variables else LAST if last in variables else OWN if variables & own else OTHER)
    return result


def leads_to(read: np.ndarray, weights: dict[str, np.ndarray], heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the neurons and heads from which a path of weights leads to given features."""
    layers, neurons = weights["mlp_output"].shape[:2]
    leading = np.zeros((layers, neurons), bool), np.zeros((layers, heads), bool)
    for i in reversed(range(layers)):
        leading[0][i] = np.any(weights["mlp_output"][i][:, read], axis=1)
        read = read | np.any(weights["mlp_input"][i][:, leading[0][i]], axis=1)
        written = weights["output"][i].reshape(heads, -1, len(read))
        leading[1][i] = np.any(written[..., read], axis=(1, 2))
        for part in ("query", "key", "value"):
            by_head = weights[part][i].reshape(len(read), heads, -1)
            read = read | np.any(by_head[:, leading[1][i]], axis=(1, 2))
    return leading


def rows(labels: list[str], variable: str) -> tuple[np.ndarray, list[str]]:
    """Return the read-out of a variable's values from the features, `[values, features]`, and the values."""
    places = [i for i, label in enumerate(labels) if label.partition(":")[0] == variable]
    values = [labels[i].partition(":")[2] for i in places]
    read = np.eye(len(labels))[places]
    # A number is what its feature says more than nothing does.
    return (read, values) if values[0] else (np.concatenate([read, 0 * read]), values)


def stacked(parameters: dict[str, Any], part: str, layers: int) -> np.ndarray:
    """Stack one matrix of every layer; compiled layers have no biases."""
    stack = [parameters[f"transformer/layer_{i}/{part}"] for i in range(layers)]
    if any(np.any(layer["b"]) for layer in stack):
        raise ValueError(f"{part} has a bias")
    return np.stack([layer["w"] for layer in stack])


def exported(program: Program) -> dict[str, np.ndarray]:
    """Return the stored arrays of a compiled model."""
    model, read, both, own = compiled(program)
    labels, layers, heads = model.residual_labels, model.model_config.num_layers, model.model_config.num_heads
    alone, values = rows(labels, read)
    ignoring, same = rows(labels, both)
    if same != values:
        raise ValueError(f"(a, b) ↦ a has the values {same}, a {values}")
    arrays = {
        "token": model.params["token_embed"]["embeddings"],
        "position": model.params["pos_embed"]["embeddings"],
        **{part: stacked(model.params, f"attn/{part}", layers) for part in ("query", "key", "value")},
        "output": stacked(model.params, "attn/linear", layers),
        "mlp_input": stacked(model.params, "mlp/linear_1", layers),
        "mlp_output": stacked(model.params, "mlp/linear_2", layers),
        "alone": alone,
        "ignoring": ignoring,
    }
    by_head = arrays["output"].reshape(layers, heads, -1, len(labels))
    arrays = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    for kind, written, read_on in zip(
        ("neuron_roles", "head_roles"),
        (arrays["mlp_output"], by_head),
        leads_to(alone.any(0), arrays, heads),
        strict=True,
    ):
        labelled = np.array([roles(layer, labels, own, both) for layer in written])
        if np.any(read_on & (labelled != OWN)):
            raise ValueError("A reads what isn't labelled as one of its variables")
        arrays[kind] = np.where((labelled == OWN) & ~read_on, OTHER, labelled)

    encode = model.input_encoder.encode
    texts: Iterable[tuple] = [[BEGIN, *text] for pair in pairs(program) for text in pair]
    outputs = [program.read(list(text[1:]))[-1] for text in texts]
    ran = [model.apply(list(text)) for text in texts]
    for text, true, run in zip(texts, outputs, ran, strict=True):
        if not (np.isclose(run.decoded[-1], true) if program.numerical else run.decoded[-1] == true):
            raise ValueError(f"the compiled model says {run.decoded[-1]} after {text}, the program {true}")
    answers = [0 if program.numerical else values.index(str(value)) for value in outputs]
    arrays["clean"], arrays["corrupted"] = (np.array([encode(text) for text in texts[i::2]]) for i in range(2))
    arrays["right"] = np.array(answers[0::2])
    arrays["wrong"] = np.ones_like(arrays["right"]) if program.numerical else np.array(answers[1::2])
    arrays["states"] = np.stack([np.asarray(run.transformer_output[0], np.float32) for run in ran[0::2]])
    return arrays


def main() -> None:
    """Compile and write every program."""
    PROGRAMS.mkdir(exist_ok=True)
    for name, program in programs().items():
        arrays = exported(program)
        np.savez_compressed(PROGRAMS / f"{name.replace(' ', '-')}.npz", **arrays)
        print(name, {key: array.shape for key, array in arrays.items() if key in ("token", "mlp_input", "clean")})


if __name__ == "__main__":
    main()
