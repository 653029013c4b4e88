"""Plot of the loss of pruned models."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from duat_jax.display.pictures import styled
from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.study import Pruner

STYLES = dict(zip(COMPENSATIONS, (":", "--", "-"), strict=True))
COLOURS = 10


@styled
def draw(dense: float, losses: Mapping[Pruner, float]) -> Figure:
    """Plot the loss against the fraction of neurons or layers removed, a line for each ranking and compensation.

    Args:
        dense: the loss of the unpruned model.
        losses: the losses of the pruned models.
    """
    figure = Figure(figsize=(7.0, 4.5))
    axis = figure.subplots()
    methods = list(dict.fromkeys(pruner.method for pruner in losses))
    for method, compensation in dict.fromkeys((pruner.method, pruner.compensation) for pruner in losses):
        line = sorted(
            (pruner.fraction, loss) for pruner, loss in losses.items() if pruner[:2] == (method, compensation)
        )
        shares, heights = zip((0.0, dense), *line, strict=True)
        colour = f"C{methods.index(method) % COLOURS}"
        axis.plot(
            [100 * share for share in shares],
            heights,
            STYLES[compensation],
            marker=".",
            color=colour,
            label=f"{method}, {compensation}",
        )
    axis.axhline(dense, color="black", linewidth=0.6)
    axis.set_xlabel(f"% of {' and '.join(dict.fromkeys(pruner.what for pruner in losses))} removed")
    axis.set_ylabel("loss on other text, nats per token")
    axis.legend()
    return figure
