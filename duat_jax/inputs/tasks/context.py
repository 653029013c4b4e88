"""Tasks of which the answer stands in the text."""

from random import Random

from duat_jax.inputs.tasks.case import Case
from duat_jax.inputs.tasks.vocabulary import NAMES, words


def indirect_object(draw: Random) -> Case:
    """Return two people of whom one gives something to the other; flipped is who gives.

    Args:
        draw: what it is drawn with.

    Source: Wang et al., "Interpretability in the Wild", 2023.
    """
    first, second = draw.sample(NAMES, 2)
    place = draw.choice(words("store park school station office garden hospital restaurant library market"))
    thing = draw.choice(words("drink book ring ball gift letter key ticket coat flower"))
    went = draw.choice(("went to", "were at", "came to", "left"))
    text = f"When {first} and {second} {went} the {place}, {{}} gave a {thing} to"
    return Case(text.format(second), text.format(first), f" {first}", f" {second}")


PARAMETERS = words(
    "default value missing encoding timeout limit size length offset start stop mode name prefix suffix count index"
    " level width format errors flags version port host callback options config context buffer"
)


def parameter(draw: Random) -> Case:
    """Return a Python method that passes its parameters on; flipped is the second one's name.

    Args:
        draw: what it is drawn with.
    """
    one, other = draw.sample(PARAMETERS, 2)
    method = draw.choice(words("get find read load open send write call update remove create check"))
    first = draw.choice(words("key path data item file node object request message func"))
    text = f"def {method}(self, {first}, {{}}=None): return self.{draw.choice(('data', 'file'))}.{method}({first},"
    return Case(text.format(one), text.format(other), f" {one}", f" {other}")
