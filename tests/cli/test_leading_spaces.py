"""A token given without its leading space: one line says that with it it is another token, in every command."""

import pytest
import typer
from adapters import random_adapters
from command import run

import duat_jax as duat
from duat_jax.cli import application
from duat_jax.inputs.labels import Prediction
from duat_jax.inputs.leading_space import space_notes
from duat_jax.lora import save_adapters
from tests.cli.test_cli import commands, takes

TEXT = "def get(self, key, default=None): return self.data.get(key,"
TOKENS = {
    "explain": ("explain", TEXT),
    "contrast": ("contrast", TEXT, "--reference", TEXT.replace("key", "name")),
    "attribute": ("attribute", TEXT, "--baseline", "mean"),
    "graph": ("graph", TEXT, "--top-neurons", "0"),
    "intervene": ("intervene", TEXT, "--edit", "head 5:3 set 0"),
    "steer": ("steer", TEXT, "--towards", "import os", "--away", "class Box:", "--layers", 2),
    "diff": ("diff", "embedded", "embedded", TEXT, "--top", 0),
    "lora diff": ("lora", "diff", "adapter", TEXT),
    "survey": ("survey", "corpus", "--tokens", 8, "--out", "new"),
}
ANSWERS = {"in-context": ("in-context", "c =", "--demonstration", "a = default", "--demonstration", "b = default")}


def test_every_command_that_takes_a_token_is_here():
    every = dict(commands(typer.main.get_command(application)))
    assert {name for name, command in every.items() if takes(command, "target")} == set(TOKENS)
    assert {name for name, command in every.items() if takes(command, "answer")} == set(ANSWERS)


@pytest.mark.parametrize("name", [*TOKENS, *ANSWERS])
def test_a_word_without_its_space_has_a_line_and_with_it_none(name, tmp_path):
    model = duat.load()
    save_adapters(tmp_path / "adapter", random_adapters(model, ["c_fc"]), model)
    (tmp_path / "corpus").write_text(TEXT)
    options = ("--answer",) if name in ANSWERS else ("--target", "--contrast")
    words = dict(zip(options, ("default", "key"), strict=False))
    for space in ("", " "):
        places = {part: tmp_path / part for part in ("adapter", "corpus")} | {"new": tmp_path / f"survey{space}"}
        asked = [places.get(part, part) for part in (TOKENS | ANSWERS)[name]]
        result = run(*asked, *(part for option, word in words.items() for part in (option, space + word)))
        assert result.exit_code == 0, result.output
        for option, word in words.items():
            says = f"{option} '{word}' has no leading space; with one, ' {word}' is another token"
            assert (says in " ".join(result.output.split())) == (not space)


def test_the_line_says_how_probable_the_other_token_is_and_is_left_out_where_it_is_less_so():
    config, tokenizer = duat.load_config(), duat.load_tokenizer()
    asked = {"--target": "default", "--contrast": None}
    (note,) = space_notes(config, tokenizer, asked, [Prediction(" default", 0.592)])
    assert note.endswith("' default' is another token, 59.2% probable here.")
    assert space_notes(config, tokenizer, asked, [Prediction("default", 0.6), Prediction(" default", 0.1)]) == []
    for text in (" default", ")", "", "zzzz"):
        assert space_notes(config, tokenizer, {"--target": text}) == []
    assert space_notes(config, None, asked) == []
