"""List every public name once; `symbolic` loads this module when one of them is first used."""

from symbolic.blocks.block import Block as Block
from symbolic.catalogue import derive as derive
from symbolic.equality.normal_form import equal as equal
from symbolic.equality.normal_form import normal_form as normal_form
from symbolic.errors import ShapeMismatch as ShapeMismatch
from symbolic.errors import SymbolicError as SymbolicError
from symbolic.expressions.constructors import activation as activation
from symbolic.expressions.constructors import diag as diag
from symbolic.expressions.constructors import hadamard as hadamard
from symbolic.expressions.constructors import held as held
from symbolic.expressions.constructors import held_scalar as held_scalar
from symbolic.expressions.constructors import identity as identity
from symbolic.expressions.constructors import kronecker as kronecker
from symbolic.expressions.constructors import matrix as matrix
from symbolic.expressions.constructors import ones as ones
from symbolic.expressions.constructors import scalar as scalar
from symbolic.expressions.constructors import sizes as sizes
from symbolic.expressions.constructors import summed as summed
from symbolic.expressions.constructors import vec as vec
from symbolic.expressions.constructors import vector as vector
from symbolic.expressions.latex import typeset as typeset
from symbolic.proof.derivation import Derivation as Derivation
from symbolic.theorems.closed_form import prove as prove
from symbolic.theorems.residual_stack import ResidualStack as ResidualStack
