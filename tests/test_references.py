"""One word and one sign: what something is compared with is its `reference`, and every difference is A − B."""

import inspect
from importlib import import_module

import jax
import jax.numpy as jnp
import pytest
import typer
from cases import GOLDEN
from command import run
from helpers import close

import duat_jax as duat
from duat_jax import in_context, public
from duat_jax.cli import application
from experiments.command_line import commands

MODEL = GOLDEN / "gpt2"
TEXT, OTHER = "w5 w17 w3", "w5 w9 w3"
IDS = {TEXT: [5, 17, 3], OTHER: [5, 9, 3]}
OLD_WORDS = {"other", "versus", "instead", "versus_key", "before", "after"}
ROOMS = "public", "circuits", "edits", "in_context", "lora", "papers", "pruning", "survey", "training"


def functions():
    """Return every public function of the rooms that answer questions, by its name."""
    rooms = [import_module(f"duat_jax.{room}") for room in ROOMS]
    named = {name: each for room in rooms for name, each in vars(room).items() if not name.startswith("_")}
    return {
        name: each
        for name, each in named.items()
        if inspect.isfunction(each) and each.__module__.startswith("duat_jax.")
    }


def parameters_of(function):
    return set(inspect.signature(function).parameters)


def model(scale=1.0):
    return jax.tree.map(lambda leaf: scale * leaf, duat.load(MODEL, dtype=jnp.float64))


def of_texts(ask):
    """Return the differences both ways, and the numbers on both sides from plain forward passes."""
    loaded = model()
    numbers = [float(loaded(jnp.array(IDS[text]))[-1, 7]) for text in (TEXT, OTHER)]
    there, back = (
        ask(loaded, IDS[a], target=7, reference=IDS[b]).difference for a, b in ((TEXT, OTHER), (OTHER, TEXT))
    )
    return there, back, *numbers


def of_images():
    images = [jnp.ones((1, 2, 2)), jnp.full((1, 2, 2), 0.25)]

    def number(x):
        return (duat.term(jnp.tanh, x.ravel() * jnp.arange(4.0), "hidden")).sum()

    maps = [duat.image_maps(number, x, reference=y) for x, y in (images, images[::-1])]
    return *(float(each.change_completeness.value) for each in maps), *map(float, map(number, images))


def of_models():
    models = [model(1.1), model()]
    found = [duat.diff(a, IDS[TEXT], 7, reference=b, top=0).difference for a, b in (models, models[::-1])]
    return *found, *(float(each(jnp.array(IDS[TEXT]))[-1, 7]) for each in models)


SIGNS = {
    "contrast": lambda: of_texts(duat.contrast),
    "attribute": lambda: of_texts(duat.attribute),
    "image_maps": of_images,
    "diff": of_models,
}
"""Both differences and both numbers of every function with a reference; `exchange` only prepares a task."""


def test_a_reference_has_one_name():
    named = functions()
    assert not {name: words for name, each in named.items() if (words := parameters_of(each) & OLD_WORDS)}
    assert {name for name, each in named.items() if "reference" in parameters_of(each)} == {*SIGNS, "exchange"}
    # Of a similarity nothing is subtracted: the text that it is with belongs to the target.
    assert all(
        {"position", "contrast"} < parameters_of(each) for each in named.values() if "against" in parameters_of(each)
    )
    assert vars(public)["contrast"] is duat.contrast and in_context.exchange is named["exchange"]


@pytest.mark.parametrize("name", SIGNS)
def test_a_difference_is_the_number_minus_the_references(name):
    there, back, first, second = SIGNS[name]()
    assert abs(there) > 1e-3
    close(there, first - second, layers=9)
    close(back, second - first, layers=9)


def test_the_old_order_of_two_models_warns_and_gives_the_same():
    before, after = model(), model(1.1)
    new = duat.diff(after, IDS[TEXT], 7, reference=before, top=0)
    for arguments, named in (
        ((before, after, IDS[TEXT], 7), {}),
        ((), {"before": before, "after": after, "inputs": IDS[TEXT], "target": 7}),
    ):
        with pytest.warns(FutureWarning, match=r"duat.diff\(after, inputs, reference=before\)") as seen:
            old = duat.diff(*arguments, top=0, **named)
        assert seen[0].filename == __file__ and (old.difference, old.parts) == (new.difference, new.parts)


def test_an_option_for_a_reference_has_one_name():
    with_reference = set()
    for name, command in commands(typer.main.get_command(application)):
        options = {option.name for option in command.params if not getattr(option, "hidden", False)}
        assert not options & OLD_WORDS, name
        with_reference |= {name} if "reference" in options else set()
    assert with_reference == {"attribute", "contrast", "diff", "in-context", "intervene"}


def test_a_command_says_which_side_is_first():
    shared = "--model", MODEL, "--target", "w7"
    there, back = (
        duat.schemas.read(run("contrast", a, "--reference", b, *shared, "--json", "-").stdout).difference
        for a, b in ((TEXT, OTHER), (OTHER, TEXT))
    )
    assert abs(there + back) < 1e-6 < abs(there)
    shown = run("contrast", TEXT, "--reference", OTHER, *shared).stdout
    for words in ("A: the text", "B: the other text", "A − B"):
        assert words in shown


@pytest.mark.parametrize(
    ("asked", "old", "new"),
    [
        (("contrast", TEXT, "--model", MODEL, "--target", "w7"), ("--versus", OTHER), ("--reference", OTHER)),
        pytest.param(
            ("intervene", TEXT, "--model", MODEL, "--target", "w7", "--edit", "head 0:0 set reference"),
            ("--versus", OTHER),
            ("--reference", OTHER),
            marks=pytest.mark.slow,
        ),
        (
            ("attention", TEXT, "--model", MODEL, "--layer", "0", "--head", "0", "--key", "1"),
            ("--versus-key", "0"),
            ("--contrast-key", "0"),
        ),
        pytest.param(("diff", MODEL, MODEL, TEXT, "--top", "0"), (), None, marks=pytest.mark.slow),
    ],
    ids=lambda value: value[0] if value and len(value) > 2 else None,
)
def test_an_old_name_says_the_new_one_in_a_line(asked, old, new):
    result = run(*asked, *old)
    assert result.exit_code == 0 and "goes with the next release" in result.stderr.splitlines()[0]
    again = ("diff", MODEL, TEXT, "--reference", MODEL, "--top", "0") if new is None else (*asked, *new)
    assert run(*again).stdout == result.stdout


@pytest.mark.parametrize(("old", "new"), [("attends", "attention"), ("context", "in-context")])
def test_an_old_command_says_the_new_one_in_a_line(old, new):
    result, again = run(old, "--help"), run(new, "--help")
    assert result.stderr == f"duat {old} is called duat {new} now; the old name goes with the next release\n"
    assert result.stdout.partition("\n")[2] == again.stdout.partition("\n")[2] and not again.stderr
    assert f"\n  {old} " not in run("--help").stdout


def test_a_contrast_by_its_old_name_is_the_contrast():
    shared = TEXT, "--reference", OTHER, "--model", MODEL, "--target", "w7", "--json", "-"
    old, new = run("explain", *shared), run("contrast", *shared)
    assert old.stdout == new.stdout != "" and not new.stderr
    assert old.stderr == (
        "duat explain --reference is called duat contrast now; the old name goes with the next release\n"
    )
