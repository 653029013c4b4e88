"""Every family."""

from .decoders import DECODERS
from .encoders import ENCODERS
from .family import Family
from .llamas import LLAMAS
from .makers import MAKERS

FAMILIES: dict[str, Family] = {**DECODERS, **LLAMAS, **MAKERS, **ENCODERS}
