"""PyTorch's own code as a JAX function: its values, its differences, and the parts that families here have too."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import duat_jax as duat
from duat_jax.models.converted import converted
from tests.helpers import near
from tests.parity.goldens import GOLDEN
from tests.shown_pages import ROOT

nn = torch.nn


class Computes(nn.Module):
    """A module that computes a function of itself and its input."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function, self.runs = function, 0
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        """Return the function's value."""
        self.runs += 1
        return self.function(self, x)


def attended(module, x):
    """Return the input with what attention adds to it."""
    return x + module.attention(x, x, x, need_weights=False)[0]


MODULES = {
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True),
    "post-norm": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "attention": lambda: Computes(attended, attention=nn.MultiheadAttention(8, 2, batch_first=True)),
    "convolution": lambda: nn.Sequential(
        nn.Conv1d(5, 6, 3, padding=1), nn.SiLU(), nn.BatchNorm1d(6), nn.Conv1d(6, 5, 1)
    ),
    "gated": lambda: nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.LayerNorm(8)),
    "embedding of features": lambda: nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 3), nn.Softplus(), nn.Linear(3, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_secant_sums_to_pytorchs_own_difference(name):
    torch.manual_seed(0)
    module = MODULES[name]().double().eval()
    x, y = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    function = duat.from_torch(module, [x])
    with torch.no_grad():
        expected = (module(x) - module(y))[0, -1, 1].item()

    def number(x):
        return function(x)[0, -1, 1]

    difference = duat.secant(number)(jnp.asarray(x.numpy()), jnp.asarray(y.numpy()))
    near(difference.parts.sum(), expected, within=1e-9)
    parts = duat.decompose(duat.auto(number), jnp.asarray(x.numpy()))
    assert parts.completeness.verdict == difference.completeness.verdict == "holds"
    assert "not_attributed" not in {key.name for key in parts.offsets}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            Computes(lambda module, x: {"sum": x + module.runs}),
            r"Computes: on the example its output\['sum'\] is 3.0 in JAX and 2.0 in PyTorch, at \[0\]",
        ),
        (
            Computes(
                lambda _, x: torch.special.airy_ai(x) + torch.special.i0(x) * torch.special.spherical_bessel_j0(x)
            ),
            r"torchax .* has no aten.special_airy_ai.default, aten.special_spherical_bessel_j0.default, which the",
        ),
        (
            Computes(lambda _, x: torch.nonzero(x)),
            r"Computes chooses its way by a tensor's numbers \(test_pytorch.py, line \d+\): it can't be traced",
        ),
        (nn.Linear(1, 2).train(), r"Linear is in training: call .eval\(\) on it first"),
    ],
)
def test_what_cant_be_converted_is_refused(module, message):
    with pytest.raises(duat.DuatError, match=message):
        duat.from_torch(module if type(module) is nn.Linear else module.eval(), [torch.ones(1)])


OPERATIONS = {
    "is_all_true": lambda x: torch.ops.aten._is_all_true(x > -9) * x,
    "cummax": lambda x: torch.stack([each.to(x.dtype) for each in torch.cummax(x, -1)]),
    "cummax of ties": lambda x: torch.cummax(x.round(), 1).indices * x,
    "logcumsumexp": lambda x: torch.logcumsumexp(x, -1),
    "bilinear": lambda x: nn.functional.interpolate(x[:, None], (7, 3), mode="bilinear", antialias=True),
    "bicubic": lambda x: nn.functional.interpolate(x[:, None], (7, 3), mode="bicubic", antialias=True),
    "numbers": lambda x: x[:, : torch.tensor([[3, 2]])[0].tolist()[0]] * int(torch.arange(4).max()),
    "a number of numbers": lambda x: x[:, : int(torch.ceil(torch.arange(6, device=x.device).max() / 2))],
    "constants": lambda x: x[:, torch.from_numpy(np.array([2, 0]))],
    "parameters that aren't the module's": lambda x: nn.functional.linear(x, KEPT_ELSEWHERE),
    "arguments by name": lambda x: nn.functional.pad(
        input=nn.functional.linear(input=x, weight=torch.arange(end=8, device=x.device, dtype=x.dtype)[None]),
        pad=(1, 2),
    ),
    "type_as of a view": lambda x: x + x.float().type_as(x[0]),
}
KEPT_ELSEWHERE = nn.Parameter(torch.linspace(0, 1, 24, dtype=torch.float64).reshape(3, 8))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_pytorchs(name):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    function = duat.from_torch(Computes(lambda _, x: OPERATIONS[name](x)).eval(), [x])
    near(jax.jit(function)(jnp.asarray(x.numpy())), OPERATIONS[name](x).detach().numpy(), within=1e-12)


def tiny(model_type, architecture, **sizes):
    """A small random model of transformers."""
    torch.manual_seed(0)
    common = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = {"vocab_size": 50, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    settings = transformers.AutoConfig.for_model(model_type, **common, **tokens, **sizes)
    return getattr(transformers, architecture).from_config(settings, attn_implementation="eager").eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "qwen3"])
def test_a_familys_own_code_has_the_parts_of_the_family(name):
    native, path = duat.load(GOLDEN / name), GOLDEN / name
    architecture = transformers.AutoConfig.from_pretrained(path).architectures[0]
    other = duat.from_hugging_face(getattr(transformers, architecture), path)
    asked = {"against": [4, 5]} if native.config.head.kind == "hidden" else {"target": 8}
    one, two = (duat.explain(model, [3, 4, 5, 6, 7], **asked) for model in (native, other))
    contrasts = [duat.contrast(model, [3, 4, 5, 6, 7], [3, 9, 5, 6, 7], **asked) for model in (native, other)]
    near(two.value, one.value, within=1e-5)
    if not native.config.position_embedding:  # else positions are biases of the code's, and no part of the embedding
        near(two.embedding, one.embedding, within=1e-5)
    for of_native, of_code in zip(one.coefficients.values(), two.coefficients.values(), strict=True):
        near(of_code, of_native, within=1e-5)
    near(contrasts[1].flow[0], contrasts[0].flow[0], within=1e-5)
    for kind in ("heads", "neurons"):
        for of_native, of_code in zip(*(getattr(each, kind).values() for each in contrasts), strict=True):
            near(of_code, of_native, within=1e-5)


GPT_NEO = ("AutoModelForCausalLM", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]})
NO_FAMILY = {
    "bloom": ("AutoModelForCausalLM", {}),
    "mamba": ("AutoModelForCausalLM", {"state_size": 8}),
    "lfm2": ("AutoModelForCausalLM", {"num_key_value_heads": 2}),
    "roformer": ("AutoModelForMaskedLM", {"embedding_size": 16}),
    "mpnet": ("AutoModel", {}),
}


@pytest.mark.parametrize("name", NO_FAMILY)
def test_a_checkpoint_of_no_family_is_explained_and_contrasted(name, tmp_path):
    architecture, sizes = NO_FAMILY[name]
    module = tiny(name, architecture, **sizes)
    module.save_pretrained(tmp_path)
    model = duat.load(tmp_path)
    assert duat.load_config(tmp_path) == model.config
    text, reference = [3, 4, 5, 6, 7], [3, 9, 5, 6, 7]
    with torch.no_grad():
        expected = module(torch.tensor([text]))[0][0].numpy()
    near(model(jnp.asarray(text)), expected, within=1e-5)
    asked = {"against": [4, 5]} if model.config.head.kind == "hidden" else {"target": 8, "position": 2}
    explanation = duat.explain(model, text, **asked)
    assert explanation.completeness.verdict == "holds"
    assert {key.layer for key in explanation.coefficients} - {None} == {0, 1}
    contrast = duat.contrast(model, text, reference, **asked)
    assert contrast.completeness.verdict == "holds" and contrast.flow.shape == (3, 5)
    assert {key.layer for key in contrast.neurons} - {None} == {0, 1}


class Normed(nn.Embedding):
    """A table of embeddings whose rows are normalised when they are read, as Inkling's are."""

    def forward(self, ids):
        """Return the embeddings."""
        return nn.functional.rms_norm(super().forward(ids), (self.embedding_dim,))


def test_an_embedding_layer_may_compute_more_than_a_row():
    module = tiny("mamba", "AutoModelForCausalLM", state_size=8)
    module.get_input_embeddings().__class__ = Normed
    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        expected = module(ids).logits[0].numpy()
    near(converted(module, "a model")(jnp.asarray(ids[0].numpy())), expected, within=1e-5)


def test_a_model_that_pytorch_cannot_compute_is_refused_in_words():
    module = tiny("mamba", "AutoModelForCausalLM", state_size=8)
    module.forward = lambda **_: torch.ones(2) + torch.ones(3)
    with pytest.raises(duat.BadCheckpoint, match="a model: PyTorch can't compute it: RuntimeError: The size of tensor"):
        converted(module, "a model")


def test_what_its_code_computes_is_checked_on_every_text():
    model = converted(tiny("gpt_neo", GPT_NEO[0], **GPT_NEO[1]), "a model")
    weights = dict(model.stack.weights)
    name = next(name for name in weights if name.endswith("ln_f.bias"))
    model.stack.weights = weights | {name: weights[name] + 1}
    with pytest.raises(duat.DuatError, match="on this input its output .* in JAX and .* in PyTorch"):
        duat.explain(model, [3, 4, 5], 6)
    with pytest.raises(duat.DuatError, match="on this input its output .* in JAX and .* in PyTorch"):
        duat.contrast(model, [3, 4, 5], [3, 7, 5], 6)


def test_the_page_prints_what_it_shows(capsys):
    page = (ROOT / "docs" / "how-to" / "pytorch.md").read_text(encoding="utf-8")
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for code, shown in re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL):
            exec(code, {})
            assert capsys.readouterr().out == shown


def test_derivatives_are_pytorchs():
    torch.manual_seed(0)
    module = MODULES["encoder"]().double().eval()
    x = torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    module(x).sum().backward()
    function = duat.from_torch(module, [x])
    gradient = jax.jit(jax.grad(lambda x: function(x).sum()))(jnp.asarray(x.detach().numpy()))
    near(gradient, x.grad.numpy(), within=1e-9)


def test_a_dtype_that_isnt_there_is_refused():
    with jax.enable_x64(False), pytest.raises(duat.DuatError, match="float64 is off in JAX"):
        duat.from_hugging_face(transformers.AutoModelForCausalLM, GOLDEN / "gpt2", dtype="float64")
    with pytest.raises(duat.DuatError, match="dtype must be float64 or float32, not 'bfloat16'"):
        duat.from_hugging_face(transformers.AutoModelForCausalLM, GOLDEN / "gpt2", dtype="bfloat16")


def test_a_module_with_two_names_keeps_its_tensors():
    """As PEFT's model names the embeddings of the model inside it."""
    layer, tied = nn.Linear(3, 3), nn.Linear(3, 3)
    tied.weight = layer.weight
    module = Computes(lambda self, x: self.a(x) + self.b(x) + self.c(x), a=layer, b=layer, c=tied).double().eval()
    before = dict(module.named_parameters())
    x = torch.randn(3, dtype=torch.float64)
    function = duat.from_torch(module, [x])
    assert sorted(function.weights) == ["a.bias", "a.weight", "c.bias"]
    assert all(each is before[name] for name, each in module.named_parameters())
    moved = function.with_weights({"a.weight": jnp.zeros((3, 3))})(jnp.asarray(x.numpy()))
    near(moved, (2 * layer.bias + tied.bias).detach().numpy(), within=1e-12)
