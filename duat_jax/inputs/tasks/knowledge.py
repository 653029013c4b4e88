"""Tasks that knowledge of words and of the world decides."""

from random import Random

from duat_jax.inputs.tasks.case import Case, of_two
from duat_jax.inputs.tasks.vocabulary import words

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
    """Return a question for a country's capital; flipped is the country.

    Args:
        draw: what it is drawn with.
    """
    templates = "The capital of {} is", "In {} the capital is"
    return of_two(draw, [(name, city) for name, city, _ in COUNTRIES], draw.choice(templates))


def language(draw: Random) -> Case:
    """Return a question for a country's language; flipped is the country.

    Args:
        draw: what it is drawn with.
    """
    templates = "The language of {} is", "People in {} all speak", "People in {} often speak"
    return of_two(draw, [(name, spoken) for name, _, spoken in COUNTRIES], draw.choice(templates))
