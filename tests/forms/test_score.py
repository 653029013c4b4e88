"""Why a head attends: every pair of sources is that of matrices carried by hand, and all of them are the score."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import GOLDEN
from command import run
from helpers import close, numbers
from score_by_hand import queries_and_keys
from shown_pages import ROOT, alike, blocks

import duat_jax as duat
from duat_jax.forms import score as library
from duat_jax.forms.completeness import FAILS, HOLDS
from duat_jax.interpret.attention.compute import check
from duat_jax.nn import Rotary, rotary_frequencies
from duat_jax.transform import marks

IDS = np.array([5, 7, 3, 10, 3])
HEAD, QUERY, KEY, VERSUS = 1, 4, 2, 3
FAMILIES = ("gpt2", "llama", "qwen3", "gpt_neox", "gemma2")
"""Biases and three layers; rotary positions and shared keys; norms of queries and keys; positions of a part of the
features, layers side by side; norms of what is added, caps, a scale of its own, a window."""
QUICK = (("gpt2", False), ("gemma2", True))
EACH = [
    pytest.param(name, through, marks=[pytest.mark.slow] * ((name, through) not in QUICK))
    for name in FAMILIES
    for through in (False, True)
]


@functools.cache
def model_of(name):
    """Return a model whose every parameter is noisy, so that no bias is zero and no norm's scale is one."""
    draw = np.random.default_rng(0).normal
    return jax.tree.map(lambda x: x + 0.3 * draw(size=x.shape), duat.load(GOLDEN / name, dtype=jnp.float64))


def asked(name, **changes):
    layer = model_of(name).config.layers - 1
    return {"layer": layer, "head": HEAD, "query": QUERY, "key": KEY, "contrast": VERSUS} | changes


@functools.cache
def explained(name, through):
    return duat.explain_attention(model_of(name), IDS, **asked(name), through_heads=through)


def by_hand(name, **switches):
    """Return the capped scores of all keys, and of every source what it adds to the query and to the key."""
    queries, keys, attention = queries_and_keys(model_of(name), IDS, model_of(name).config.layers - 1, **switches)
    shared = HEAD // (attention.heads // attention.key_value_heads)
    raw = attention.scale * sum(keys.values())[:, shared] @ sum(queries.values())[QUERY, HEAD]
    capped = raw if attention.cap is None else attention.cap * np.tanh(raw / attention.cap)
    factors = attention.scale * capped / raw
    of_keys = {
        source: factors[KEY] * part[KEY, shared] - factors[VERSUS] * part[VERSUS, shared]
        for source, part in keys.items()
    }
    return capped, {source: part[QUERY, HEAD] for source, part in queries.items()}, of_keys


def pairs_of(score):
    """Return every pair by its two sources."""
    return {
        ((a.part, a.token), (b.part, b.token)): score.pairs[i, j]
        for i, a in enumerate(score.query_sources)
        for j, b in enumerate(score.key_sources)
    }


@pytest.mark.parametrize(("name", "through"), EACH)
def test_every_pair_is_that_of_matrices_carried_by_hand(name, through):
    score = explained(name, through)
    capped, queries, keys = by_hand(name, through=through)
    expected = {(a, b): u @ v for a, u in queries.items() for b, v in keys.items()}
    found = pairs_of(score)
    assert len(found) == score.pairs.size and found.keys() <= expected.keys()
    close([found.get(pair, 0) for pair in expected], list(expected.values()))
    close(score.value, capped[KEY] - capped[VERSUS])
    close(score.value, np.log(score.attention[KEY] / score.attention[VERSUS]))
    close(score.pairs.sum(), capped[KEY] - capped[VERSUS])
    assert score.completeness.verdict == HOLDS


def test_neurons_of_a_pair_are_those_of_matrices_and_sum_to_it():
    score = explained("gpt2", False)
    (a,) = (source for source in score.query_sources if source[:1] == ("layer 1 MLP",) and source.token == QUERY)
    (b,) = (source for source in score.key_sources if source[:1] == ("layer 0 MLP",) and source.token == KEY)
    (token,) = (source for source in score.key_sources if source[:1] == ("token",) and source.token == KEY)
    _, queries, _ = by_hand("gpt2", neurons=(1, QUERY))
    _, _, keys = by_hand("gpt2", neurons=(0, KEY))
    left, right = (
        np.stack([side["neuron", n] for n in range(model_of("gpt2").config.blocks[0].neurons)])
        for side in (queries, keys)
    )
    close(score.neurons(a, b), left @ right.T)
    close(score.neurons(a, b).sum(), pairs_of(score)[a[::2], b[::2]])
    close(score.neurons(a, token), left @ keys["token", KEY][:, None])
    with pytest.raises(duat.DuatError, match="no source of the key"):
        score.neurons(a, a._replace(token=99))


def test_sums_over_parts_and_tokens_are_those_of_their_pairs():
    score = explained("gpt2", False)
    parts, by_part = score.by_part()
    tokens, by_token = score.by_token()
    assert tokens == (*(f"w{token}" for token in IDS), "biases") and "biases" in parts
    expected_parts, expected_tokens = np.zeros_like(by_part), np.zeros_like(by_token)
    for i, a in enumerate(score.query_sources):
        for j, b in enumerate(score.key_sources):
            expected_parts[parts.index(a.group), parts.index(b.group)] += score.pairs[i, j]
            rows = [len(IDS) if source.token is None else source.token for source in (a, b)]
            expected_tokens[tuple(rows)] += score.pairs[i, j]
    close(by_part, expected_parts)
    close(by_token, expected_tokens)
    sizes = sorted(map(abs, pairs_of(score).values()), reverse=True)
    top = score.top(40)
    close([abs(pair.contribution) for pair in top], sizes[:40])
    assert all(pairs_of(score)[a[::2], b[::2]] == contribution for a, b, contribution in top)
    assert len(score.top(10**6)) == score.pairs.size


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if "-" not in path.name))
def test_the_difference_of_two_scores_is_the_logarithm_of_the_ratio_of_attention(name):
    """Whatever comes between score and attention: caps, sinks, masks."""
    model = model_of(name)
    image = model.config.image
    given = IDS if image is None else numbers(image.channels, image.height, image.width)
    layer = model.config.layers - 1
    score = duat.explain_attention(model, given, layer=layer, head=1, query=3, key=2, contrast=1)
    held = duat.record(model.output)(model.embed(jnp.asarray(given))).dynamics.held
    row = held[f"layers.{layer}.attention.pattern"][1, 3]
    close(score.attention, row)
    close(score.value, np.log(row[2] / row[1]))
    assert score.completeness.verdict == HOLDS


@pytest.mark.slow
def test_queries_and_keys_that_are_held_are_split_the_same(monkeypatch):
    short = explained("llama", False)
    monkeypatch.setattr("duat_jax.nn.attention.LONGEST_STORED", 1)
    jax.clear_caches()
    long = duat.explain_attention(model_of("llama"), IDS, **asked("llama"))
    assert long.query_sources == short.query_sources and long.key_sources == short.key_sources
    close(long.pairs, short.pairs)


WEIGHTS = [numbers(4, 4, key=key) for key in range(5)]


def turning(x):
    """One layer with rotary positions, a bias, and a constant without a mark; small enough to be recorded often."""
    weights = [jnp.asarray(w) for w in WEIGHTS]
    x = x + duat.term(jnp.tanh, x @ weights[0], "term", outer=lambda y: y @ weights[1])
    rotary = Rotary(rotary_frequencies(4))
    queries = x @ weights[2] + duat.offset(weights[4][0], "bias")
    return tuple(
        duat.point(rotary(y[:, None]), name) for y, name in ((queries, "q"), (x @ weights[3] + weights[4][1], "k"))
    )


def split(keys):
    recording = duat.record(turning)(numbers(3, 4, key=9))
    q, k = recording.program.steps(marks.POINT)
    score = duat.split_score(recording, q, k, duat.results.ScoreSide(0, jnp.eye(3)[2]), duat.results.ScoreSide(0, keys))
    return score.pairs, score.completeness


@pytest.mark.slow
def test_scores_of_many_keys_are_mapped():
    """The last one is the difference of the first two."""
    pairs, completeness = jax.vmap(split)(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, -1.0, 0.0]]))
    q, k = turning(numbers(3, 4, key=9))
    close(pairs[:2].sum((1, 2)), k[:2, 0] @ q[2, 0])
    assert completeness.verdict == HOLDS
    close(pairs[2], pairs[0] - pairs[1])


@pytest.mark.usefixtures("compiled_anew")
def test_a_bias_that_is_dropped_is_noticed(monkeypatch):
    pull_back = library.pull_back

    def without(*args):
        on_input, on_marks = pull_back(*args)
        return on_input, {site: 0 * u if site.kind == marks.OFFSET else u for site, u in on_marks.items()}

    monkeypatch.setattr(library, "pull_back", without)
    assert split(jnp.array([1.0, 0.0, 0.0]))[1].verdict == FAILS


@pytest.mark.usefixtures("compiled_anew")
def test_a_constant_without_a_mark_that_is_dropped_is_noticed(monkeypatch):
    monkeypatch.setattr(library, "at_zero", lambda *args: jnp.zeros((3, 1, 4)))
    assert split(jnp.array([1.0, 0.0, 0.0]))[1].verdict == FAILS


@pytest.mark.usefixtures("compiled_anew")
def test_a_rotation_by_another_position_is_noticed(monkeypatch):
    readout = library._readout
    turned = Rotary(rotary_frequencies(4))
    monkeypatch.setattr(library, "_readout", lambda *args: turned(readout(*args)))
    assert split(jnp.array([1.0, 0.0, 0.0]))[1].verdict == FAILS


def test_everything_that_is_mistaken_is_said_at_once():
    config = duat.load_config()
    with pytest.raises(duat.InvalidInput) as error:
        check(config, [5, 6, 10**9], 6, True, 3, -9, 1.5)
    for said in (
        "token id 1000000000",
        "no layer 6: give a number from 0 to 5",
        "no head True: give a number from 0 to 3",
    ):
        assert said in str(error.value)
    with pytest.raises(duat.InvalidInput, match=r"query: position 3 .* key: position -9 .* contrast: position 1.5"):
        check(config, [5, 6, 7], 0, 0, 3, -9, 1.5)
    with pytest.raises(
        duat.InvalidInput, match="token 0 doesn't see token 2, the key: .* the difference of their scores"
    ):
        check(config, [5, 6, 7], 0, 0, 0, 2, -1)
    with pytest.raises(duat.InvalidInput, match="token 4 doesn't see token 0, the key that it is compared with"):
        check(duat.load_config(GOLDEN / "gemma2"), [5, 6, 7, 8, 9], 0, 0, 4, 4, 0)


TEXT = "for i in range(10"


def test_the_command_shows_the_table_and_writes_json_and_picture(tmp_path):
    picture, file = tmp_path / "a.png", tmp_path / "a.json"
    asked = ("attention", TEXT, "--layer", "1", "--head", "2", "--key", "1", "--contrast-key", "0", "--top", "3")
    result = run(*asked, "--plot", str(picture), "--json", str(file))
    assert result.exit_code == 0, result.output
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [found[name] for name in ("layer", "head", "key", "contrast", "query")] == [
        1,
        2,
        1,
        0,
        len(found["tokens"]) - 1,
    ]
    ratio = found["attention"][1] / found["attention"][0]
    assert abs(np.log(ratio) - found["value"]) < 1e-4 and found["completeness"]["verdict"] == HOLDS
    for table in ("by_part", "by_token"):
        assert abs(np.sum(found[table]) - found["value"]) < found["completeness"]["tolerance"]
    assert [len(found["by_part"]), len(found["by_token"])] == [len(found["parts"]), len(found["tokens"]) + 1]
    assert f"{found['top'][0]['contribution']:+.4f}" in result.output and len(found["top"]) == 3
    assert "A − B: token 1 − token 0. Attention" in result.output and "holds" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


PAGE = (ROOT / "docs" / "how-to" / "attention.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_shows_what_python_says(capsys):
    ((code,), (shown,)) = blocks("python", PAGE), blocks("text", PAGE)[1:]
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        exec(code, {})
    for line, expected in zip(capsys.readouterr().out.splitlines(), shown.splitlines(), strict=True):
        assert alike(line, expected)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--layer", "6", "--head", "9", "--key", "0"), "no layer 6: give a number from 0 to 5; there is no head 9"),
        (("--layer", "0", "--head", "0", "--key", "50"), "key: position 50 is outside the text's"),
    ],
)
def test_the_command_says_what_is_mistaken(arguments, said):
    result = run("attention", TEXT, *arguments)
    assert result.exit_code == 2 and said in result.output
