"""Every JSON is a record: results by `as_dict`, commands by `--json`; each is read back as what was written."""

import json

import jax.numpy as jnp
import msgspec
import pytest
from cases import GOLDEN
from typer.testing import CliRunner

import duat_jax as duat
from duat_jax import schemas
from duat_jax.cli import application
from duat_jax.in_context import exchange, ledger, question_of
from duat_jax.json_record import as_record, plain
from duat_jax.lora import lora_change, moved_parameters, new_adapters
from duat_jax.transform.keys import Key
from experiments.pages import SCHEMA
from tests.every_result import every_result

TEXT = "for i in range(10"
WORDS, TINY = "w5 w17 w3", ["--model", str(GOLDEN / "gpt2")]
RUNS = {
    "explain": ["explain", WORDS, *TINY],
    "contrast": ["contrast", WORDS, "--reference", "w5 w8 w3", *TINY],
    "attribute": ["attribute", WORDS, "--reference", "w5 w8 w3", *TINY],
    "graph": ["graph", WORDS, "--top-neurons", "2", *TINY],
    "attention": ["attention", WORDS, "--layer", "2", "--head", "0", "--key", "1", *TINY],
    "intervene": ["intervene", WORDS, "--edit", "head 2:1 set 0", *TINY],
    "steer": ["steer", WORDS, "--towards", "w4", "--away", "w9", "--layers", "2", *TINY],
    "diff": ["diff", TINY[1], TINY[1], WORDS, "--top", "1"],
    "audit": ["audit", "--equation", "31"],
    "verify": ["verify", "--depth", "1", "--block", "paper"],
}


def results():
    """Yield a result of every question, as plain data."""
    yield from (result.as_dict() for result in every_result().values())
    model = duat.load()
    tokenizer = model.tokenizer
    known = {"tokenizer": tokenizer}
    yield duat.contrast(model, TEXT, [duat.baselines.Mean(), "for j in range(10"], **known).as_dict("embedded")
    for unit in ("token", "neuron", "stream"):
        yield duat.attribute(model, TEXT, duat.baselines.Mean(), unit=unit, **known).as_dict("embedded")
    yield duat.intervene(model, TEXT, [duat.edits.Neurons(0, [1, 2]).set(0)], **known).as_dict("embedded")
    ids, adapters = tokenizer.encode(TEXT).ids, new_adapters(model, rank=1)
    moved = moved_parameters(model, adapters, jnp.array(ids))
    yield lora_change(model, adapters, ids, **known).as_dict("embedded", moved=moved)
    prompt, other = (question_of(tokenizer, [f"a = {n}", "b = 1"], "c =", " 1") for n in (1, 2))
    yield ledger(model, exchange(prompt, other)).as_dict()


@pytest.mark.slow
def test_every_result_is_read_back():
    for plain_result in results():
        record = schemas.read(json.dumps(plain_result))
        assert type(record) in schemas.KINDS and type(record).__struct_config__.tag == plain_result["kind"]
        assert msgspec.to_builtins(record) == plain_result


@pytest.mark.parametrize("name", RUNS)
def test_every_command_writes_a_record(name):
    result = CliRunner().invoke(application, [*RUNS[name], "--json", "-"])
    assert result.exit_code == 0, result.output
    assert type(schemas.read(result.stdout)) in schemas.KINDS


@pytest.mark.parametrize(
    "wrong",
    [
        "no JSON",
        "[]",
        '{"kind": "nothing", "version": 1}',
        '{"kind": "audit", "version": 1}',
        '{"kind": "audit", "version": 1, "findings": [], "more": 1}',
        '{"kind": "audit", "findings": []}',
    ],
)
def test_what_is_no_record_is_refused_in_one_line(wrong):
    with pytest.raises(duat.InvalidInput, match="isn't the JSON of a result"):
        schemas.read(wrong)


@pytest.mark.parametrize("kind", schemas.KINDS)
@pytest.mark.parametrize("newer", [False, True])
def test_another_version_is_refused_in_one_line(kind, newer):
    tag, version = kind.__struct_config__.tag, kind.VERSION + (1 if newer else -1)
    says = f"has version {version} of the kind '{tag}', not version {kind.VERSION}: "
    with pytest.raises(duat.InvalidInput, match=says + ("install a newer" if newer else "write it again")) as refused:
        schemas.read(json.dumps({"kind": tag, "version": version}))
    assert "\n" not in str(refused.value)


def test_a_field_of_another_type_is_no_record():
    with pytest.raises(msgspec.ValidationError, match=r"findings"):
        as_record(schemas.AuditRecord, None, findings=[{"equation": 1}])


def test_the_schema_has_every_kind_and_field():
    schema = schemas.schema()
    for kind in schemas.KINDS:
        defined = schema["$defs"][kind.__name__]
        assert set(defined["properties"]) == {"kind", *kind.__struct_fields__}
        assert defined["properties"]["kind"]["enum"] == [kind.__struct_config__.tag]


def test_every_property_of_the_schema_is_described():
    for name, definition in schemas.schema()["$defs"].items():
        assert "Args:" not in definition["description"]
        for field, described in definition["properties"].items():
            assert described["description"].endswith("."), (name, field)
    context = schemas.schema()["$defs"]["ContextRecord"]["properties"]
    assert context["first"]["description"] == "the mean log-probability of the first run."
    assert context["version"]["description"].startswith("of the format of this kind;")


def test_a_target_says_what_it_reads_by_number_and_in_words():
    model = duat.load()
    tokenizer = model.tokenizer
    first, second = (tokenizer.token_to_id(name) for name in ("):", "10"))
    known = {"tokenizer": tokenizer}
    logit = duat.explain(model, TEXT, "):", contrast="10", **known).as_dict()["target"]
    assert logit == {
        "headline": "logit of '):' minus that of '10' at token 5, '10'",
        "kind": "Logit",
        "output": {"id": first, "text": "):"},
        "contrast": {"id": second, "text": "10"},
        "against": None,
        "position": 5,
        "stream": None,
    }
    read = duat.contrast(model, TEXT, duat.baselines.Mean(), duat.targets.LogProbability(position=2), **known).target
    assert (read.kind, read.position, read.contrast) == ("LogProbability", 2, None)
    assert read.output.text == tokenizer.decode([read.output.id]) and read.headline == str(read)
    direction = duat.targets.Direction([1.0] * model.config.features, stream=3)
    read = duat.explain(model, TEXT, direction, **known).target
    assert (read.kind, read.output, read.position, read.stream) == ("Direction", None, 5, 3)


def test_layers_have_one_spelling():
    model = duat.load()
    tokenizer = model.tokenizer
    written = duat.contrast(model, TEXT, duat.baselines.Mean(), tokenizer=tokenizer).as_dict()
    assert list(written["flow"])[:2] == ["embedding", "layers.0"]
    names = [*list(written["flow"])[1:], *written["heads"], *(head["mixed"] for head in written["top_heads"])]
    assert all(name.startswith("layers.") for name in [*names, *(n["term"] for n in written["top_neurons"])])


def test_the_published_schema_is_that_of_the_code():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schemas.schema(), "run `make pages`"


def test_marks_are_their_names():
    assert plain({Key(("layers.0",), "mlp", 0): (1, Key((), "head", 1))}) == {"layers.0.mlp": [1, "head[1]"]}
