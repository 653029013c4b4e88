"""A budget of bits: the matrices of a rounded model that get eight bits, and the loss on fresh text with them."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Int
from rich.console import Group, RenderableType
from rich.text import Text

from duat_jax.display.tables import NumberTable
from duat_jax.errors import DuatError, InvalidInput
from duat_jax.evaluation.running_text import mean_loss
from duat_jax.models.config import Config
from duat_jax.models.transformer import Transformer
from duat_jax.weights.record import Budget
from duat_jax.weights.rounded import FINER, rounded, sizes_of_matrices, within_budget

DRAWS = 5
"""The number of random choices that stand beside."""


def require_budget(config: Config, bits: int, share: float) -> None:
    """Raise unless a budget leaves a choice, and can be judged by the loss of a model."""
    if config.head.kind != "next token":
        raise InvalidInput(
            f"a budget is judged by the loss of the next token, which this {config.family} model has not"
        )
    if bits >= FINER:
        raise DuatError(f"a budget gives {FINER} bits to some matrices: round the others to fewer than these")
    if not 0 < share < 1:
        raise DuatError(f"a budget of {share}: give a share above 0 and below 1")


def spend(
    model: Transformer,
    parts: Mapping[str, float],
    bits: int,
    share: float,
    fresh: Int[np.ndarray, "pieces tokens"],
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Budget:
    """Choose the matrices that get eight bits by the sizes of their parts, and measure the loss on fresh text."""
    require_budget(model.config, bits, share)
    sizes = sizes_of_matrices(model)
    finer = within_budget({name: abs(parts[name]) for name in sizes}, sizes, share)
    draw = np.random.default_rng(seed)
    drawn = [
        within_budget({name: size * draw.random() for name, size in sizes.items()}, sizes, share) for _ in range(DRAWS)
    ]
    choices = [[], finer, *drawn, list(sizes)]
    losses = [mean_loss(model, fresh)]
    for done, names in enumerate(choices, 1):
        losses.append(mean_loss(rounded(model, bits, names), fresh))
        if progress is not None:
            progress(done, len(choices))
    original, none, chosen, *random, everything = losses
    return Budget(bits, share, finer, original, none, chosen, random, everything)


def render(budget: Budget) -> RenderableType:
    """Return the table of a budget."""
    table = NumberTable("matrices", "loss", title="A budget of bits, judged on fresh text")
    rows = {
        "not rounded": budget.original,
        f"all in {FINER} bits": budget.all,
        f"all in {budget.bits} bits": budget.none,
        f"{len(budget.finer)} with the largest parts in {FINER} bits": budget.chosen,
        f"as many weights, drawn at random, mean of {len(budget.random)}": float(np.mean(budget.random)),
    }
    for name, loss in rows.items():
        table.add_row(name, f"{loss:z.4f}")
    names = ", ".join(budget.finer) or "none fits"
    return Group(table, "", Text(f"Within {budget.share:.0%} of the weights: {names}"))
