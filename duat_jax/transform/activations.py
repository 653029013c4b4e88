"""The terms of a recording, each evaluated from its own pre-activation."""

from collections import defaultdict

from duat_jax.transform import marks
from duat_jax.transform.interpret import Seen, evaluate
from duat_jax.transform.keys import Key, Site
from duat_jax.transform.liveness import ProgramQuestion
from duat_jax.transform.program import Program
from duat_jax.transform.recording import Recording


def activations_of(recording: Recording, pre_activations: Seen) -> Seen:
    """Compute `σ(z)` of every term; of a term within another's `σ` that one computes its pre-activation itself."""
    recording.traced.affinity.require(value=False)
    program, activations = recording.program, Seen()
    holds, levels = program.of_kind(marks.HOLD), _levels(program)
    for depth in sorted(levels):
        provided = {*holds, *levels[depth]}
        wanted = frozenset(site._replace(kind=marks.ACTIVATION) for site in levels[depth])
        question = ProgramQuestion(frozenset(provided), wanted=wanted, value=False)
        values = {site: pre_activations[site] if site in pre_activations else recording.seen[site] for site in provided}
        live = recording.traced.live(question)
        activations |= evaluate(program, recording.constants, recording.arguments, question, values, live)[1]
    return {site: activations[site] for site in program.of_kind(marks.ACTIVATION)}


def _levels(program: Program) -> dict[int, list[Site]]:
    """Return the pre-activations of all terms by the number of terms within whose `σ` they stand."""
    around = set[Key]()
    levels = defaultdict[int, list[Site]](list)
    for site in program.of_kind(marks.PRE_ACTIVATION, marks.ACTIVATION):
        if site.kind == marks.PRE_ACTIVATION:
            levels[len(around)].append(site)
            around.add(site.key)
        else:
            around.discard(site.key)
    return levels
