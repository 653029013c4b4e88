"""The matrix-vector method with explicit entries: linear maps of small layers as matrices of symbols."""

from symbolic.vectorisation.attention import Attention as Attention
from symbolic.vectorisation.attention import attention as attention
from symbolic.vectorisation.density import convolution as convolution
from symbolic.vectorisation.density import densities as densities
from symbolic.vectorisation.entries import Explicit as Explicit
from symbolic.vectorisation.entries import matrix as matrix
from symbolic.vectorisation.entries import vec as vec
from symbolic.vectorisation.linear import linear_on_features as linear_on_features
from symbolic.vectorisation.linear import linear_on_rows as linear_on_rows
