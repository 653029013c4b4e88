"""The arrays that devices send each other in a compiled program."""

import re

OPERATION = re.compile(r"= (.*?) (all-\w+|collective-\w+|reduce-scatter)(?:-start)?\(")
SHAPE = re.compile(r"\w+\[([\d,]*)\]")


def sent(program: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return of every array that a program sends the kind of operation and the shape; a loop's body counts once.

    Compilers send several arrays in one operation: each is listed.

    Args:
        program: the compiled program's text.

    Example:
        >>> sent("  %x = (f32[4,8]{1,0}, f32[2]{0}) all-reduce(%y, %z), channel_id=1")
        [('all-reduce', (4, 8)), ('all-reduce', (2,))]
    """
    return [
        (kind, tuple(map(int, filter(None, shape.split(",")))))
        for line in program.splitlines()
        for arrays, kind in OPERATION.findall(line)
        for shape in SHAPE.findall(arrays)
    ]
