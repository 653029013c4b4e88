"""The page of an explanation."""

from duat_jax.display.page.view import (
    Colouring,
    Row,
    UnitsKind,
    View,
    completeness_of,
    largest_units,
    line_ends,
    named,
    numbers,
    output_of,
    said,
)
from duat_jax.display.tables import token_label
from duat_jax.interpret.explain.result import Explanation

EXACT = (
    "Exact as a sum for this text: every layer, neuron and bias has its direct part, carried on through attention"
    " patterns and norms that are held at what they are here. Change the text, and they move."
)


def view(explanation: Explanation) -> View:
    """Return what the page of an explanation shows.

    Args:
        explanation: the result.
    """
    terms = explanation.term_tokens
    rows = [Row("embedding", numbers(explanation.embedding), [None])]
    for (key, parts), label, sums in zip(explanation.terms.items(), explanation.labels.values(), terms, strict=True):
        units = largest_units(parts, explanation.coefficients[key], explanation.activations[key])
        rows.append(Row(label, numbers(sums), [units], key.layer))
    return View(
        kind="explanation",
        target=explanation.target.headline,
        output=output_of(explanation.target),
        exact=EXACT,
        value_name="value",
        completeness=completeness_of(explanation.completeness),
        said=[said("the text", explanation.value, explanation.predictions)],
        tokens=[token_label(token) for token in explanation.tokens],
        others=None,
        line_ends=line_ends(explanation.tokens),
        colourings=[
            Colouring(
                "direct parts",
                "What is written at each token, by its embedding and by every layer: a column of the table.",
                numbers(explanation.embedding + terms.sum(0)),
            ),
            Colouring(
                "collapse",
                "On this text all layers together are one matrix and one constant: this is what the matrix makes of"
                " each token's embedding, its part of W(x0) x0; with the constant b(x0), which is"
                f" {explanation.collapse_bias:+z.4f}, they sum to the value.",
                numbers(explanation.collapse),
            ),
        ],
        rows=rows,
        row_sums=False,
        beside="",
        kinds=[
            UnitsKind(
                "neuron",
                ["contribution", "coefficient", "activation"],
                "A neuron's contribution is its coefficient times its activation; together they are the cell.",
                "",
            )
        ],
        added=named("Biases and norm offsets", ((str(key), part) for key, part in explanation.biases.items())),
        notes=[],
    )
