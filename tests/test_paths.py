"""Every public function that takes a path: what is no path is refused in one line, before anything else is done."""

import json
import re
import subprocess
import sys

import pytest

# The suite's own check of annotations would refuse them first; a user's process has none.
WALK = """
import inspect, json, jax
import duat_jax as duat
jax.config.update("jax_enable_x64", True)

def public():
    for name in dir(duat):
        value = getattr(duat, name)
        own = vars(value).items() if inspect.ismodule(value) else [(name, value)]
        for key, each in own:
            if key[0] != "_" and callable(each):
                yield key, each
                methods = dir(each) if inspect.isclass(each) else ()
                yield from ((f"{key}.{name}", getattr(each, name)) for name in methods if name[0] != "_")

def takes_path(parameter):
    return "pathlib.Path" in str(parameter.annotation)

def refusal(function, arguments):
    try:
        made = function(**arguments)
        return f"gave {next(made) if inspect.isgenerator(made) else made!r}"
    except duat.DuatError as error:
        return str(error)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"

said = {}
for name, function in public():
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        continue
    for path in filter(takes_path, parameters):
        required = [each for each in parameters if each.default is each.empty and each.kind != each.VAR_POSITIONAL]
        filled = {each.name: "absent" if takes_path(each) else None for each in required}
        for wrong in (None, 3, 1.5, b"a", ["a"], "a\\0b"):
            if wrong is not None or "None" not in str(path.annotation):
                said[f"{name}({path.name}={wrong!r})"] = refusal(function, filled | {path.name: wrong})
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    ran = subprocess.run(
        [sys.executable, "-c", WALK], cwd=tmp_path_factory.mktemp("paths"), capture_output=True, check=True, text=True
    )
    return json.loads(ran.stdout.splitlines()[-1])


def test_what_is_no_path_is_refused_in_one_line(said):
    wrong = {
        call: text
        for call, text in said.items()
        if not re.search("is no|reads no (images|sounds)", text) or "\n" in text
    }
    assert not wrong


def test_the_walk_meets_functions_methods_and_classes(said):
    met = {call.partition("(")[0] for call in said}
    assert {"open", "load", "load_image", "save_adapters", "survey", "train", "Kept", "Explanation.html"} <= met
    assert len(met) > 20
