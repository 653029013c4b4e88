"""Tasks that a rule of grammar decides."""

from random import Random

from duat_jax.inputs.tasks.case import Case, of_two
from duat_jax.inputs.tasks.vocabulary import pairs, words

SUBJECTS = words(
    "key/keys boy/boys girl/girls dog/dogs cat/cats car/cars house/houses book/books student/students teacher/teachers"
    " doctor/doctors lawyer/lawyers manager/managers farmer/farmers author/authors artist/artists picture/pictures"
    " child/children woman/women man/men tree/trees bird/birds horse/horses player/players writer/writers king/kings"
    " letter/letters window/windows door/doors table/tables chair/chairs friend/friends brother/brothers"
    " soldier/soldiers officer/officers guard/guards worker/workers leader/leaders"
)


def agreement(draw: Random) -> Case:
    """Return a subject, and a noun of the other number between it and its verb; flipped is the subject's number."""
    subject, attractor = (word.split("/") for word in draw.sample(SUBJECTS, 2))
    number, verbs = draw.randrange(2), draw.choice((("is", "are"), ("was", "were"), ("has", "have")))
    near = draw.choice(("near", "behind", "beside", "with", "above"))
    text = f"The {{}} {near} the {attractor[1 - number]}"
    return Case(
        text.format(subject[number]), text.format(subject[1 - number]), f" {verbs[number]}", f" {verbs[1 - number]}"
    )


MEN = words(
    "John Tom James Martin Scott Alan David Henry Frank Bob Paul Peter Mark Simon Robert Michael William George"
)
WOMEN = words("Mary Amy Sarah Anna Alice Laura Emma Kate Jane Linda Susan Lisa Karen Nancy Helen Julia Rachel Maria")


def pronoun(draw: Random) -> Case:
    """Return a sentence about a man or a woman that ends before the pronoun; flipped is the name."""
    people = [(draw.choice(MEN), " he"), (draw.choice(WOMEN), " she")]
    draw.shuffle(people)
    trait = draw.choice(words("good great kind clever friendly famous young real"))
    work = draw.choice(words("friend person teacher doctor cook lawyer player writer student leader"))
    text = f"So {{}} is a {trait} {work}, isn't"
    (first, right), (other, wrong) = people
    return Case(text.format(first), text.format(other), right, wrong)


COMPARATIVES = pairs(
    "old/older big/bigger large/larger small/smaller strong/stronger weak/weaker long/longer short/shorter high/higher"
    " low/lower fast/faster slow/slower hard/harder easy/easier good/better bad/worse young/younger rich/richer"
    " poor/poorer warm/warmer cold/colder dark/darker light/lighter bright/brighter deep/deeper wide/wider"
    " cheap/cheaper clean/cleaner close/closer loud/louder soft/softer tall/taller thin/thinner thick/thicker"
    " safe/safer simple/simpler smart/smarter sharp/sharper heavy/heavier new/newer near/nearer"
)


def comparative(draw: Random) -> Case:
    """Return a sentence that ends before the comparative of an adjective in it; flipped is the adjective."""
    thing = draw.choice(
        words(
            "house car road river room bridge box bed bag coat lamp table garden tower boat train horse tree wall"
            " window voice song book field lake"
        )
    )
    templates = (
        f"This {thing} is {{}}, but that one is even",
        f"Our own {thing} was {{}}, but theirs was even",
        f"One {thing} is {{}}, but the other is even",
    )
    return of_two(draw, COMPARATIVES, draw.choice(templates))


def tense(draw: Random) -> Case:
    """Return a sentence about last or next week whose verb stands after a clause; flipped is which week."""
    opening = draw.choice(("I think", "We know", "They say"))
    time = draw.choice(words("week month year summer winter spring weekend"))
    person = draw.choice(
        words(
            "teacher doctor lawyer manager farmer author artist student woman man boy girl player writer soldier"
            " officer guard worker leader driver nurse baker judge"
        )
    )
    clause = draw.choice(
        (
            *("lives in the city", "works at the hospital", "works at the school", "lives near the river"),
            *("lives on the island", "sits by the window", "stands at the door", "likes the mountains"),
            "reads the newspaper",
        )
    )
    text = f"{opening} that {{}} {time} the {person} who {clause}"
    return of_two(draw, [("last", "was"), ("next", "will")], text)
