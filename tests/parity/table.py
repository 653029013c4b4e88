"""Write `docs/reference/tables/families.md`: family × switch × head, with measured parity and exactness.

Run `.venv-reference/bin/python -m tests.parity.table`, in the environment of `make parity`.
"""

import re
import tempfile
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

import duat_jax as duat
from experiments.markdown import table
from experiments.pages import write_pages

from .cases import DTYPES, Case, cases, errors, inputs, reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables" / "families.md"


def exactness(model: duat.models.Transformer, given: jax.Array) -> float:
    """Return the error of the complete table of one output in tolerances: the largest entry of the last token's.

    Args:
        model: the model, in float64.
        given: the text or image.
    """

    def outputs(x: jax.Array) -> jax.Array:
        return jnp.atleast_2d(model.output(x))[-1]

    x = model.embed(given)
    largest = jnp.abs(outputs(x)).argmax()
    completeness = duat.decompose(lambda x: outputs(x)[largest], x).completeness
    return float(np.max(abs(completeness.error) / completeness.tolerance))


def row(case: Case) -> list[str]:
    """Return what is measured of a case: parity in each precision, and exactness.

    Args:
        case: the case.
    """
    if case.refused:
        return [case.switch, case.head, "refused by name", "", ""]
    with tempfile.TemporaryDirectory() as folder:
        expected = reference(case, Path(folder))
        parity = [max(errors(case, Path(folder), expected[dtype], dtype).values()) for dtype in DTYPES]
        model = duat.load(folder, dtype=jnp.float64)
    return [
        case.switch,
        case.head,
        *(f"{error:.0e}" for error in parity),
        f"{exactness(model, jnp.asarray(inputs(case))):.2f}",
    ]


def page() -> str:
    """Return the page: its introduction as it is, with the version that is compared with, and the tables."""
    introduction = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    lines = [re.sub(r"(?<=`transformers` )[\d.]*\d", version("transformers"), introduction)]
    for family, group in groupby(track(list(cases())), lambda case: case.family):
        lines += [f"\n## {family}\n", *table(["switch", "head", "float32", "float64", "exactness"], map(row, group))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    # Hundreds of small programs that run once: it costs less to optimise them less.
    jax.config.update("jax_disable_most_optimizations", True)
    PAGE.write_text(page(), encoding="utf-8")
    write_pages()
