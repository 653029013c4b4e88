"""Tasks of which the answer stands in the text."""

from random import Random

from duat_jax.inputs.tasks.case import Case, of_two
from duat_jax.inputs.tasks.vocabulary import NAMES, words


def indirect_object(draw: Random) -> Case:
    """Return two people of whom one gives something to the other; flipped is who gives."""
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
    """Return a Python method that passes its parameters on; flipped is the second one's name."""
    name, other = draw.sample(PARAMETERS, 2)
    method = draw.choice(words("get find read load open send write call update remove create check"))
    first = draw.choice(words("key path data item file node object request message func"))
    text = f"def {method}(self, {first}, {{}}=None): return self.{draw.choice(('data', 'file'))}.{method}({first},"
    return Case(text.format(name), text.format(other), f" {name}", f" {other}")


NOUNS = words(
    "door fish lamp tree cup river stone bread horse king paper glass road wind song milk ship moon table bird rope"
    " gold snow field hand wheel star bell rain salt"
)


def repetition(draw: Random) -> Case:
    """Return random words of which three, one after another, are repeated; flipped is the word after these."""
    *sequence, other = draw.sample(NOUNS, 9)
    end = draw.randrange(4, 8)
    right, repeated = sequence[end], sequence[end - 3 : end]
    flipped = [*sequence[:end], other, *sequence[end + 1 :]]
    return Case(" ".join(sequence + repeated), " ".join(flipped + repeated), f" {right}", f" {other}")


THINGS = words(
    "key ring ball book letter coin cup knife map watch pen hat shoe apple stone shell doll rope lamp toy phone card"
    " flag bell candle"
)
PROPERTIES = words(
    "old new big small heavy light clean dirty broken wet dry round flat thin thick soft hard red blue green black"
    " white"
)


def property_of(draw: Random) -> Case:
    """Return two things with a property each, and one of them again before its property; flipped is which one."""
    things, properties = draw.sample(THINGS, 2), draw.sample(PROPERTIES, 2)
    first, second = (f"the {thing} is {what}" for thing, what in zip(things, properties, strict=True))
    knowing = draw.choice(("I like", "I see", "We know"))
    text = f"{first.capitalize()} and {second}. {knowing} that the {{}} is"
    return of_two(draw, list(zip(things, properties, strict=True)), text)


LISTS = [
    words(kind)
    for kind in (
        "fruit apples pears plums grapes lemons cherries peaches",
        "animals dogs cats horses cows pigs sheep goats",
        "tools hammers saws knives axes nails ropes pliers",
        "clothes shirts coats hats shoes socks gloves scarves",
        "drinks tea coffee milk juice water wine beer",
    )
]


def bracket(draw: Random) -> Case:
    """Return a list in a bracket that isn't closed yet; flipped is the bracket's kind."""
    (left, right), (other, wrong) = draw.sample((("(", ")"), ("[", "]"), ("{", "}")), 2)
    kind, *things = draw.choice(LISTS)
    first, second, third = draw.sample(things, 3)
    opening = draw.choice(("They sold", "We saw", "She likes", "He needs"))
    text = f"{opening} some {kind} {{}}{first}, {second} and {third}"
    return Case(text.format(left), text.format(other), right, wrong)
