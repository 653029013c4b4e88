"""The audit's refutations and corrections, confirmed by numpy alone: networks, printed formulas, corrected ones."""

import numpy as np
import pytest
from audited import findings
from helpers import close

from symbolic.audit.claim import FAILS

BY_NAME = {(f.equation, f.source): f for f in findings()}
LAYERS, WIDTH, NEURONS = 5, 3, 4

rng = np.random.default_rng(0)


def sigma(z):
    return np.tanh(z) + 0.3 * z**2


def matrices(rows, columns):
    return {k: rng.normal(size=(rows, columns)) for k in range(1, LAYERS + 1)}


W1, W2, W3 = matrices(WIDTH, WIDTH), matrices(NEURONS, WIDTH), matrices(WIDTH, NEURONS)
B2, B3 = ({k: m[:, 0] for k, m in matrices(n, 1).items()} for n in (NEURONS, WIDTH))
D2, D3 = matrices(NEURONS, WIDTH), matrices(WIDTH, NEURONS)
X0 = rng.normal(size=WIDTH)


def network(layers, w2=W2, w3=W3, x=X0):
    """Eq. 20, layer by layer."""
    for k in range(1, layers + 1):
        x = W1[k] @ x + B3[k] + w3[k] @ sigma(w2[k] @ x + B2[k])
    return x


def paper_network(layers, x=X0):
    """Eq. 30, layer by layer."""
    return network(layers, w2={k: W2[k] @ W1[k] for k in W2}, x=x)


def parts(layers, w2=W2, w3=W3):
    """The two-index recursions: P, q, B, c, C carried to the last layer, and the activations."""
    p, q, uat, b, c, carried, s = np.eye(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH), {}, {}, {}, {}
    for k in range(1, layers + 1):
        b[k], c[k] = w2[k] @ p, B2[k] + w2[k] @ (q + uat)
        s[k] = sigma(b[k] @ X0 + c[k])
        carried = {m: W1[k] @ matrix for m, matrix in carried.items()} | {k: w3[k]}
        p, q = W1[k] @ p, W1[k] @ q + B3[k]
        uat = sum(carried[m] @ s[m] for m in carried)
    return p, q, b, c, carried, s


def corrected_form(layers, w2=W2, w3=W3):
    p, q, b, c, carried, _ = parts(layers, w2, w3)
    return p @ X0 + q + sum(carried[m] @ sigma(b[m] @ X0 + c[m]) for m in carried)


def printed_update_rules(layers):
    """The updates below Eq. 11 and 33 in the printed order, in place, for the network of Eq. 30."""
    w1, w2, w3, b2, b3 = (dict(table) for table in (W1, W2, W3, B2, B3))
    w2[1] = w2[1] @ w1[1]
    for k in range(1, layers):
        w1[k + 1] = w1[k + 1] @ w1[k]
        b3[k + 1] = w1[k + 1] @ b3[k] + b3[k + 1]
        w2[k + 1] = w2[k + 1] @ w1[k]
        w3[k] = w1[k + 1] @ w3[k]
    for m in range(2, layers + 1):
        terms = sum(w3[k] @ sigma(w2[k] @ X0 + b2[k]) for k in range(1, m))
        b2[m] = w2[m] @ b3[m - 1] + b2[m] + w2[m] @ terms
    return w1[layers] @ X0 + b3[layers] + sum(w3[k] @ sigma(w2[k] @ X0 + b2[k]) for k in range(1, layers + 1))


def printed_18(layers):
    """Eq. 18 with a product for its second + and its shifted ΔW."""
    p, q, b, c, carried, _ = parts(layers)
    shifted = {k: (D2[k + 1], D3[k + 1]) for k in range(1, layers + 1)}
    return p @ X0 + q + sum((carried[k] + d3) @ sigma((b[k] + d2) @ X0 + c[k]) for k, (d2, d3) in shifted.items())


def adapted_tables():
    return {k: W2[k] + D2[k] for k in W2}, {k: W3[k] + D3[k] for k in W3}


def general_term(outer):
    """Eq. 31 for layer 4, with `W'_{outer,3}`, from the true third stream."""
    x = paper_network(3)
    return W1[4] @ x + B3[4] + W3[outer] @ sigma(W2[4] @ W1[4] @ x + B2[4])


def after_32(outer):
    """The settings below Eq. 32 for layer 4 of Eq. 20, all symbols set at once, with `W'_{outer,3}`."""
    p, q, _, _, carried, s = parts(3)
    uat = sum(carried[m] @ s[m] for m in carried)
    new = W3[outer] @ sigma(W2[4] @ p @ X0 + W2[4] @ q + B2[4] + W2[4] @ uat)
    return W1[4] @ p @ X0 + W1[4] @ q + B3[4] + W1[4] @ uat + new


def uat_printed():
    """B.2's sum for one layer, with one size for stream and neurons, beside what it should be."""
    w1, w2, w3 = (rng.normal(size=(WIDTH, WIDTH)) for _ in range(3))
    b1, b2 = rng.normal(size=WIDTH), rng.normal(size=WIDTH)
    return w2 @ sigma(w1 @ X0 + b1), w3 @ sigma(w2 @ X0 + b2)


def uat_corrected():
    p, q, b, c, carried, _ = parts(4)
    return network(4) - p @ X0 - q, sum(carried[m] @ sigma(b[m] @ X0 + c[m]) for m in carried)


A1, A2, Y = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)), rng.normal(size=3)


def diamond(left, right):
    """Entry i is the i-th column of the left factor times the right one, summed."""
    if right.ndim == 1:
        return np.array([sum(left[k, i] * right[k] for k in range(len(right))) for i in range(left.shape[1])])
    return np.stack([diamond(left, column) for column in right.T], axis=1)


def moves_with_the_pattern(layer, layers=4):
    """How much `C_layer` changes if only attention does: the `W'_{k,1}` of Eq. 30 are the attention."""
    other = {k: rng.normal(size=(WIDTH, WIDTH)) for k in W1}
    carried, moved = W3[layer], W3[layer]
    for k in range(layer + 1, layers + 1):
        carried, moved = W1[k] @ carried, other[k] @ moved
    return carried, moved


def attention_in_numpy(tokens=2, features=4, heads=2):
    """Sliced attention on vec(x): the printed and the corrected order, applied transposed, beside the true output."""
    size = features // heads
    held, values = rng.random((heads, tokens, tokens)), rng.normal(size=(heads, size, size))
    w_o, x = rng.normal(size=(features, features)), rng.normal(size=(tokens, features))
    slices = np.split(np.arange(features), heads)
    concatenated = np.concatenate([h @ x[:, s] @ v for h, s, v in zip(held, slices, values)], axis=1)
    true = (concatenated @ w_o).reshape(-1)
    hv = np.zeros((tokens * features, tokens * features))
    for h, s, v in zip(held, slices, values):
        place = np.eye(features)[:, s]
        hv += np.kron(h, (place @ v @ place.T).T)
    o = np.kron(np.eye(tokens), w_o.T)
    printed, corrected = (o.T @ hv.T).T, (hv.T @ o.T).T
    return (printed @ x.reshape(-1), true), (corrected @ x.reshape(-1), true)


def relu(z):
    return np.maximum(z, 0.0)


TEXTS = rng.random(8)


def two_terms(text, prompt):
    return relu(text - prompt) + relu(prompt - text)


W2A, W3A = adapted_tables()
# For every claim that doesn't hold: what is printed beside what is true, and the correction beside what is true.
NUMBERS = {
    ("update rules below 11", "000"): (
        (printed_update_rules(4), paper_network(4)),
        (corrected_form(5), network(5)),
    ),
    ("update rules below 33", "000"): (
        (printed_update_rules(3), paper_network(3)),
        (corrected_form(4), network(4)),
    ),
    ("18", "000"): ((printed_18(4), network(4, W2A, W3A)), (corrected_form(5, W2A, W3A), network(5, W2A, W3A))),
    ("definition of UAT in B.2", "000"): (uat_printed(), uat_corrected()),
    ("31", "000"): ((general_term(3), paper_network(4)), (general_term(4), paper_network(4))),
    ("32", "000"): ((after_32(3), network(4)), (after_32(4), network(4))),
    ("settings below 32", "000"): ((after_32(3), network(4)), (after_32(4), network(4))),
    ("general term in C.2", "003"): ((general_term(3), paper_network(4)), (general_term(4), paper_network(4))),
    ("order of factors", "000"): attention_in_numpy(),
    # One fixed sum of two terms on a text, with prompt 0 and with prompt 1; and beside the distance of text and prompt.
    ("one function", "000"): (
        (two_terms(TEXTS, 0.0), two_terms(TEXTS, 1.0)),
        (two_terms(TEXTS, 0.7), np.abs(TEXTS - 0.7)),
    ),
    # The outputs for two prompts that are a millionth apart, and how far apart they are at most.
    ("similar outputs", "000"): (
        (relu(1e6 * np.array([0.0])), relu(1e6 * np.array([1e-6]))),
        (np.maximum(np.abs(relu(X0) - relu(Y)), np.abs(X0 - Y)), np.abs(X0 - Y)),
    ),
    # The error after Λ_2 is removed, beside what it should stay: small only if S_2 is, not if S_1 is.
    ("premise of pruning", "001"): (
        (np.array([abs(0.0 - 10.0)]), np.array([0.0])),
        (np.array([abs(10.0 - 10.0)]), np.array([0.0])),
    ),
    ("13", "001"): (
        (diamond(diamond(A2, A1), Y), diamond(A1, diamond(A2, Y))),
        (diamond(diamond(A2.T, A1), Y), diamond(A1, diamond(A2, Y))),
    ),
    ("14", "001"): (
        (diamond(diamond(A1, A2), Y), diamond(A2, diamond(A1, Y))),
        (diamond(diamond(A1.T, A2), Y), diamond(A2, diamond(A1, Y))),
    ),
    ("diamond not distributive", "001"): (
        (diamond(A1, Y + X0), diamond(A1, Y)),
        (diamond(A1, Y + X0), diamond(A1, Y) + diamond(A1, X0)),
    ),
}  # fmt: skip


def test_every_claim_that_fails_has_its_numbers():
    shapes = {("shape in Section 3.2", "000")}
    assert {name for name, finding in BY_NAME.items() if finding.verdict == FAILS} == set(NUMBERS) | shapes


@pytest.mark.parametrize("name", NUMBERS, ids=" ".join)
def test_numbers_refute_what_is_printed_and_confirm_the_correction(name):
    (printed, true), (corrected, also_true) = NUMBERS[name]
    assert np.abs(printed - true).max() > 1e-3
    close(corrected, also_true)


@pytest.mark.parametrize(("layer", "moves"), [(1, True), (2, True), (3, True), (4, False)])
def test_a_carried_parameter_moves_with_later_attention_alone(layer, moves):
    carried, moved = moves_with_the_pattern(layer)
    assert bool(np.abs(carried - moved).max() > 1e-3) is moves


def test_elements_of_attention_as_a_matrix_can_be_uncorrelated():
    signs = rng.choice([-1.0, 1.0], size=(4000, 2, 2))
    matrices = np.stack([np.kron(np.full((2, 2), 0.5), v.T) for v in signs])
    assert abs(np.corrcoef(matrices[:, 0, 0], matrices[:, 0, 1])[0, 1]) < 0.05


def test_a_column_isnt_a_row():
    hv, x = rng.normal(size=(6, 6)), rng.normal(size=(6, 1))
    assert (hv.T @ x).shape == (6, 1) != (hv.T @ x).T.shape


@pytest.mark.parametrize("depth", range(1, LAYERS + 1))
def test_the_two_index_form_is_the_network_in_floats(depth):
    close(corrected_form(depth), network(depth))
    folded = {k: W2[k] @ W1[k] for k in W2}
    close(corrected_form(depth, w2=folded), paper_network(depth))


def test_removing_a_layer_whose_share_is_zero_changes_the_output():
    def relu(z):
        return max(z, 0.0)

    x1, without = 1 + relu(1), 1
    assert 0 * relu(1) == 0
    assert 0 * x1 + relu(x1) != 0 * without + relu(without)
