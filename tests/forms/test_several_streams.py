"""Functions of several named streams: their forms against the recursions of the theorem, dense algebra and autodiff."""

import chex
import jax
import jax.numpy as jnp
import pytest
from helpers import close

import duat_jax as duat
from duat_jax.forms.completeness import entrywise_completeness
from duat_jax.operators.shapes import zeros_of

SIZES = {"image": 4, "slots": 2, "text": 3}
WIDTHS = (5, 3, 4)  # neurons of the terms of a layer; each sees the terms before it


def gelu_plus(z):
    """Return an activation that isn't zero at zero."""
    return jax.nn.gelu(z) + 0.5


def parameters_of_layer(key):
    """Return random parameters of one layer: paths between streams, terms, and couplings of terms."""
    keys = iter(jax.random.split(key, 100))
    return {
        "U": {s: {r: jax.random.normal(next(keys), (n, m)) / 3 for r, m in SIZES.items()} for s, n in SIZES.items()},
        "b": {s: jax.random.normal(next(keys), (n,)) for s, n in SIZES.items()},
        "F": [{r: jax.random.normal(next(keys), (n, m)) for r, m in SIZES.items()} for n in WIDTHS],
        "f": [jax.random.normal(next(keys), (n,)) for n in WIDTHS],
        "K": [[jax.random.normal(next(keys), (n, m)) for m in WIDTHS[:t]] for t, n in enumerate(WIDTHS)],
        "G": {s: [jax.random.normal(next(keys), (n, m)) / 3 for m in WIDTHS] for s, n in SIZES.items()},
    }


def stack(x, layers):
    """Compute the layers one after the other, with marks."""
    for i, layer in enumerate(layers):
        activations = []
        for t, n in enumerate(WIDTHS):
            z = sum(layer["F"][t][r] @ x[r] for r in SIZES) + duat.offset(layer["f"][t], f"f{i}.{t}")
            z = z + sum((k @ a for k, a in zip(layer["K"][t], activations, strict=True)), jnp.zeros(n))
            activations.append(duat.term(gelu_plus, z, f"{i}.{t}"))
        x = {
            s: sum(layer["U"][s][r] @ x[r] for r in SIZES)
            + duat.offset(layer["b"][s], f"b{i}.{s}")
            + sum(g @ a for g, a in zip(layer["G"][s], activations, strict=True))
            for s in SIZES
        }
    return x


def recursions(x, layers):
    """Return P, q, C, B and c of the theorem on several streams, by its recursions, as matrices."""
    p = {s: {r: jnp.eye(n) if r == s else jnp.zeros((n, m)) for r, m in SIZES.items()} for s, n in SIZES.items()}
    q = {s: jnp.zeros(n) for s, n in SIZES.items()}
    born, carried, inner, biases = [], {s: [] for s in SIZES}, [], []
    for layer in layers:
        before = {s: q[s] + sum((c @ a for c, a in zip(carried[s], born, strict=True)), 0 * q[s]) for s in SIZES}
        activations = []
        for t in range(len(WIDTHS)):
            inner.append({r: sum(layer["F"][t][u] @ p[u][r] for u in SIZES) for r in SIZES})
            couplings = zip(layer["K"][t], activations, strict=True)
            biases.append(
                layer["f"][t] + sum(layer["F"][t][u] @ before[u] for u in SIZES) + sum(k @ a for k, a in couplings)
            )
            activations.append(gelu_plus(sum(inner[-1][r] @ x[r] for r in SIZES) + biases[-1]))
        terms = range(len(born))
        paths = layer["U"]
        carried = {
            s: [*(sum(paths[s][u] @ carried[u][j] for u in SIZES) for j in terms), *layer["G"][s]] for s in SIZES
        }
        born += activations
        p = {s: {r: sum(paths[s][u] @ p[u][r] for u in SIZES) for r in SIZES} for s in SIZES}
        q = {s: sum(paths[s][u] @ q[u] for u in SIZES) + layer["b"][s] for s in SIZES}
    return p, q, carried, inner, biases


def case(depth):
    keys = jax.random.split(jax.random.key(depth), depth + 3)
    x = {s: jax.random.normal(key, (n,)) for key, (s, n) in zip(keys, SIZES.items(), strict=False)}
    layers = [parameters_of_layer(key) for key in keys[3:]]
    return x, layers, duat.unroll(lambda x: stack(x, layers), x)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_every_parameter_is_that_of_the_theorem(depth):
    x, layers, form = case(depth)
    p, q, carried, inner, biases = recursions(x, layers)
    for s in SIZES:
        for r in SIZES:
            close(form.input_map().between(r, s).dense(), p[s][r])
        for j, matrix in enumerate(carried[s], 1):
            close(form.outer_map(j).between(target=s).dense(), matrix)
    for j, (matrices, bias) in enumerate(zip(inner, biases, strict=True), 1):
        for r in SIZES:
            close(form.inner_map(j).between(r).dense(), matrices[r])
        close(form.inner_bias(j), bias)
    chex.assert_trees_all_close(form.bias(), q, rtol=1e-12, atol=1e-12)
    chex.assert_trees_all_close(form.evaluate(), stack(x, layers), rtol=1e-10, atol=1e-10)
    assert form.completeness().verdict == "holds"


def test_a_form_is_applied_to_other_streams():
    """Its parameters stay, the earlier terms inside of the biases too."""
    x, layers, form = case(2)
    p, q, carried, inner, biases = recursions(x, layers)
    other = jax.tree.map(lambda leaf: leaf + 1, x)
    activations = [gelu_plus(sum(m[r] @ other[r] for r in SIZES) + c) for m, c in zip(inner, biases, strict=True)]
    for s, applied in form.apply(other).items():
        terms = sum(c @ a for c, a in zip(carried[s], activations, strict=True))
        close(applied, sum(p[s][r] @ other[r] for r in SIZES) + q[s] + terms)
    with pytest.raises(duat.DuatError, match=r"takes image float64\[4\], slots .* given float64\[2\]"):
        form.apply(jnp.ones(2))


def marked_stack(x, layers):
    """Compute the layers with every stream marked before the first one and after each."""
    x = {s: duat.stream(x[s], s) for s in SIZES}
    for i, layer in enumerate(layers):
        with jax.named_scope(f"layers.{i}"):
            x = {s: duat.stream(part, s) for s, part in stack(x, [layer]).items()}
    return x


def test_a_layers_residual_term_has_the_blocks_of_its_parameters():
    x, layers, _ = case(3)
    form = duat.unroll(lambda x: marked_stack(x, layers), x)
    for i, layer in enumerate(layers, 1):
        before = {s: form.recording.at(form.streams[(i - 1) * 3 + k]) for k, s in enumerate(sorted(SIZES))}
        found, activations = form.residual_term(i), []
        for s in SIZES:
            close(found.path_bias[s], layer["b"][s])
            for r in SIZES:
                close(found.path.between(r, s).dense(), layer["U"][s][r])
        for t, term in enumerate(found.terms):
            bias = layer["f"][t] + sum(k @ a for k, a in zip(layer["K"][t], activations, strict=True))
            close(term.inner_bias, bias)
            for s in SIZES:
                close(term.inner.between(s).dense(), layer["F"][t][s])
                close(term.outer.between(target=s).dense(), layer["G"][s][t])
            activations.append(gelu_plus(sum(layer["F"][t][s] @ before[s] for s in SIZES) + bias))
        assert form.layer_completeness(i).verdict == "holds"
    with pytest.raises(duat.DuatError, match="there is no layer 4: image and slots and text are marked 4 times"):
        form.residual_term(4)


def test_a_stream_may_read_what_another_one_has_become_in_the_same_layer():
    def layers(streams):
        streams = {name: duat.stream(x, name) for name, x in streams.items()}
        for _ in range(2):
            image = duat.stream(streams["image"] + duat.term(jnp.tanh, streams["image"], "of the image"), "image")
            pattern = duat.hold(jax.nn.softmax(streams["text"] @ image.T), "pattern")
            text = streams["text"] + duat.term(gelu_plus, 2 * streams["text"] + pattern @ image, "of the text")
            streams = {"image": image, "text": duat.stream(text, "text")}
        return streams

    form = duat.unroll(layers, STREAMS)
    found, (pattern, _) = form.residual_term(1), form.dynamics.held.values()
    of_image, of_text = found.terms
    across = jnp.kron(pattern, jnp.eye(3))
    close(of_text.inner.between("image").dense(), across)
    close(of_text.inner.between("text").dense(), 2 * jnp.eye(6))
    assert not of_image.inner.between("text").dense().any() and not of_text.outer.between(target="image").dense().any()
    close(of_text.inner_bias, pattern @ jnp.tanh(STREAMS["image"]))
    close(found.path.between("text", "text").dense(), jnp.eye(6))
    assert not found.path.between("image", "text").dense().any()
    assert form.layer_completeness(1).verdict == form.layer_completeness(2).verdict == "holds"


@pytest.mark.parametrize(
    ("skipped", "message"),
    [
        ("image", "are marked image 1 times, text 2 times"),
        ("input", "isn't of layer 1 alone, since it depends on the input"),
    ],
)
def test_a_layer_of_streams_that_arent_all_marked_is_refused(skipped, message):
    def layer(streams):
        given = {name: duat.stream(x, name) for name, x in streams.items()}
        image = given["image"] + (streams["text"].sum() if skipped == "input" else 0)
        image = image if skipped == "image" else duat.stream(image, "image")
        return {"image": image, "text": duat.stream(given["text"] + 1, "text")}

    with pytest.raises(duat.DuatError, match=message):
        duat.unroll(layer, STREAMS).residual_term(1)


def attended(streams):
    """Return text and image after a layer in which the text attends to the image, and each has a term of its own."""
    text, image = streams["text"], streams["image"]
    pattern = duat.hold(jax.nn.softmax(text @ image.T), "pattern")
    image = image + duat.term(jnp.tanh, image, "of the image")
    text = text + pattern @ image
    return {"text": text + duat.term(gelu_plus, 2 * text, "of the text"), "image": image}


STREAMS = {
    "image": jax.random.normal(jax.random.key(0), (4, 3)),
    "text": jax.random.normal(jax.random.key(1), (2, 3)),
}


def test_the_linear_path_from_image_to_text_is_the_pattern_and_none_leads_back():
    form = duat.unroll(attended, STREAMS)
    pattern = jax.nn.softmax(STREAMS["text"] @ STREAMS["image"].T)
    close(form.input_map().between("image", "text").dense(), jnp.kron(pattern, jnp.eye(3)))
    assert not form.input_map().between("text", "image").dense().any()
    assert form.completeness().verdict == "holds"


def test_a_map_between_streams_is_transposed_and_composed_as_one_matrix():
    """The matrix acts on the streams one after another, in the order of their names."""
    whole = duat.unroll(attended, STREAMS).input_map()
    matrix = whole.dense()
    assert matrix.shape == (18, 18)
    close(whole.T.dense(), matrix.T)
    close((whole @ whole + whole).dense(), matrix @ matrix + matrix)
    close(whole.between("image", "text").T.dense(), matrix[12:, :12].T)
    close(jax.jit(lambda linear, x: linear(x))(whole, STREAMS)["text"], whole(STREAMS)["text"])


@pytest.mark.parametrize("fn", [attended, duat.auto(lambda streams: jnp.tanh(streams["text"]) @ streams["image"].T)])
def test_the_collapse_of_streams_is_one_affine_map(fn):
    form = duat.collapse(fn, STREAMS)
    sums = jax.tree.map(jnp.add, form.linear(STREAMS), form.bias)
    chex.assert_trees_all_close(sums, fn(STREAMS), rtol=1e-12, atol=1e-12)
    assert form.completeness.verdict == "holds"


def read(streams):
    """Return one number that depends on both streams."""
    return attended(streams)["text"][-1].sum()


def test_one_table_has_rows_for_every_stream():
    parts = duat.decompose(read, STREAMS)
    held = jax.nn.softmax(STREAMS["text"] @ STREAMS["image"].T)
    close(parts.input["text"], STREAMS["text"] * jnp.array([[0.0], [1.0]]))
    close(parts.input["image"], held[-1][:, None] * STREAMS["image"])
    assert parts.completeness.verdict == "holds"


def test_the_difference_of_two_images_under_one_text():
    other = STREAMS | {"image": STREAMS["image"][::-1] + 1.0}
    split = duat.secant(read)(STREAMS, other)
    close(split.parts["image"].sum(), read(STREAMS) - read(other))
    assert not split.parts["text"].any()
    assert split.completeness.verdict == "holds"


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        (STREAMS | {"ids": jnp.arange(3)}, r"the argument is ids int\d+\[3\], image float64\[4,3\].*nothing flows"),
        ({}, "the argument is empty"),
    ],
)
@pytest.mark.parametrize("question", [duat.unroll, duat.collapse])
def test_streams_of_whole_numbers_are_refused(question, streams, message):
    with pytest.raises(duat.DuatError, match=message):
        question(lambda streams: {name: x + x for name, x in streams.items()}, streams)


def test_a_stream_that_there_isnt_is_named():
    whole = duat.unroll(attended, STREAMS).input_map()
    with pytest.raises(duat.DuatError, match=r"no stream 'audio': the map takes image float64\[4,3\], text float64"):
        whole.between("audio")
    with pytest.raises(duat.DuatError, match="the map takes image .* but was given text"):
        whole({"text": STREAMS["text"]})
    with pytest.raises(duat.DuatError, match=r"choose two of them by linear.between\(source, target\)"):
        duat.operators.frobenius(whole)
    norms = duat.operators.token_norms(whole.between("image", "text"))
    pattern = jax.nn.softmax(STREAMS["text"] @ STREAMS["image"].T)
    close(norms, 3**0.5 * pattern)
    assert zeros_of(whole.input).keys() == STREAMS.keys()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"image": jnp.ones((5, 3))}, r"image is \(4, 3\) of float64, the other \(5, 3\) of float64$"),
        ({"audio": jnp.ones((4, 3))}, "differ in structure: audio only in the second; give two of one structure"),
        ({"text": {"left": jnp.ones(3)}}, "structure: text only in the first, text.left only in the second; give two"),
    ],
)
def test_two_inputs_of_other_streams_are_refused_by_the_streams_names(other, message):
    with pytest.raises(duat.DuatError, match=message):
        duat.secant(read)(STREAMS, STREAMS | other)


def test_every_stream_sums_by_its_own_scale():
    large, small = jnp.full(3, 1e7, jnp.float32), jnp.ones(2, jnp.float32)
    right = entrywise_completeness({"a": large, "b": small}, [{"a": large, "b": small}])
    assert right.verdict == "holds" and right.tolerance.shape == (5,)
    assert entrywise_completeness({"a": large, "b": small}, [{"a": large, "b": small / 2}]).verdict == "fails"


def test_two_streams_of_one_name_are_not_told_apart():
    streams = {"a": {"b": jnp.ones(2)}, "a.b": jnp.ones(3)}
    with pytest.raises(duat.DuatError, match=r"there are 2 streams called 'a.b': the map takes a.b float64\[2\], a.b"):
        duat.unroll(lambda streams: streams, streams).input_map().between("a.b")


@pytest.mark.parametrize("question", [duat.unroll, duat.collapse])
def test_results_of_whole_numbers_are_refused(question):
    with pytest.raises(duat.DuatError, match=r"the result is n int\d+\[3\], x float64\[2\]: nothing flows to whole"):
        question(lambda streams: {"x": 2 * streams["x"], "n": jnp.arange(3)}, {"x": jnp.ones(2)})


def test_a_map_from_real_to_complex_streams_has_no_transpose():
    """For `⟨u, A x⟩ = ⟨Aᵀ u, x⟩` it would have to be complex, and its result is real."""
    whole = duat.unroll(lambda x: jax.lax.complex(x, 2 * x), jnp.ones(2)).input_map()
    close(whole(jnp.ones(2)), jnp.full(2, 1 + 2j))
    with pytest.raises(duat.DuatError, match=r"from float64\[2\] to complex128\[2\] has no transpose: take real and"):
        _ = whole.T
