"""Everything public, named once; `symbolic` gives these names, and loads this module when one of them is first used."""

from symbolic.blocks.block import Block as Block
from symbolic.catalogue import derive as derive
from symbolic.equality.normal_form import equal as equal
from symbolic.equality.normal_form import normal_form as normal_form
from symbolic.errors import ShapeMismatch as ShapeMismatch
from symbolic.errors import SymbolicError as SymbolicError
from symbolic.expressions.latex import typeset as typeset
from symbolic.expressions.written import activation as activation
from symbolic.expressions.written import diag as diag
from symbolic.expressions.written import hadamard as hadamard
from symbolic.expressions.written import held as held
from symbolic.expressions.written import held_scalar as held_scalar
from symbolic.expressions.written import identity as identity
from symbolic.expressions.written import kronecker as kronecker
from symbolic.expressions.written import matrix as matrix
from symbolic.expressions.written import ones as ones
from symbolic.expressions.written import scalar as scalar
from symbolic.expressions.written import sizes as sizes
from symbolic.expressions.written import summed as summed
from symbolic.expressions.written import vec as vec
from symbolic.expressions.written import vector as vector
from symbolic.proof.derivation import Derivation as Derivation
from symbolic.theorems.closed_form import prove as prove
from symbolic.theorems.residual_stack import ResidualStack as ResidualStack
