"""The user's object: one output of a model on one text, as a complete table that sums to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from duat_jax import collapsed, contributions
from duat_jax.contributions import Closure, Decomposition
from duat_jax.errors import BadText
from duat_jax.marks import hold
from duat_jax.models.transformer import Transformer
from duat_jax.nn.linear import PRECISION
from duat_jax.recording import record_program

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from tokenizers import Tokenizer

PREDICTIONS = 5


class Prediction(NamedTuple):
    """One token that a language model may say next.

    Args:
        token: its text.
        probability: between 0 and 1.
    """

    token: str
    probability: float


class Neuron(NamedTuple):
    """One entry of the table at its finest level.

    Args:
        layer: index of the layer.
        token_index: index of the token at which the neuron fired.
        neuron: index of the neuron.
        value: its share of the explained value.
    """

    layer: int
    token_index: int
    neuron: int
    value: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """One number that a model computed, and every part of it: `value = Σ embedding + Σ mlp + Σ biases`.

    Exact as a value; attention patterns and normalisation scales are held at what they are on this text.

    Args:
        family: the checkpoint family.
        tokens: the text's tokens, readable.
        target: what is explained, in words.
        predictions: what a language model says next at the explained position; empty for an encoder.
        embedding: share of every token's embedding, `[tokens]`.
        neurons: share of every MLP neuron, `[layers, tokens, neurons]`.
        biases: share of every bias and norm offset, by name; zero for those inside a term or a pattern.
        input_tokens: share of every token by the collapse `x_L = W(x_0) x_0 + b(x_0)`, `[tokens]`.
        input_bias: what in the collapse doesn't depend on the tokens.
        closure: value (from the plain forward pass), sum of all parts, error and tolerance.
    """

    family: str
    tokens: tuple[str, ...]
    target: str
    predictions: tuple[Prediction, ...]
    embedding: Float[np.ndarray, "tokens"]
    neurons: Float[np.ndarray, "layers tokens neurons"]
    biases: dict[str, float]
    input_tokens: Float[np.ndarray, "tokens"]
    input_bias: float
    closure: Closure

    @property
    def value(self) -> float:
        """The explained number, from the plain forward pass."""
        return float(self.closure.value)

    @property
    def mlp(self) -> Float[np.ndarray, "layers tokens"]:
        """Share of every layer at every token: its neurons' sum."""
        return self.neurons.sum(-1)

    def top(self, count: int) -> list[Neuron]:
        """Return the neurons with the largest shares by size.

        Args:
            count: how many.
        """
        flat = self.neurons.reshape(-1)
        count = min(count, len(flat))
        largest = np.argpartition(-np.abs(flat), count - 1)[:count]
        ordered = largest[np.argsort(-np.abs(flat[largest]), kind="stable")]
        places = np.unravel_index(ordered, self.neurons.shape)
        return [
            Neuron(int(layer), int(token), int(neuron), float(flat[i]))
            for layer, token, neuron, i in zip(*places, ordered, strict=True)
        ]

    def as_dict(self, model: str, count: int = 10) -> dict[str, Any]:
        """Return everything but single neurons as plain numbers, for JSON.

        Args:
            model: name of the model.
            count: how many of the largest neurons to list.
        """
        return {
            "model": model,
            "family": self.family,
            "tokens": list(self.tokens),
            "target": self.target,
            "dtype": str(self.closure.dtype),
            "predictions": [prediction._asdict() for prediction in self.predictions],
            "value": self.value,
            "sum": float(self.closure.sum),
            "error": float(self.closure.error),
            "tolerance": float(self.closure.tolerance),
            "parts": {
                "embedding": self.embedding.tolist(),
                "mlp": self.mlp.tolist(),
                "bias": sum(self.biases.values()),
            },
            "biases": self.biases,
            "input_tokens": self.input_tokens.tolist(),
            "input_bias": self.input_bias,
            "top": [neuron._asdict() for neuron in self.top(count)],
        }

    def __repr__(self) -> str:
        return f"Explanation({self.target} = {self.value:.6g}, error {float(self.closure.error):+.1e})"

    def __str__(self) -> str:
        from duat_jax.viz.table import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from duat_jax.viz.table import as_html

        return as_html(self)

    def plot(self) -> "Figure":
        """Return the layer × token picture."""
        from duat_jax.viz.picture import draw

        return draw(self)


class _Table(NamedTuple):
    decomposition: Decomposition
    collapsed: collapsed.CollapsedContributions


_MARKS = tuple(dict.fromkeys(contributions.KINDS + collapsed.KINDS))


@jax.jit
def _forward(model: Transformer, ids: Int[Array, "tokens"]) -> Float[Array, "tokens outputs"]:
    return model(ids)


def _table(model: Transformer, ids: Int[Array, "tokens"], readout: Callable[[Array], Array]) -> _Table:
    recording = record_program(lambda x: readout(model.hidden(x)), model.embed(ids), _MARKS)
    return _Table(contributions.contributions(recording), collapsed.collapsed_contributions(recording))


@jax.jit
def _logit_table(
    model: Transformer, ids: Int[Array, "tokens"], direction: Float[Array, "features"], position: Array
) -> _Table:
    return _table(model, ids, lambda hidden: jnp.dot(hidden[position], direction, precision=PRECISION))


@jax.jit
def _similarity_table(model: Transformer, ids: Int[Array, "tokens"], direction: Float[Array, "features"]) -> _Table:
    def cosine(hidden: Array) -> Array:
        pooled = hidden.mean(0)
        scale = hold(1 / jnp.linalg.norm(pooled), "similarity.scale")
        return jnp.dot(pooled, direction, precision=PRECISION) * scale

    return _table(model, ids, cosine)


def _bias_name(key: str) -> str:
    """Return a bias's name with its layer in front; what is outside the layers occurs once."""
    name, _, number = key.partition("/")
    return key if name in ("embedding_norm.offset", "final_norm.offset") else f"layers.{number or 0}.{name}"


def _in_order(terms: dict[str, Array]) -> np.ndarray:
    """Stack per-layer arrays by the number of their layer."""
    return np.stack([np.asarray(terms[key]) for key in sorted(terms, key=lambda key: int(f"0{key.partition('/')[2]}"))])


def _check_ids(model: Transformer, ids: Any, what: str) -> None:
    config = model.config
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise BadText(f"{what}: token ids must be whole numbers in one row, not {ids.dtype} {list(ids.shape)}")
    if len(ids) == 0:
        raise BadText(f"{what} is empty: give at least one token")
    if len(ids) > config.positions:
        raise BadText(f"{what} has {len(ids)} tokens, but the model's context is {config.positions}: shorten it")
    if ids.min() < 0 or ids.max() >= config.vocab:
        raise BadText(
            f"{what} has token id {ids.max() if ids.min() >= 0 else ids.min()}, but the model knows"
            f" 0 to {config.vocab - 1}: use its own tokenizer"
        )


def explain(
    model: Transformer,
    ids: Int[Array, "tokens"],
    target: int | None = None,
    *,
    contrast: int | None = None,
    against: Int[Array, "other_tokens"] | None = None,
    position: int = -1,
    tokenizer: "Tokenizer | None" = None,
) -> Explanation:
    """Explain one number that a model computes, down to every neuron at every token.

    For a language model, the logit of `target` (minus that of `contrast`) at one position; for an encoder, the cosine
    similarity of the mean-pooled embeddings of two texts, the norm held.

    Args:
        model: a loaded model.
        ids: token ids, `[tokens]`.
        target: token id whose logit is explained; the most probable one if absent.
        contrast: token id whose logit is subtracted.
        against: for an encoder, token ids of the other text, `[other_tokens]`.
        position: at which token the logit is read; negative counts from the end.
        tokenizer: makes tokens readable; without it they are shown as numbers.

    Returns:
        The explanation with its closure; it shows itself in a notebook, and `print` shows it in a terminal.

    Raises:
        BadText: for token ids, a position or a combination of arguments that the model can't take.

    Example:
        >>> import jax.numpy as jnp
        >>> import duat_jax as duat
        >>> model, tokenizer = duat.load(), duat.load_tokenizer()
        >>> ids = jnp.array(tokenizer.encode("for i in range(10").ids)
        >>> explanation = duat.explain(model, ids, tokenizer.token_to_id("):"), tokenizer=tokenizer)
        >>> explanation.closure.holds
        True

    Source: Wang & Li, Eq. 11; design of the table in the project's README.
    """
    _check_ids(model, ids, "the text")
    ids = jnp.asarray(ids)
    names = tuple(_readable(tokenizer, int(i)) for i in ids)
    predictions: tuple[Prediction, ...] = ()
    outputs = _forward(model, ids)
    if model.config.causal:
        if against is not None:
            raise BadText(
                f"a {model.config.family} model is no encoder: explain a target token instead of a similarity"
            )
        place = _place(position, len(names))
        _check_token(model, target, "target")
        _check_token(model, contrast, "contrast")
        logits = outputs[place]
        predictions = _predictions(logits, tokenizer)
        chosen = int(jnp.argmax(logits)) if target is None else target
        value, direction = logits[chosen], model.unembedding[chosen]
        label = f"logit of {_readable(tokenizer, chosen)!r}"
        if contrast is not None:
            value, direction = value - logits[contrast], direction - model.unembedding[contrast]
            label += f" minus that of {_readable(tokenizer, contrast)!r}"
        label += f" at token {place}, {names[place]!r}"
        table = _logit_table(model, ids, direction, place)
    else:
        if against is None or target is not None or contrast is not None or position != -1:
            raise BadText(
                f"a {model.config.family} model is an encoder and says no next token: explain it against"
                " another text (--against TEXT), without target, contrast or position"
            )
        _check_ids(model, against, "the other text")
        pooled, other = outputs.mean(0), _forward(model, jnp.asarray(against)).mean(0)
        direction = other / jnp.linalg.norm(other)
        value = jnp.dot(pooled, direction, precision=PRECISION) / jnp.linalg.norm(pooled)
        label = "cosine similarity to " + repr(_text(tokenizer, against))
        table = _similarity_table(model, ids, direction)
    return _explanation(model, names, label, predictions, value, table)


def _check_token(model: Transformer, token: Any, what: str) -> None:
    if token is None:
        return
    if not isinstance(token, int | np.integer) or not 0 <= token < model.config.vocab:
        raise BadText(f"the {what} {token!r} is no token id: the model knows 0 to {model.config.vocab - 1}")


def _explanation(
    model: Transformer,
    names: tuple[str, ...],
    label: str,
    predictions: tuple[Prediction, ...],
    value: Array,
    table: _Table,
) -> Explanation:
    parts = table.decomposition
    # The value is that of the plain forward pass, a program of its own.
    closure = parts.closure._replace(value=value, error=parts.closure.sum - value)
    return Explanation(
        family=model.config.family,
        tokens=names,
        target=label,
        predictions=predictions,
        embedding=np.asarray(parts.input.sum(-1)),
        neurons=_in_order(parts.terms),
        biases={_bias_name(key): float(value) for key, value in parts.offsets.items()},
        input_tokens=np.asarray(table.collapsed.input.sum(-1)),
        input_bias=float(table.collapsed.bias),
        closure=closure,
    )


def _place(position: int, tokens: int) -> int:
    if not -tokens <= position < tokens:
        raise BadText(f"position {position} is outside the text's {tokens} tokens: give {-tokens} to {tokens - 1}")
    return position % tokens


def _predictions(logits: Array, tokenizer: "Tokenizer | None") -> tuple[Prediction, ...]:
    probabilities, tokens = jax.lax.top_k(jax.nn.softmax(logits), min(PREDICTIONS, len(logits)))
    return tuple(
        Prediction(_readable(tokenizer, int(token)), float(p)) for token, p in zip(tokens, probabilities, strict=True)
    )


def _readable(tokenizer: "Tokenizer | None", token: int) -> str:
    name = None if tokenizer is None else tokenizer.id_to_token(token)
    if tokenizer is None or name is None:
        return str(token)
    # A byte of a split character decodes to nothing printable: then the tokenizer's own name is shown.
    text = tokenizer.decode([token], skip_special_tokens=False)
    return text if text and "\ufffd" not in text else name


def _text(tokenizer: "Tokenizer | None", ids: Sequence[int] | Array) -> str:
    ids = [int(i) for i in ids]
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids)
