"""Arrays with named axes: the numbers of every result, as one tidy table and as one data set."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from duat_jax.extras import requiring
from duat_jax.transform.keys import Key

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset

Label = str | int | None
Axes = Mapping[str, Mapping[str, Sequence[Label]]]
"""By the name of each axis its labels, by their names: those with the axis' own name tell its entries apart."""


class NamedArray(NamedTuple):
    """The numbers of one part of a result at one place.

    Args:
        part: the name of the part.
        values: the numbers, with one axis for each of `axes`.
        axes: the labels of each axis.
        place: the labels of the whole array, such as its mark, by name; the first tells arrays of one part apart.
    """

    part: str
    values: np.ndarray
    axes: Axes
    place: Mapping[str, Label]


def numbered(name: str, count: int) -> Axes:
    """Return an axis whose entries are numbered from 0."""
    return {name: {name: range(count)}}


def numeric_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key for dotted names, by which layer 2 comes before layer 10.

    Example:
        >>> sorted(["layers.10.mlp", "layers.2.mlp", "head"], key=numeric_order)
        ['head', 'layers.2.mlp', 'layers.10.mlp']
    """
    return [(int(step), "") if step.isdecimal() else (-1, step) for step in name.split(".")]


def of_tokens(tokens: Sequence[str], chosen: Sequence[int] | None = None) -> Axes:
    """Return the axis of a text's tokens, or of chosen ones, by their index and by what they are."""
    indices = range(len(tokens)) if chosen is None else chosen
    return {"token_index": {"token_index": indices, "token": [tokens[index] for index in indices]}}


def at_mark(key: Key) -> Mapping[str, Label]:
    """Return the place of a mark: its name and its layer."""
    return {"mark": str(key), "layer": key.layer}


def by_mark(part: str, values: Mapping[Key, Any], axes: Axes, *unnamed: str) -> Iterator[NamedArray]:
    """Yield the arrays of a part by their marks."""
    for key, array in values.items():
        numbers = np.asarray(array)
        further = zip(unnamed, numbers.shape[len(axes) :], strict=True)
        labels = {
            name: labels for axis in (axes, *(numbered(*each) for each in further)) for name, labels in axis.items()
        }
        yield NamedArray(part, numbers, labels, at_mark(key))


def by_name(part: str, values: Mapping[str, float]) -> Iterator[NamedArray]:
    """Yield the numbers of a part by their names."""
    return (NamedArray(part, np.asarray(value), {}, {"name": name}) for name, value in values.items())


def whole(part: str, values: Any, axes: Axes | None = None) -> NamedArray:
    """Return a part that is one array."""
    return NamedArray(part, np.asarray(values), axes or {}, {})


def as_dataframe(arrays: Iterable[NamedArray]) -> "DataFrame":
    """Return arrays as one tidy table: a row for each number, with its part, its labels and its value.

    Example:
        >>> table = as_dataframe([whole("embedding", [1.0, 2.0], of_tokens(["a", "b"])), whole("bias", 0.5)])
        >>> list(table.columns), len(table), float(table.value.sum())
        (['part', 'token_index', 'token', 'value'], 3, 3.5)
    """
    with requiring("dataframes", "to_dataframe"):
        import pandas as pd
    columns = [_columns(array) for array in arrays]
    names = dict.fromkeys(name for each in columns for name in each if name != "value")

    def column(name: str) -> np.ndarray:
        return np.concatenate([each.get(name, np.full(len(each["value"]), None)) for each in columns])

    # Whole numbers that are missing somewhere stay whole numbers.
    labels = {name: pd.Series(column(name)).convert_dtypes() for name in names}
    return pd.DataFrame({**labels, "value": column("value")})


def _columns(array: NamedArray) -> dict[str, np.ndarray]:
    """Return an array's labels and values by column, each entry of the array a row."""
    shape, columns = array.values.shape, {"part": np.full(array.values.size, array.part, object)}
    columns |= {name: np.full(array.values.size, label, object) for name, label in array.place.items()}
    for place, labels in enumerate(array.axes.values()):
        along = [-1 if i == place else 1 for i in range(len(shape))]
        for name, each in labels.items():
            column = np.empty(len(each), object)
            column[:] = list(each)
            columns[name] = np.broadcast_to(column.reshape(along), shape).reshape(-1)
    return columns | {"value": array.values.reshape(-1)}


def as_dataset(arrays: Iterable[NamedArray]) -> "Dataset":
    """Return arrays as one data set: a variable for each part, with named axes.

    Example:
        >>> found = as_dataset([whole("embedding", [1.0, 2.0], of_tokens(["a", "b"])), *by_name("bias", {"mlp": 0.5})])
        >>> found.embedding.dims, found.bias.dims, float(found.bias.sel(bias_name="mlp"))
        (('token_index',), ('bias_name',), 0.5)
    """
    # Arrays of one part at several places are one variable with one axis more, of the places: `terms` with the axis
    # `terms_mark` and its layers in `terms_layer`. Where one of them has fewer entries on an axis, NaN fills the rest.
    with requiring("dataframes", "to_xarray"):
        import xarray as xr
    parts: dict[str, list[NamedArray]] = {}
    for array in arrays:
        parts.setdefault(array.part, []).append(array)
    variables = {}
    for part, places in parts.items():
        data_arrays = [_data_array(array) for array in places]
        dimension, *_ = (*(f"{part}_{name}" for name in places[0].place), None)
        variables[part] = (
            data_arrays[0]
            if dimension is None
            else xr.concat(data_arrays, dimension, coords="different", compat="equals", join="outer")
        )
    return xr.Dataset(variables)


def _data_array(array: NamedArray) -> Any:
    import xarray as xr

    coordinates: dict[str, Any] = {
        name: (axis, list(each)) for axis, labels in array.axes.items() for name, each in labels.items()
    }
    coordinates |= {f"{array.part}_{name}": np.nan if label is None else label for name, label in array.place.items()}
    return xr.DataArray(array.values, coordinates, tuple(array.axes))
