"""The tables of a survey, as Parquet files and as data frames."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from jaxtyping import Int

from duat_jax.display.examples import FILE, Example, Examples, as_bytes
from duat_jax.errors import InvalidInput, warn_caller
from duat_jax.extras import requiring
from duat_jax.files import path_of, write_file
from duat_jax.inputs.labels import readable
from duat_jax.models.vocabulary.running import run_texts
from duat_jax.sealed import digest_of
from duat_jax.survey.state import BOUNDS, State, UnitStatistics

if TYPE_CHECKING:
    import pandas as pd
    from tokenizers import Tokenizer

TABLES = ("neurons", "heads", "parts", "contexts", "sample")
"""The names of the tables, and of their files."""

WITHOUT_DIGESTS = 2
"""The version of surveys whose tables have no digests."""

CONTRIBUTION, DIFFERENCE = "contribution", "difference"
"""The columns of units' parts: of a number at one input, and of its difference from a baseline."""

BEFORE, AFTER = 12, 4
"""The number of tokens that a context shows before its token and after it."""


@final
@dataclass(frozen=True)
class Survey:
    """The tables of a survey; each is also a Parquet file of the same name, for DuckDB or Arrow.

    Args:
        manifest: what was surveyed: hashes of model and corpus, the windows' length and number.
        neurons: a row for every neuron: its mean contribution and activation by token, with standard deviations, and
            bounds of the activation's quantiles. Against a baseline the column is called `difference`, and holds the
            neuron's part of that; so in the other tables.
        heads: the same for every head; the activation of a head is the norm of what it mixes.
        parts: for the margin or the logit, the embeddings, every layer's neurons, and every bias: the sum by token.
            Against a baseline also every layer's heads, and no biases, which don't differ.
        contexts: of every neuron and head the tokens with the highest and lowest contributions and the strongest
            activations.
        sample: tokens drawn at random, with every neuron's activation, in columns `layer:neuron`.
    """

    manifest: dict[str, Any]
    neurons: "pd.DataFrame"
    heads: "pd.DataFrame"
    parts: "pd.DataFrame"
    contexts: "pd.DataFrame"
    sample: "pd.DataFrame"

    def __repr__(self) -> str:
        tokens, worst = self.manifest["predicted"], self.manifest["worst"]
        counts = f"{tokens:,} predicted tokens, {len(self.neurons):,} neurons"
        return f"Survey({counts}, worst error {worst:.2g} of its tolerance)"


def require_tables() -> None:
    """Raise if what writes tables isn't installed."""
    with requiring("survey", "a survey"):
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401


def read(directory: Path | str) -> Survey:
    """Read the tables of a survey.

    Args:
        directory: where the survey was kept.

    Raises:
        InvalidInput: if there is none, it isn't finished, or a table is damaged or another survey's.
    """
    place = path_of(directory, "a survey's directory")
    require_tables()
    import pandas as pd

    if not (place / "survey.json").exists():
        state = "isn't finished: run it again" if (place / "manifest.json").exists() else "isn't there"
        raise InvalidInput(f"the survey in {place} {state}")
    manifest = _manifest(place / "survey.json")
    digests = manifest.pop("tables", {})  # which surveys of older versions lack
    frames = []
    for name in TABLES:
        content = (place / f"{name}.parquet").read_bytes()
        if name in digests and digests[name] != sha256(content).hexdigest():
            raise InvalidInput(f"{place / name}.parquet is damaged, or another survey's: run the survey again")
        frames.append(pd.read_parquet(BytesIO(content)))
    return Survey(manifest, *frames)


def _manifest(file: Path) -> dict[str, Any]:
    """Read what was surveyed; raise unless it has its digest, or is of an older version without one."""
    try:
        manifest = json.loads(file.read_bytes())
        digest = manifest.pop("digest", None)
    except (ValueError, AttributeError):
        manifest, digest = {}, ""
    if digest is None and manifest.get("version") == WITHOUT_DIGESTS:
        warn_caller(f"{file} is of an older duat-jax, without digests: changes of its tables can't be seen")
    elif digest != digest_of(manifest):
        raise InvalidInput(f"{file} is damaged: run the survey again")
    return manifest


def write(
    place: Path,
    state: State,
    manifest: dict[str, Any],
    corpus: Int[np.ndarray, "windows tokens"],
    tokenizer: "Tokenizer",
) -> None:
    """Write the tables of a survey."""
    import pandas as pd

    names = {kind: sorted((n for n in state.units if n.endswith(kind)), key=_layer) for kind in ("neurons", "heads")}
    what = column(manifest)
    frames = {
        kind: pd.concat(
            [_units(state.units[name], kind[:-1], _layer(name), state.predicted, what) for name in names[kind]]
        )
        for kind in names
    }
    # At one input heads are another account of the number, beside that of neurons and biases.
    summed = names["neurons"] if what == CONTRIBUTION else [*names["heads"], *names["neurons"]]
    sums = dict(state.sums) | {name: float(state.units[name].contribution.sum()) for name in summed}
    frames["parts"] = pd.DataFrame({"part": list(sums), what: np.array(list(sums.values())) / state.predicted})
    frames["contexts"] = pd.concat(
        [_contexts(state.units[name], kind[:-1], _layer(name), what) for kind in names for name in names[kind]]
    )
    kept = state.sample.places >= 0
    sample = pd.DataFrame({"place": state.sample.places[kept]})
    activations = {
        f"{_layer(name)}:{unit}": values[kept, unit]
        for name, values in ((name, state.sample.activations[name]) for name in names["neurons"])
        for unit in range(values.shape[1])
    }
    frames["sample"] = pd.concat([sample, pd.DataFrame(activations)], axis=1)
    for name in ("contexts", "sample"):
        frames[name] = _readable(frames[name], corpus, tokenizer)
    digests = {}
    for name, frame in frames.items():
        file = BytesIO()
        frame.reset_index(drop=True).to_parquet(file)
        write_file(place / f"{name}.parquet", file.getvalue())
        digests[name] = sha256(file.getvalue()).hexdigest()
    write_file(place / FILE, as_bytes(_examples(frames["contexts"], manifest, state.predicted)))
    finished = manifest | {"predicted": state.predicted, "worst": state.worst, "tables": digests}
    finished["digest"] = digest_of(finished)
    write_file(place / "survey.json", (json.dumps(finished, indent=1) + "\n").encode())


def column(manifest: Mapping[str, Any]) -> str:
    """Return the name of the column that holds the parts of the explained number."""
    return CONTRIBUTION if manifest.get("baseline") is None else DIFFERENCE


def _examples(contexts: "pd.DataFrame", manifest: dict[str, Any], tokens: int) -> Examples:
    """Return the texts in which each neuron is strongest."""
    strongest = contexts[(contexts.kind == "neuron") & (contexts.what == "strongest activation")]
    layers: dict[int, list[list[Example]]] = {}
    for (layer, neuron), rows in strongest.groupby(["layer", "unit"]):
        neurons = layers.setdefault(int(layer), [])
        neurons += [[] for _ in range(neuron - len(neurons))]
        texts = zip(rows.before, rows.token, rows.after, rows.value, strict=True)
        neurons.append([Example(before, token, after, float(f"{v:.4g}")) for before, token, after, v in texts])
    return Examples(manifest["model"], manifest["family"], tokens, layers)


def _layer(name: str) -> int:
    return int(name.partition("layers.")[2].split(".")[0].split("/")[0])


def _units(units: UnitStatistics, kind: str, layer: int, count: int, what: str) -> "pd.DataFrame":
    import pandas as pd

    columns: dict[str, Any] = {"layer": layer, kind: np.arange(len(units.contribution))}
    for name, field in ((what, "contribution"), ("activation", "activation")):
        mean, square = (getattr(units, each) / count for each in (field, f"{field}_squared"))
        columns |= {name: mean, f"{name}_std": np.sqrt(np.maximum(square - mean**2, 0))}
    for share in (0.1, 0.5, 0.9):
        columns[f"activation_at_most_{share:.0%}".replace("%", "")] = BOUNDS[
            (units.counts.cumsum(0) < share * count).sum(0)
        ]
    return pd.DataFrame(columns)


def _contexts(units: UnitStatistics, kind: str, layer: int, part: str) -> "pd.DataFrame":
    import pandas as pd

    frames = []
    for what, extremes, sign in (
        (f"highest {part}", units.highest, 1),
        (f"lowest {part}", units.lowest, -1),
        ("strongest activation", units.strongest, 1),
    ):
        unit, rank = np.nonzero(extremes.places >= 0)
        columns = {"kind": kind, "layer": layer, "unit": unit, "what": what, "rank": rank}
        entries = {"value": sign * extremes.values[unit, rank], "place": extremes.places[unit, rank]}
        frames.append(pd.DataFrame(columns | entries))
    return pd.concat(frames)


def _readable(
    frame: "pd.DataFrame", corpus: Int[np.ndarray, "windows tokens"], tokenizer: "Tokenizer"
) -> "pd.DataFrame":
    """Add the token of each place, the tokens before it and those after it, as text."""
    places = frame["place"].unique()
    windows, tokens = np.divmod(places, corpus.shape[1])
    there = corpus[windows, tokens].tolist()

    def runs(window: int, token: int) -> list[list[int]]:
        """Return the token before those that are shown, these, the token itself, and those that are shown after it."""
        cuts = (max(0, cut) for cut in (token - BEFORE - 1, token - BEFORE, token, token + 1, token + 1 + AFTER))
        return [corpus[window, begin:end].tolist() for begin, end in pairwise(cuts)]

    texts = run_texts(tokenizer, map(runs, windows, tokens))
    values = {
        "before": [before for _, before, _, _ in texts],
        "token": [str(token) for token in readable(tokenizer, there)],
        "token_id": there,
        "after": [after for *_, after in texts],
    }
    columns = {name: frame["place"].map(dict(zip(places.tolist(), each, strict=True))) for name, each in values.items()}
    window, token = np.divmod(frame["place"], corpus.shape[1])
    return frame.drop(columns="place").assign(window=window, position=token, **columns)
