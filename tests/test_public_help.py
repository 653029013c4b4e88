"""The help of every public function: a signature that is short enough to be read."""

import inspect
import re
import sys

import pytest

import duat_jax as duat

ANNOTATION, SIGNATURE = 120, 550
"""The largest numbers of characters of a printed annotation and of a printed signature."""


def public_functions():
    """Yield every public function with its name."""
    for name in dir(duat):
        value = getattr(duat, name)
        if not inspect.ismodule(value):
            yield name, value
            continue
        yield from ((f"{name}.{key}", each) for key, each in vars(value).items() if not key.startswith("_"))


FUNCTIONS = {name: value for name, value in public_functions() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_printed_signature_is_short(name):
    signature = inspect.signature(FUNCTIONS[name])
    annotations = {key: each.annotation for key, each in signature.parameters.items()}
    for key, annotation in (annotations | {"return": signature.return_annotation}).items():
        assert len(inspect.formatannotation(annotation)) <= ANNOTATION, key
    assert len(str(signature)) <= SIGNATURE
    assert "<lambda>" not in str(signature) and "<function" not in str(signature)


@pytest.mark.parametrize("name", duat.NAMESPACES)
def test_a_namespace_shows_what_it_lists_and_no_module_of_its_own(name):
    namespace = getattr(duat, name)
    listed = set(re.findall(r"^from \S+ import \w+ as ([a-zA-Z]\w*)", inspect.getsource(namespace), re.MULTILINE))
    assert listed <= set(dir(namespace))
    modules = [each for each in dir(namespace) if inspect.ismodule(getattr(namespace, each))]
    assert not [each for each in modules if getattr(namespace, each).__name__ == f"{namespace.__name__}.{each}"]


def test_the_walk_meets_functions_of_every_kind():
    assert {"explain", "lora.lora_change", "operators.diagonal", "symbols.to_jax"} < set(FUNCTIONS)


def namespaces():
    """Yield the names of each public module with its functions and classes."""
    top = {name for name in dir(duat) if not inspect.ismodule(getattr(duat, name))}
    yield top, [getattr(duat, name) for name in top]
    for module in filter(inspect.ismodule, (getattr(duat, name) for name in dir(duat))):
        own = {name for name in vars(module) if not name.startswith("_")}
        yield top | own, [getattr(module, name) for name in own]


def documented(value):
    """Return the docstrings of a function, or of a class and of what is public in it."""
    inside = [each for name, each in vars(value).items() if name[0] != "_"] if inspect.isclass(value) else []
    return [text for each in (value, *inside) if (text := inspect.getdoc(each))]


def test_help_names_nothing_that_a_reader_cant_reach():
    wrong, results = set(), {*vars(duat.results), *vars(duat.schemas), *dir(duat.results.Explanation)}
    for names, values in namespaces():
        for value in values:
            if not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            hidden = {name for name in vars(sys.modules[value.__module__]) if len(name) > 1} - names - results
            for text in documented(value):
                prose = text.partition("\nExample:")[0]
                wrong |= {(value.__name__, word) for word in re.findall(r"`(\w+)`", prose) if word in hidden}
    assert not wrong
