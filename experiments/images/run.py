"""Claim: a residual CNN and a ViT have exact closed forms on an image; only the ViT's parameters change with it.

Run `python -m experiments images` (it needs `pip install -e ".[images]"`); it writes
experiments/results/images.json and the tables and pictures of docs/findings/images.md. A network that was trained and
measured
isn't again: a killed run goes on.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import duat_jax as duat
from duat_jax.evaluation.journal import Journal
from experiments.environment import environment
from experiments.images.digits import NETWORKS, SIDE, Digits, accuracy, load_digits, train_classifier
from experiments.markdown import Fields, cells, interval, table

RESULTS, PICTURES = Path("experiments/results/images.json"), Path("docs")
WORK = Path("experiments/results/work/images")
SEEDS, SHOWN_SEED = (0, 1, 2), 0
EXACT, PAIRS, REMOVED = 100, 10, 200
"""The numbers of held-out images that are split, compared in pairs, and taken apart."""
PATCH = 2
PATCHES = (SIDE // PATCH) ** 2
FORMS = "closed form at every depth", "contributions", "collapse", "secant to paper"
PARAMETERS = (
    *("W'1 of the logits (P)", "W'2 of the last term (B)", "W'3 of the first term (C)"),
    *("b'3 of the logits (q)", "b'2 of the last term (c)"),
)
DRAWN = 8
"""The digit of the pictures: the first one held out."""

Network = Any


def pixels_of(image: jax.Array) -> jax.Array:
    """Return an image `[1, rows, columns]` with its channel last, the input of both networks."""
    return jnp.moveaxis(image, 0, -1)


def logits_of(network: Network, x: jax.Array) -> jax.Array:
    """Return a network's logits from an image with channels last, so that every form is split down to pixels."""
    return network(jnp.moveaxis(x, -1, 0))


def one_hot_of_the_largest(logits: jax.Array) -> jax.Array:
    """Return the one-hot vector of the largest logit."""
    return jax.nn.one_hot(logits.argmax(), len(logits), dtype=logits.dtype)


def exactness(network: Network, images: np.ndarray, dtype: Any) -> dict[str, Any]:
    """Return the largest error of each form of the most probable class's logit, and on how many images it holds."""
    with jax.enable_x64(dtype == jnp.float64):
        network = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), dtype), network)

        def forms(image: jax.Array) -> dict[str, Any]:
            x = pixels_of(image)
            likely = logits_of(network, x).argmax()

            def logit(x: jax.Array) -> jax.Array:
                return logits_of(network, x)[likely]

            closed = duat.unroll(logit, x)
            checks = {f"stream {i}": closed.completeness(i) for i in range(len(closed.streams))}
            checks["contributions"] = duat.decompose(logit, x).completeness
            checks["collapse"] = duat.collapse(partial(logits_of, network), x).completeness
            checks["secant to paper"] = duat.secant(logit)(x, jnp.zeros_like(x)).completeness
            return {
                name: (c.within.all() & c.conclusive.all(), jnp.abs(c.error).max() / c.largest.max())
                for name, c in checks.items()
            }

        checks = jax.device_get(jax.jit(jax.vmap(forms))(jnp.asarray(images, dtype)))
    streams = [checks.pop(name) for name in list(checks) if name.startswith("stream")]
    checks["closed form at every depth"] = [np.concatenate(parts) for parts in zip(*streams, strict=True)]
    # JAX gives dictionaries back sorted.
    return {
        name: {"asked": len(holds), "hold": int(holds.sum()), "largest_error": float(errors.max())}
        for name, (holds, errors) in sorted(checks.items(), key=lambda item: FORMS.index(item[0]))
    }


def moved(network: Network, images: np.ndarray) -> dict[str, float]:
    """Return the relative change of each parameter of the closed form on another image."""

    @jax.jit
    def parameters(image: jax.Array) -> list[jax.Array]:
        form = duat.unroll(partial(logits_of, network), pixels_of(image))
        last = len(form.terms)
        maps = (form.input_map(), form.inner_map(last), form.outer_map(1))
        return [*(linear.dense() for linear in maps), form.bias(), form.inner_bias(last)]

    changes = []
    for pair in images.reshape(-1, 2, *images.shape[1:]):
        both = zip(*map(parameters, pair), strict=True)
        changes.append([float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a)) for a, b in both])
    return dict(zip(PARAMETERS, np.mean(changes, 0).tolist(), strict=True))


def of_patches(parts: jax.Array) -> jax.Array:
    """Return the sums over patches, `[patches]`."""
    side = SIDE // PATCH
    return parts.reshape(side, PATCH, side, PATCH).sum((1, 3)).ravel()


def kept_of(image: jax.Array, kept: jax.Array) -> jax.Array:
    """Return an image with all patches but the kept ones set to paper."""
    side = SIDE // PATCH
    return image * jnp.repeat(jnp.repeat(kept.reshape(side, side), PATCH, 0), PATCH, 1)[..., None]


def rankers() -> dict[str, Callable]:
    """Return the methods that rank patches, by name: each maps a logit and an image to a score for every patch."""

    def left_out(logit: Callable, x: jax.Array, key: jax.Array) -> jax.Array:
        return logit(x) - jax.vmap(lambda kept: logit(kept_of(x, kept)))(1 - jnp.eye(PATCHES))

    return {
        "secant to paper": lambda logit, x, key: of_patches(duat.secant(logit)(x, jnp.zeros_like(x)).parts),
        "collapse": lambda logit, x, key: of_patches(
            duat.collapse(lambda x: logit(x)[None], x).linear.T(jnp.ones(1)) * x
        ),
        "gradient × ink": lambda logit, x, key: of_patches(jax.grad(logit)(x) * x),
        "leave one out": left_out,
        "random": lambda logit, x, key: jax.random.normal(key, (PATCHES,)),
    }


def faithfulness(network: Network, images: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Return the mean probability of the class as patches are deleted and inserted in each method's order."""

    def curves(image: jax.Array, key: jax.Array) -> dict[str, tuple[jax.Array, jax.Array]]:
        x = pixels_of(image)
        likely = one_hot_of_the_largest(logits_of(network, x))

        def logit(x: jax.Array) -> jax.Array:
            return logits_of(network, x) @ (likely - 1 / len(likely))

        def probability(kept: jax.Array) -> jax.Array:
            return jax.nn.softmax(logits_of(network, kept_of(x, kept))) @ likely

        means = {}
        for name, rank in rankers().items():
            first = jnp.argsort(jnp.argsort(-rank(logit, x, key)))
            put_in = (first[None] < jnp.arange(PATCHES + 1)[:, None]).astype(x.dtype)
            means[name] = tuple(jax.vmap(probability)(kept).mean() for kept in (1 - put_in, put_in))
        return means

    keys = jax.random.split(jax.random.key(0), len(images))
    means_of = jax.device_get(jax.jit(jax.vmap(curves))(jnp.asarray(images), keys))
    return {
        name: {
            kind: np.round(means, 5).tolist()
            for kind, means in zip(("deletion", "insertion"), means_of[name], strict=True)
        }
        for name in rankers()
    }


def trained(name: str, seed: int, digits: Digits) -> Network:
    """Train a network."""
    return train_classifier(NETWORKS[name](nnx.Rngs(seed)), digits.images, digits.labels, seed=seed)


def time_of_training(name: str, digits: Digits) -> dict[str, float]:
    """Return the wall-clock time and the processor time of one training, compilation included."""
    began = time.perf_counter(), time.process_time()
    jax.block_until_ready(jax.tree.leaves(trained(name, SHOWN_SEED, digits)))
    return {"seconds": time.perf_counter() - began[0], "processor_seconds": time.process_time() - began[1]}


def measure(name: str, seed: int, digits: Digits) -> dict[str, Any]:
    """Run all measurements of one network."""
    network = trained(name, seed, digits)
    result: dict[str, Any] = {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(network)),
        "accuracy": accuracy(network, digits.held_out_images, digits.held_out_labels),
        "faithfulness": faithfulness(network, digits.held_out_images[:REMOVED]),
    }
    if seed == SHOWN_SEED:
        images = digits.held_out_images[:EXACT]
        result["exact"] = {str(jnp.dtype(t)): exactness(network, images, t) for t in (jnp.float32, jnp.float64)}
        result["moved"] = moved(network, digits.held_out_images[: 2 * PAIRS])
        draw(name, network, digits)
    return result


def draw(name: str, network: Network, digits: Digits) -> None:
    """Save the plot of one digit."""
    image = digits.held_out_images[np.flatnonzero(digits.held_out_labels == DRAWN)[0]]
    if isinstance(network, duat.models.Transformer):
        figure = duat.explain(network, image, duat.targets.ClassLogit(str(DRAWN))).plot()
    else:
        pixels = jnp.asarray(image)
        figure = duat.image_maps(lambda pixels: network(pixels)[DRAWN], pixels, jnp.zeros_like(pixels)).plot()
    figure.savefig(PICTURES / f"images-{name.split()[-1].lower()}.png", dpi=80)


def _page(times: dict[str, dict[str, float]], measured: dict[str, dict[str, Any]]) -> str:
    """Return the tables of the page."""
    head = ["network", "parameters", "training, processor time", "held-out accuracy, seed by seed"]
    rows = []
    for name, runs in measured.items():
        right = ", ".join(f"{100 * run['accuracy']:.1f} %" for run in runs.values())
        size = runs[str(SHOWN_SEED)]["parameters"]
        rows.append([name, f"{size:,}", f"{times[name]['processor_seconds']:.0f} s", right])
    lines = ["### What was trained", "", *table(head, rows)]
    of_dtype = [f"{dtype}: {what}" for dtype in ("float32", "float64") for what in ("holds on", "largest error")]
    head = ["network", "form", *of_dtype]
    rows = []
    for name, runs in measured.items():
        exact = runs[str(SHOWN_SEED)]["exact"]
        for form in exact["float32"]:
            checks = [exact[dtype][form] for dtype in ("float32", "float64")]
            cells = [(f"{check['hold']} of {check['asked']}", f"{check['largest_error']:.0e}") for check in checks]
            rows.append([name, form, *cells[0], *cells[1]])
    lines += ["", "### How exact the sums are", "", *table(head, rows)]
    first_seed = {name: runs[str(SHOWN_SEED)]["moved"] for name, runs in measured.items()}
    rows = []
    for parameter in next(iter(first_seed.values())):
        changes = (moved[parameter] for moved in first_seed.values())
        rows.append([parameter, *("0, exactly" if change == 0 else f"{100 * change:.0f} %" for change in changes)])
    lines += ["", "### Which parameters move", "", *table(["parameter", *first_seed], rows)]
    for name, runs in measured.items():
        # One number for each image: trainings that read the same image aren't independent.
        faithfulness_of_runs = [run["faithfulness"] for run in runs.values()]
        together = {
            ranker: {
                kind: np.mean([run[ranker][kind] for run in faithfulness_of_runs], 0)
                for kind in ("deletion", "insertion")
            }
            for ranker in faithfulness_of_runs[0]
        }
        first = next(iter(together))
        lines += ["", f"### Which method finds the pixels that matter: {name}"]
        head = ["ranked by", "deletion ↓", "insertion ↑", "the first is ahead by: deletion", "insertion"]
        rows = []
        for ranker, both in together.items():
            ahead = [
                "" if ranker == first else interval(sign * (together[first][kind] - both[kind]), sign="+")
                for kind, sign in (("deletion", -1), ("insertion", 1))
            ]
            rows.append([ranker, interval(both["deletion"]), interval(both["insertion"]), *ahead])
        lines += ["", *table(head, rows)]
    return "\n".join(lines)


def fields(results: dict[str, Any]) -> Fields:
    """Return the fields of the documentation pages."""
    tables = _page(results["times"], results["networks"])
    return {"tables": tables, **cells(tables)}


def main() -> None:
    """Run missing trainings and measurements, seed by seed, and store the results."""
    WORK.parent.mkdir(parents=True, exist_ok=True)
    work = {"seeds": list(SEEDS), "exact": EXACT, "pairs": PAIRS, "removed": REMOVED}
    journal, digits = Journal(WORK, work), load_digits()
    measured: dict[str, dict[str, Any]] = {name: {} for name in NETWORKS}
    for seed in SEEDS:
        for name in NETWORKS:
            result = journal.once(f"{name}, seed {seed}", lambda name=name, seed=seed: measure(name, seed, digits))
            measured[name][str(seed)] = result
            print(name, seed, f"accuracy {result['accuracy']:.3f}", flush=True)
        times = {
            name: journal.once(f"{name}, time", lambda name=name: time_of_training(name, digits)) for name in NETWORKS
        }
        keep({"environment": environment(), **work, "times": times, "networks": measured})


def keep(results: dict[str, Any]) -> None:
    """Write the results and the page's tables."""
    RESULTS.write_text(json.dumps(results, allow_nan=False) + "\n")
