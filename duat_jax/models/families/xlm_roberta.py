"""The XLM-RoBERTa family: `xlm-roberta` checkpoints of Hugging Face's, RoBERTas of many languages."""

import dataclasses
from functools import partial

from duat_jax.models.families import roberta

FAMILY = dataclasses.replace(roberta.FAMILY, read_config=partial(roberta.read_config, family="xlm-roberta"))
