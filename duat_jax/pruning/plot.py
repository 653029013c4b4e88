"""What pruned models lose, as one picture."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from duat_jax.pruning.compensation import COMPENSATIONS
from duat_jax.pruning.study import Pruner

STYLES = dict(zip(COMPENSATIONS, (":", "--", "-"), strict=True))
COLOURS = 10


def draw(dense: float, losses: Mapping[Pruner, float]) -> Figure:
    """Return the loss over the share of neurons or layers that is gone, a line for each ranking and compensation.

    Args:
        dense: the loss of the whole model.
        losses: those of the pruned ones.
    """
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axis = figure.subplots()
    methods = list(dict.fromkeys(one.method for one in losses))
    for method, how in dict.fromkeys((one.method, one.compensation) for one in losses):
        line = sorted((one.fraction, loss) for one, loss in losses.items() if one[:2] == (method, how))
        shares, heights = zip((0.0, dense), *line, strict=True)
        colour = f"C{methods.index(method) % COLOURS}"
        axis.plot(
            [100 * share for share in shares], heights, STYLES[how], marker=".", color=colour, label=f"{method}, {how}"
        )
    axis.axhline(dense, color="black", linewidth=0.6)
    axis.set_xlabel(f"% of {' and '.join(dict.fromkeys(one.what for one in losses))} removed")
    axis.set_ylabel("loss on other text, nats per token")
    axis.legend(frameon=False, fontsize="small")
    return figure
