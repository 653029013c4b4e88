"""Every family."""

from .decoders import DECODERS
from .encoders import ENCODERS
from .family import Family
from .llamas import LLAMAS

FAMILIES: dict[str, Family] = {**DECODERS, **LLAMAS, **ENCODERS}
