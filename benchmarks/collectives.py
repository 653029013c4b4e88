"""The arrays that devices send each other in a compiled program."""

import re

OPERATION = re.compile(r"= (.*?) (all-\w+|collective-\w+|reduce-scatter)(?:-start)?\((.*)")
CHANNEL = re.compile(r"channel_id=\d+")
SHAPE = re.compile(r"\w+\[([\d,]*)\]")


def sent(program: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return of every array that a program sends the kind of operation and its shape there; a loop's body counts once.

    Compilers send several arrays in one operation: each is listed. A TPU's write one operation in several places,
    by the name of its channel: it counts once.

    Args:
        program: the compiled program's text.

    Example:
        >>> sent("  %x = (f32[4,8]{1,0}, f32[2]{0}) all-reduce(%y, %z), channel_id=1")
        [('all-reduce', (4, 8)), ('all-reduce', (2,))]
        >>> sent("  %x = (f32[2]{0}, f32[4]{0}, u32[]) all-gather-start(%y), channel_id=1")
        [('all-gather', (4,))]
    """
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for line in program.splitlines():
        for results, kind, rest in OPERATION.findall(line):
            count = rest.partition("), ")[0].count("%")
            shapes = SHAPE.findall(results)
            # What starts to be sent stands before what arrives, and before the operation's own counters.
            arriving = shapes[count : 2 * count] if len(shapes) >= 2 * count else shapes
            channel = CHANNEL.search(rest)
            found[line if channel is None else channel[0]] = [
                (kind, tuple(map(int, filter(None, shape.split(","))))) for shape in arriving
            ]
    return [array for arrays in found.values() for array in arrays]
