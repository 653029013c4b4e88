"""Tasks: pairs of texts whose difference decides the next token."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Case(NamedTuple):
    """A pair of texts with the next token of each.

    Args:
        clean: the text.
        corrupted: the same with what decides flipped.
        right: what follows the clean text, and not the corrupted one.
        wrong: what follows the corrupted text, and not the clean one.
    """

    clean: str
    corrupted: str
    right: str
    wrong: str


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words(
    "Mary John Tom James Dan Martin Amy Scott Sarah Alan David Henry Frank Anna Alice Bob Paul Peter Mark Simon Laura"
    " Emma Kate Jane Linda Susan Robert Michael William George Charles Thomas Daniel Steven Kevin Brian Jason Adam Jack"
    " Ryan Eric Lisa Karen Nancy Helen Julia Rachel Maria Emily Rebecca"
)


def indirect_object(draw: Random) -> Case:
    """Return two people of whom one gives something to the other; flipped is who gives.

    Args:
        draw: what it is drawn with.

    Source: Wang et al., "Interpretability in the Wild", 2023.
    """
    first, second = draw.sample(NAMES, 2)
    place = draw.choice(_words("store park school station office garden hospital restaurant library market"))
    thing = draw.choice(_words("drink book ring ball gift letter key ticket coat flower"))
    went = draw.choice(("went to", "were at", "came to", "left"))
    text = f"When {first} and {second} {went} the {place}, {{}} gave a {thing} to"
    return Case(text.format(second), text.format(first), f" {first}", f" {second}")


SUBJECTS = _words(
    "key/keys boy/boys girl/girls dog/dogs cat/cats car/cars house/houses book/books student/students teacher/teachers"
    " doctor/doctors lawyer/lawyers manager/managers farmer/farmers author/authors artist/artists picture/pictures"
    " child/children woman/women man/men tree/trees bird/birds horse/horses player/players writer/writers king/kings"
    " letter/letters window/windows door/doors table/tables chair/chairs friend/friends brother/brothers"
    " soldier/soldiers officer/officers guard/guards worker/workers leader/leaders"
)


def agreement(draw: Random) -> Case:
    """Return a subject, and a noun of the other number between it and its verb; flipped is the subject's number.

    Args:
        draw: what it is drawn with.

    Source: Linzen et al., "Assessing the Ability of LSTMs to Learn Syntax-Sensitive Dependencies", 2016.
    """
    subject, attractor = (word.split("/") for word in draw.sample(SUBJECTS, 2))
    number, verbs = draw.randrange(2), draw.choice((("is", "are"), ("was", "were"), ("has", "have")))
    near = draw.choice(("near", "behind", "beside", "with", "above"))
    text = f"The {{}} {near} the {attractor[1 - number]}"
    return Case(
        text.format(subject[number]), text.format(subject[1 - number]), f" {verbs[number]}", f" {verbs[1 - number]}"
    )


COUNTRIES = _words(
    "France/Paris/French Germany/Berlin/German Italy/Rome/Italian Spain/Madrid/Spanish Portugal/Lisbon/Portuguese"
    " Poland/Warsaw/Polish Russia/Moscow/Russian China/Beijing/Chinese Japan/Tokyo/Japanese Korea/Seoul/Korean"
    " Egypt/Cairo/Arabic Greece/Athens/Greek Iran/Tehran/Persian Iraq/Baghdad/Arabic Cuba/Havana/Spanish"
    " Austria/Vienna/German Hungary/Budapest/Hungarian Sweden/Stockholm/Swedish Norway/Oslo/Norwegian"
    " Denmark/Copenhagen/Danish Finland/Helsinki/Finnish England/London/English Canada/Ottawa/English"
    " Australia/Canberra/English India/Delhi/Hindi Kenya/Nairobi/Swahili Chile/Santiago/Spanish Peru/Lima/Spanish"
    " Syria/Damascus/Arabic Israel/Jerusalem/Hebrew Ukraine/Kiev/Ukrainian Bulgaria/Sofia/Bulgarian"
    " Netherlands/Amsterdam/Dutch Belgium/Brussels/Dutch Afghanistan/Kabul/Persian"
)


def _of_two_countries(draw: Random, text: str, what: int) -> Case:
    one, other = (word.split("/") for word in draw.sample(COUNTRIES, 2))
    if one[what] == other[what]:  # a language of two countries
        return _of_two_countries(draw, text, what)
    return Case(text.format(one[0]), text.format(other[0]), f" {one[what]}", f" {other[what]}")


def capital(draw: Random) -> Case:
    """Return a question for a country's capital; flipped is the country.

    Args:
        draw: what it is drawn with.
    """
    templates = "The capital of {} is", "In {} the capital is"
    return _of_two_countries(draw, draw.choice(templates), 1)


def language(draw: Random) -> Case:
    """Return a question for a country's language; flipped is the country.

    Args:
        draw: what it is drawn with.
    """
    templates = "The language of {} is", "People in {} all speak", "People in {} often speak"
    return _of_two_countries(draw, draw.choice(templates), 2)


def greater_than(draw: Random) -> Case:
    """Return a span of years of which the last one's decade comes next; flipped is the first one's.

    The right decade is the next one; the wrong one is the next after the corrupted text's, and so before the span.

    Args:
        draw: what it is drawn with.

    Source: Hanna et al., "How does GPT-2 compute greater-than?", 2023.
    """
    span = draw.choice(_words("war project reign study journey career drought crisis voyage campaign"))
    century, early, late, year = draw.randrange(11, 20), draw.randrange(4), draw.randrange(5, 9), draw.randrange(2, 9)
    text = f"The {span} lasted from the year {century}{{}}{year} to the year {century}"
    return Case(text.format(late), text.format(early), str(late + 1), str(early + 1))


MEN = _words(
    "John Tom James Martin Scott Alan David Henry Frank Bob Paul Peter Mark Simon Robert Michael William George"
)
WOMEN = _words("Mary Amy Sarah Anna Alice Laura Emma Kate Jane Linda Susan Lisa Karen Nancy Helen Julia Rachel Maria")


def pronoun(draw: Random) -> Case:
    """Return a sentence about a man or a woman that ends before the pronoun; flipped is the name.

    Args:
        draw: what it is drawn with.

    Source: Mathwin et al., "Identifying a Preliminary Circuit for Predicting Gendered Pronouns in GPT-2 Small", 2023.
    """
    people = [(draw.choice(MEN), " he"), (draw.choice(WOMEN), " she")]
    draw.shuffle(people)
    trait = draw.choice(_words("good great kind clever friendly famous young real"))
    work = draw.choice(_words("friend person teacher doctor cook lawyer player writer student leader"))
    text = f"So {{}} is a {trait} {work}, isn't"
    (one, right), (other, wrong) = people
    return Case(text.format(one), text.format(other), right, wrong)


PARAMETERS = _words(
    "default value missing encoding timeout limit size length offset start stop mode name prefix suffix count index"
    " level width format errors flags version port host callback options config context buffer"
)


def parameter(draw: Random) -> Case:
    """Return a Python method that passes its parameters on; flipped is the second one's name.

    Args:
        draw: what it is drawn with.
    """
    one, other = draw.sample(PARAMETERS, 2)
    method = draw.choice(_words("get find read load open send write call update remove create check"))
    first = draw.choice(_words("key path data item file node object request message func"))
    text = f"def {method}(self, {first}, {{}}=None): return self.{draw.choice(('data', 'file'))}.{method}({first},"
    return Case(text.format(one), text.format(other), f" {one}", f" {other}")


TASKS: dict[str, Callable[[Random], Case]] = {
    "indirect object": indirect_object,
    "agreement": agreement,
    "capital": capital,
    "language": language,
    "greater than": greater_than,
    "pronoun": pronoun,
    "parameter": parameter,
}
"""The tasks, each with the function that draws its cases."""
