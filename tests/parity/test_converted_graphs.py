"""Graphs of models that PyTorch's code computes are those of the family, and of held PyTorch by its derivatives."""

from unittest.mock import patch

import networkx
import numpy as np
import pytest
import torch
import transformers

import duat_jax as duat
from duat_jax.models.converted import converted
from tests.command import run
from tests.helpers import near
from tests.parity.goldens import GOLDEN
from tests.parity.test_encoder_decoder import GIVEN, LAYERS, model_of, module_of, tokenizer_of_words
from tests.parity.test_pytorch import tiny

TEXT = [3, 4, 5, 6, 7]


def every_move(moves):
    """Return what each head moves along every edge, `[heads, tokens, sources]`."""
    tokens, heads = moves.others.shape
    dense = np.zeros((heads, tokens, tokens))
    dense[:, moves.tokens, moves.sources] = moves.parts.T
    return dense


def moved_to(graph):
    """Return what all heads moved to every token of every stream."""
    moved = np.zeros_like(graph.streams)
    for key, moves in graph.moves.items():
        moved[graph.layers.index(key.layer)] += every_move(moves).sum((0, 2)) + moves.others.sum(-1)
    return moved


def require_sums(graph, within=1e-6):
    """Assert that streams sum, the last one to the value, and what neurons read to their pre-activations."""
    assert graph.completeness.verdict == "holds" and graph.streams.any()
    near(graph.kept + graph.terms + graph.biases + moved_to(graph), graph.streams, within)
    near(graph.streams[-1].sum() + graph.after, graph.value, within)
    for each in graph.neurons:
        near(each.embedding.sum() + each.terms.sum() + sum(each.biases.values()), each.pre_activation, within)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_familys_code_has_the_graph_of_the_family(name):
    native = duat.load(GOLDEN / name)
    other = duat.from_hugging_face(transformers.AutoModelForCausalLM, GOLDEN / name)
    one, two = (duat.graph(model, TEXT, 8, top_neurons=3, top_heads=0) for model in (native, other))
    require_sums(two)
    assert two.rows == one.rows
    first = native.config.position_embedding  # these are biases of the code's, and no part of the embedding
    for field in ("streams", "terms"):
        near(getattr(two, field)[first:], getattr(one, field)[first:], within=1e-5)
    for field in ("kept", "biases"):
        near(getattr(two, field)[2 * first :], getattr(one, field)[2 * first :], within=1e-5)
    near(two.after, one.after, within=1e-5)
    assert [key.layer for key in two.moves] == [key.layer for key in one.moves]
    for moves, expected in [*zip(two.moves.values(), one.moves.values(), strict=True)][first:]:
        near(every_move(moves), every_move(expected), within=1e-5)
    for each, expected in zip(two.neurons, one.neurons, strict=True):
        assert each.neuron[1:3] == expected.neuron[1:3]
        near(each.terms, expected.terms, within=1e-5)
        near(each.edges, expected.edges, within=1e-5)
        assert [token for token, _ in each.raised] == [token for token, _ in expected.raised]
    for group, expected in zip(two.groups, one.groups, strict=True):
        near(group[2:], expected[2:], within=1e-4)


def held_norm(self, x):
    """Compute T5's norm with its scale held."""
    scale = torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
    return self.weight * (x * scale.detach())


class HeldT5:
    """PyTorch's own T5 with patterns, norms and activations held: what passes its modules, and its derivatives.

    Args:
        module: the model.
        given: both texts.
        output: the token whose logit is read at the last place.
    """

    def __init__(self, module, given, output):
        self.seen, self.patterns, softmax = {}, [], torch.nn.functional.softmax

        def hold(scores, **options):
            self.patterns.append(softmax(scores, **options).detach())
            return self.patterns[-1]

        def keep(name, tensor):
            tensor.retain_grad()
            self.seen[name] = tensor
            return tensor

        for name, part in module.named_modules():
            if name.endswith("EncDecAttention"):

                def copy_of_memory(_, given, named, name=name):
                    return given, named | {
                        "key_value_states": keep(f"{name} memory", named["key_value_states"].clone())
                    }

                part.register_forward_pre_hook(copy_of_memory, with_kwargs=True)
            elif name.endswith(".o"):
                part.register_forward_pre_hook(lambda _, given, name=name: (keep(name, given[0]),))
            elif name.endswith(".act"):
                part.register_forward_hook(lambda _, __, out: out.detach().requires_grad_())
            elif name.endswith((".v", ".wo", "embed_tokens", "final_layer_norm")):
                part.register_forward_hook(lambda _, __, out, name=name: keep(name, out * 1))
            elif name.split(".")[-2:-1] == ["block"]:
                part.register_forward_hook(
                    lambda _, __, out, name=name: (
                        (keep(name, out[0] * 1), *out[1:]) if type(out) is tuple else keep(name, out * 1)
                    )
                )
        module.set_attn_implementation("eager")
        names = {"encoder": "input_ids", "decoder": "decoder_input_ids"}
        texts = {names[side]: torch.tensor([ids]) for side, ids in given.items()}
        norm = transformers.models.t5.modeling_t5.T5LayerNorm
        with patch.object(torch.nn.functional, "softmax", hold), patch.object(norm, "forward", held_norm):
            module(**texts, use_cache=False).logits[0, -1, output].backward()

    def value(self, name):
        """Return what passed a module."""
        return self.seen[name].detach().numpy()[0]

    def on(self, name):
        """Return the derivative with respect to it."""
        return self.seen[name].grad.numpy()[0]

    def moves(self, attention, pattern):
        """Return what each head moves, `[heads, tokens, sources]`, given the number of its pattern."""
        pattern = self.patterns[pattern][0].numpy()
        on_mixed, values = (
            x.reshape(len(x), len(pattern), -1) for x in (self.on(f"{attention}.o"), self.value(f"{attention}.v"))
        )
        return pattern * np.einsum("thd,shd->hts", on_mixed, values)


def test_a_graph_of_two_streams_is_that_of_held_pytorch():
    graph = duat.graph(model_of("t5"), GIVEN, 7, top_neurons=6)
    require_sums(graph)
    assert graph.rows == ("embedding", "encoder layer 0", "encoder layer 1", "decoder layer 2", "decoder layer 3")
    held = HeldT5(module_of("t5"), GIVEN, 7)
    encoder, decoder = slice(4), slice(4, 7)
    moves = [*map(every_move, graph.moves.values())]
    memory = held.value("encoder.final_layer_norm")
    on_memory = [held.on(f"decoder.block.{k}.layer.1.EncDecAttention memory") for k in (0, 1)]
    rows = [(held.value("encoder.embed_tokens"), held.on("encoder.embed_tokens"))]
    rows += [(held.value(f"encoder.block.{k}"), held.on(f"encoder.block.{k}")) for k in (0, 1)]
    rows += [(memory, on_memory[1]), (memory, 0 * memory)]
    said = [(held.value("decoder.embed_tokens"), held.on("decoder.embed_tokens"))] * 3
    said += [(held.value(f"decoder.block.{k}"), held.on(f"decoder.block.{k}")) for k in (0, 1)]
    for row, ((x, on_x), (y, on_y)) in enumerate(zip(rows, said, strict=True)):
        near(graph.streams[row, encoder], (x * on_x).sum(-1), within=1e-5)
        near(graph.streams[row, decoder], (y * on_y).sum(-1), within=1e-5)
        if 0 < row < 4:
            before = memory if row == 3 else rows[row - 1][0]
            near(graph.kept[row, encoder], (before * on_x).sum(-1), within=1e-5)
        if row:
            near(graph.kept[row, decoder], (said[row - 1][0] * on_y).sum(-1), within=1e-5)
    assert not graph.biases.any()
    for layer in range(LAYERS):
        side, block, tokens = ("encoder", layer, encoder) if layer < 2 else ("decoder", layer - 2, decoder)
        at = f"{side}.block.{block}.layer"
        written = f"{at}.{1 if layer < 2 else 2}.DenseReluDense.wo"
        expected = np.zeros(7)
        expected[tokens] = (held.value(written) * held.on(written)).sum(-1)
        near(graph.terms[layer + 1], expected, within=1e-5)
    attentions = [("encoder.block.0.layer.0.SelfAttention", encoder, encoder)]
    attentions += [("encoder.block.1.layer.0.SelfAttention", encoder, encoder)]
    for block in (0, 1):
        attentions += [(f"decoder.block.{block}.layer.0.SelfAttention", decoder, decoder)]
        attentions += [(f"decoder.block.{block}.layer.1.EncDecAttention", decoder, encoder)]
    for number, ((name, queries, keys), found) in enumerate(zip(attentions, moves, strict=True)):
        expected = np.zeros((2, 7, 7))
        expected[:, queries, keys] = held.moves(name, number)
        near(found, expected, within=1e-5)
    crossing = graph.counted_on(next(move for move in graph.top_moves(99) if "EncDecAttention" in move.key.scope))
    assert crossing.head in (2, 3)
    assert graph.view().graph.moves[3].edges.shape[1] == 2 + 4 and graph.scores == ()


def test_layers_that_share_their_weights_are_one_row():
    """ALBERT's layers have one name, and the second one's heads move what those of the first have brought."""
    module = tiny("albert", "AutoModel", embedding_size=16)
    graph = duat.graph(converted(module, "a model"), TEXT, against=[4, 5], top_neurons=2)
    require_sums(graph)
    assert graph.rows == ("embedding", "layer 0") and [key.number for key in graph.moves] == [0, 1]
    assert all(moves.parts.any() for moves in graph.moves.values())


@pytest.mark.parametrize(("name", "mixes"), [("rwkv", True), ("bloom", False)])
def test_a_note_says_where_tokens_are_mixed_past_the_heads(name, mixes):
    module = tiny(name, "AutoModelForCausalLM")
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    graph = duat.graph(converted(module, "a model"), TEXT, 8, top_neurons=0)
    assert graph.completeness.verdict == "holds"
    assert any("convolutions and recurrences" in note for note in graph.notes) == mixes


def test_a_command_follows_two_texts(tmp_path):
    module_of("t5").float().save_pretrained(tmp_path)
    tokenizer_of_words().save(str(tmp_path / "tokenizer.json"))
    files = [
        "--html",
        tmp_path / "graph.html",
        "--viewer",
        tmp_path / "viewer.json",
        "--graphml",
        tmp_path / "a.graphml",
    ]
    shown = run("graph", "a b c", "--pair", "d e", "--model", tmp_path, *files, "--json", tmp_path / "graph.json")
    assert shown.exit_code == 0 and "layer 3" in shown.output and "holds" in shown.output, shown.output
    record = duat.schemas.read((tmp_path / "graph.json").read_text())
    assert [stream.name for stream in record.streams][-1] == "decoder layer 3" and len(record.notes) == 1
    network = networkx.read_graphml(tmp_path / "a.graphml")
    for node, data in network.nodes(data=True):
        if data["kind"] == "stream":
            into = sum(edge["weight"] for _, _, edge in network.in_edges(node, data=True))
            near(into, data["value"], within=1e-4)
