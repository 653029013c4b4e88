"""In-context learning: exact decomposition of the effect of a part of a text on the answer."""

import typing as _typing

from duat_jax.in_context.compute import ledger as ledger
from duat_jax.in_context.controls import Reply as Reply
from duat_jax.in_context.controls import answers_of as answers_of
from duat_jax.in_context.controls import exchange as exchange
from duat_jax.in_context.controls import replies as replies
from duat_jax.in_context.copying import Copying as Copying
from duat_jax.in_context.copying import measure_copying as measure_copying
from duat_jax.in_context.prompts import FewShotQuestion as FewShotQuestion
from duat_jax.in_context.prompts import draw_question as draw_question
from duat_jax.in_context.prompts import question_of as question_of
from duat_jax.in_context.reach import Reach as Reach
from duat_jax.in_context.reach import measure_reach as measure_reach
from duat_jax.in_context.result import Ledger as Ledger
from duat_jax.in_context.runs import Task as Task
from duat_jax.inputs.few_shot_tasks import PAIRS as PAIRS
from duat_jax.namespaces import old_names as _old_names
from duat_jax.namespaces import public_names as _public_names

__dir__ = _public_names(globals())

if not _typing.TYPE_CHECKING:  # for a type checker it would give any name
    __getattr__ = _old_names(globals())
