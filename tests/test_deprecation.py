"""Old names of functions, arguments and fields: each warns, names the new one, and gives the same."""

import inspect
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest
from cases import GOLDEN

import duat_jax as duat
from duat_jax.deprecation import NEW_NAMES
from duat_jax.in_context.result import Ledger
from duat_jax.interpret.contrast.head_parts import HeadPart
from duat_jax.interpret.intervene.result import Effect
from duat_jax.lora.parameters import moved_parameters
from duat_jax.lora.result import LoraChange

IDS = [5, 6, 7]
FUNCTIONS = {
    duat.explain: {"given": "inputs", "carries": "gate_rule"},
    duat.contrast: {"given": "inputs", "other": "reference"},
    duat.attribute: {"other": "reference"},
    duat.image_maps: {"against": "reference"},
    duat.in_context.exchange: {"other": "reference"},
    duat.intervene: {"given": "inputs", "changes": "edits"},
    duat.explain_attention: {"given": "inputs", "versus": "contrast"},
    duat.lora.lora_change: {"given": "inputs"},
    moved_parameters: {"given": "inputs"},
    duat.collapse: {"carries": "gate_rule"},
    duat.decompose: {"neurons": "by_neuron"},
    duat.contributions: {"neurons": "by_neuron"},
    duat.graph: {"neurons": "top_neurons", "scores": "top_heads"},
    duat.diff: {"largest": "top"},
}
FIELDS = [
    *(
        (result, "jumps", "discontinuities")
        for result in (duat.results.Secant, duat.results.Contrast, duat.results.Intervention, Ledger, LoraChange)
    ),
    (duat.results.Explanation, "input_tokens", "collapse"),
    (duat.results.Explanation, "input_bias", "collapse_bias"),
    (HeadPart, "part", "contribution"),
    (Effect, "change", "edit"),
    (duat.results.Completeness, "says_something", "conclusive"),
    *((result, "others", "references") for result in (duat.results.Contrast, duat.results.Attribution)),
    (duat.results.AttentionScore, "versus", "contrast"),
    (LoraChange, "top_neurons", "top"),
]


@pytest.mark.parametrize("name", NEW_NAMES)
def test_an_old_name_is_the_new_one(name):
    def reached(path):
        return reduce(getattr, path.split("."), duat)

    namespace, _, old = name.rpartition(".")
    namespace = reached(namespace) if namespace else duat
    vars(namespace).pop(old, None)  # a module of the old name that another test has imported
    with pytest.warns(FutureWarning, match=rf"duat_jax\.{name} is called duat_jax\.{NEW_NAMES[name]} now") as seen:
        assert getattr(namespace, old) is reached(NEW_NAMES[name])
    assert seen[0].filename == __file__ and old not in dir(namespace)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_an_old_argument_is_the_new_one(function):
    parameters = inspect.signature(function).parameters
    assert not set(FUNCTIONS[function]) & set(parameters)
    for old, new in FUNCTIONS[function].items():
        assert new in parameters
        with pytest.warns(FutureWarning, match=f"'{old}' is called '{new}'") as seen, pytest.raises(TypeError):
            function(**{old: None}, nothing=0)
        assert seen[0].filename == __file__


def test_an_old_argument_gives_what_the_new_one_gives():
    model = duat.load(GOLDEN / "llama")
    with pytest.warns(FutureWarning):
        old = duat.explain(model, given=IDS, carries="gate")
    new, other = (duat.explain(model, inputs=IDS, gate_rule=rule) for rule in ("gate", "factor"))
    np.testing.assert_array_equal(old.collapse, new.collapse)
    assert (new.collapse != other.collapse).any()
    with pytest.raises(TypeError, match="given"):
        duat.explain(model, inputs=IDS, given=IDS)


@pytest.mark.parametrize("result, old, new", FIELDS)
def test_an_old_field_is_the_new_one(result, old, new):
    if issubclass(result, tuple):
        made = result(*(np.float32(1) for _ in result._fields))
    else:
        made = object.__new__(result)
        object.__setattr__(made, new, np.float32(1))
    with pytest.warns(FutureWarning, match=f"'{old}' is called '{new}'") as seen:
        assert getattr(made, old) == getattr(made, new)
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("command", "old", "new", "value", "says"),
    [
        ("explain", "--carries", "--gate-rule", "gate", "gate_rule = 'gate' is for gated models"),
        ("intervene", "--change", "--edit", "head 99:0 set 0", "layer 99 is none of the 6"),
    ],
    ids=["explain", "intervene"],
)
def test_an_old_option_of_the_command_is_the_new_one(command, old, new, value, says):
    script = "from duat_jax.cli import application; application()"
    before, now = (
        subprocess.run([sys.executable, "-c", script, command, "w5", option, value], capture_output=True, text=True)
        for option in (old, new)
    )
    warning, *rest = before.stderr.splitlines()
    assert warning == f"{old} is called {new} now; the old name goes with the next release"
    assert rest == now.stderr.splitlines() and says in now.stderr


def test_the_old_module_of_schemas_is_the_new_one():
    script = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    from duat_jax.records import AuditRecord, read\n"
        "import duat_jax.schemas as schemas\n"
        "assert (AuditRecord, read) == (schemas.AuditRecord, schemas.read)\n"
        "print(seen[0].category.__name__, seen[0].filename, seen[0].message)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    words = "duat_jax.records is called duat_jax.schemas now; the old name goes with the next release"
    assert run.stdout == f"FutureWarning <string> {words}\n", run.stderr
