"""List every derivation by its name, for the command line and the documents."""

from collections.abc import Callable
from functools import partial

from symbolic.audit.diamond_product import diamond_derivation
from symbolic.blocks.block import Block
from symbolic.blocks.transformer import BLOCKS, transformer_block
from symbolic.errors import SymbolicError
from symbolic.proof.derivation import Derivation
from symbolic.theorems.closed_form import prove, recursions, two_layers
from symbolic.theorems.consequences import collapse, contributions
from symbolic.theorems.difference import difference
from symbolic.theorems.lora import lora
from symbolic.theorems.memory import constant_memory, memory
from symbolic.theorems.recurrence import one_decay, order_of_layers, recurrence
from symbolic.theorems.stream_stack import StreamStack
from symbolic.theorems.streams import streams as of_streams
from symbolic.theorems.uat_sums import lemma_1, pruning
from symbolic.theorems.unrolled import unroll
from symbolic.vectorisation.attention import attention_derivation
from symbolic.vectorisation.density import density_derivation
from symbolic.vectorisation.linear import linear_derivation, mlp_derivation, normalisation_derivation
from symbolic.vectorisation.secant import attention_difference

KINDS: dict[str, Callable[[], Block]] = {
    name + ending: partial(transformer_block, name, gated=bool(ending)) for name in BLOCKS for ending in ("", "-gated")
}
"""Block types by name, each also with a gated MLP, such as `pre-norm-gated`."""

_FIXED: dict[str, Callable[[], Derivation]] = {
    "two-layers": two_layers,
    "recursions": recursions,
    "collapse": collapse,
    "contributions": contributions,
    "difference": difference,
    "linear": linear_derivation,
    "attention": attention_derivation,
    "attention-difference": attention_difference,
    "normalisation": normalisation_derivation,
    "mlp": mlp_derivation,
    "density": density_derivation,
    "diamond": diamond_derivation,
    "lemma": lemma_1,
    "lora": lora,
    "pruning": pruning,
}

WHAT = ("unroll", "proof", "block", "streams", "memory", "recurrence", *_FIXED)

_WITH_BLOCK = ("unroll", "proof", "block", "difference")


def derive(
    what: str = "recursions",
    *,
    depth: int | None = None,
    block: str | None = None,
    letters: bool = False,
    streams: int | None = None,
    terms: int | None = None,
) -> tuple[Derivation, ...]:
    """Return derivations by name.

    Args:
        what: one of `WHAT`.
        depth: number of layers, for `unroll`; 2 if absent.
        block: a block type, for `unroll`, `proof`, `block` and `difference`: one of `BLOCKS`, or `pre-norm-gated` and
            the like, where the MLP is gated; all if absent for `proof` and `block`.
        letters: whether a block's parameters stay letters in its proof, which defines them; else a derivation of
            its own does.
        streams: number of streams, for `streams`; 2 if absent.
        terms: number of terms of a layer, for `streams`; 2 if absent.

    Raises:
        SymbolicError: if there is no such derivation or block, or it doesn't take what is given.

    Example:
        >>> [d.verified for d in derive("proof", block="parallel")]
        [True, True]
        >>> print(derive("streams", streams=3, terms=1)[0].verdict)
        10 of 10 checks hold, by induction, with 38 definitions
    """
    if what not in WHAT:
        raise SymbolicError(f"there is no derivation {what!r}: choose one of {', '.join(WHAT)}")
    if depth is not None and what != "unroll":
        raise SymbolicError(f"{what} has no depth: it holds for every one; leave the depth out, or ask for unroll")
    if block is not None and what not in _WITH_BLOCK:
        raise SymbolicError(
            f"{what} is the same for every block: leave the block out, or ask for {', '.join(_WITH_BLOCK)}"
        )
    if block is not None and block not in KINDS:
        raise SymbolicError(f"there is no block {block!r}: choose one of {', '.join(KINDS)}")
    counts = {"streams": streams, "terms": terms}
    if what != "streams" and (given := [name for name, number in counts.items() if number is not None]):
        raise SymbolicError(f"{what} has no number of {given[0]}: leave it out, or ask for streams")
    blocks = (kind() for name, kind in KINDS.items() if block in (None, name))
    match what:
        case "unroll":
            layers = 2 if depth is None else depth
            if block is None:
                return (unroll(layers),)
            return tuple(each.unroll(layers) for each in blocks)
        case "proof":
            generic = (prove(),) if block is None else ()
            if letters:
                return (*generic, *(each.prove(letters=True) for each in blocks))
            return (*generic, *(part for each in blocks for part in (each.residual_terms(), each.prove())))
        case "block":
            return tuple(each.residual_terms() for each in blocks)
        case "streams":
            return (of_streams(StreamStack.of(*(2 if number is None else number for number in counts.values()))),)
        case "memory":
            return memory(), constant_memory()
        case "recurrence":
            return recurrence(), order_of_layers(), one_decay()
        case "difference" if block is not None:
            return tuple(each.difference() for each in blocks)
        case _:
            return (_FIXED[what](),)
