"""Models whose weights have changed are written as checkpoints that the reference reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import transformers

import duat_jax as duat
from duat_jax.models.checkpoint.place import open_checkpoint
from duat_jax.models.saver import write_model

from . import hugging_face
from .cases import TOLERANCE, inputs, make_case, relative_error
from .families import FAMILIES


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if "logits" in family.heads])
def test_changed_weights_are_those_of_the_reference(family, tmp_path):
    case, written = make_case(family, {}, "logits"), tmp_path / "written"
    hugging_face.make(tmp_path / "base", case.architecture, case.settings)
    base = duat.load(tmp_path / "base")
    changed = jax.tree.map(lambda weight: weight * jnp.cos(weight), base)
    written.mkdir()
    write_model(written, changed, open_checkpoint(tmp_path / "base"), np.float32)
    model = transformers.AutoModelForCausalLM.from_pretrained(written, attn_implementation="eager")
    expected = hugging_face.run(model, FAMILIES[family].layer, inputs(case)).value
    ours = np.asarray(changed(jnp.asarray(inputs(case))))
    assert relative_error(ours, expected) < TOLERANCE["float32"]
    assert relative_error(np.asarray(base(jnp.asarray(inputs(case)))), expected) > 1000 * TOLERANCE["float32"]
