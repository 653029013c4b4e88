"""Tasks that knowledge of words and of the world decides."""

from random import Random

from duat_jax.inputs.tasks.case import Case, of_two
from duat_jax.inputs.tasks.vocabulary import NAMES, pairs, words

COUNTRIES = tuple(
    tuple(country.split("/"))
    for country in words(
        "France/Paris/French Germany/Berlin/German Italy/Rome/Italian Spain/Madrid/Spanish Portugal/Lisbon/Portuguese"
        " Poland/Warsaw/Polish Russia/Moscow/Russian China/Beijing/Chinese Japan/Tokyo/Japanese Korea/Seoul/Korean"
        " Egypt/Cairo/Arabic Greece/Athens/Greek Iran/Tehran/Persian Iraq/Baghdad/Arabic Cuba/Havana/Spanish"
        " Austria/Vienna/German Hungary/Budapest/Hungarian Sweden/Stockholm/Swedish Norway/Oslo/Norwegian"
        " Denmark/Copenhagen/Danish Finland/Helsinki/Finnish England/London/English Canada/Ottawa/English"
        " Australia/Canberra/English India/Delhi/Hindi Kenya/Nairobi/Swahili Chile/Santiago/Spanish Peru/Lima/Spanish"
        " Syria/Damascus/Arabic Israel/Jerusalem/Hebrew Ukraine/Kiev/Ukrainian Bulgaria/Sofia/Bulgarian"
        " Netherlands/Amsterdam/Dutch Belgium/Brussels/Dutch Afghanistan/Kabul/Persian"
    )
)


def capital(draw: Random) -> Case:
    """Return a question for a country's capital; flipped is the country."""
    templates = "The capital of {} is", "In {} the capital is"
    return of_two(draw, [(name, city) for name, city, _ in COUNTRIES], draw.choice(templates))


def language(draw: Random) -> Case:
    """Return a question for a country's language; flipped is the country."""
    templates = "The language of {} is", "People in {} all speak", "People in {} often speak"
    return of_two(draw, [(name, spoken) for name, _, spoken in COUNTRIES], draw.choice(templates))


ANTONYMS = pairs(
    "hot/cold big/small up/down left/right open/closed good/bad fast/slow high/low early/late hard/soft light/dark"
    " old/young rich/poor strong/weak wet/dry full/empty happy/sad long/short loud/quiet clean/dirty near/far"
    " wide/narrow thick/thin true/false win/lose buy/sell push/pull start/stop love/hate day/night north/south"
    " east/west inside/outside above/below before/after more/less first/last success/failure war/peace"
)


def opposite(draw: Random) -> Case:
    """Return a question for a word's opposite; flipped is the word."""
    text = f"As {draw.choice(NAMES)} {draw.choice(('said', 'wrote', 'knows'))}, the opposite of {{}} is"
    return of_two(draw, [*ANTONYMS, *((other, word) for word, other in ANTONYMS)], text)


COLOURS = pairs(
    "snow/white milk/white cotton/white salt/white sugar/white coal/black tar/black soot/black ink/black blood/red"
    " strawberries/red tomatoes/red cherries/red roses/red grass/green leaves/green spinach/green moss/green"
    " bananas/yellow lemons/yellow butter/yellow corn/yellow chocolate/brown mud/brown soil/brown coffee/brown"
    " wood/brown pumpkins/orange carrots/orange blueberries/blue jeans/blue lavender/purple pigs/pink"
)


def colour(draw: Random) -> Case:
    """Return a question for the colour of a thing; flipped is the thing."""
    name = draw.choice(NAMES)
    templates = f"What is the color of {{}}? {name} says it is", f"As {name} once said, the color of {{}} is usually"
    return of_two(draw, COLOURS, draw.choice(templates))
