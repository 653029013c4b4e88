"""The XLM-RoBERTa family: Hugging Face's `xlm-roberta` checkpoints, multilingual RoBERTas."""

import dataclasses
from functools import partial

from duat_jax.models.families import roberta

FAMILY = dataclasses.replace(roberta.FAMILY, read_config=partial(roberta.read_config, family="xlm-roberta"))
