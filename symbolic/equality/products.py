"""Multiply words, and take their `vec`."""

from sympy import Integer

from symbolic.equality.linear_atoms import KroneckerAtom, VecAtom
from symbolic.equality.word import Atom, Word, expanded


def times(left: Word, right: Word) -> Word:
    """Return the product of two words; Kronecker products that meet become one, `(A ⊗ B)(C ⊗ D) = AC ⊗ BD`.

    Args:
        left: the left factor.
        right: the right factor.
    """
    shape, scalars = (left.shape[0], right.shape[1]), left.scalars + right.scalars
    if left.atoms and right.atoms:
        a, b = left.atoms[-1], right.atoms[0]
        if (
            isinstance(a, KroneckerAtom)
            and isinstance(b, KroneckerAtom)
            and (a.left.shape[1], a.right.shape[1]) == (b.left.shape[0], b.right.shape[0])
        ):
            met = kronecker(times(a.left, b.left), times(a.right, b.right))
            return Word(left.atoms[:-1] + met.atoms + right.atoms[1:], shape, scalars + met.scalars)
    return Word(left.atoms + right.atoms, shape, scalars)


def kronecker(left: Word, right: Word) -> Word:
    """Return the Kronecker product of two words; one that is a number multiplies the other.

    Args:
        left: the left factor.
        right: the right factor.
    """
    if left.shape == (1, 1):
        return right.scaled(left.as_scalars())
    if right.shape == (1, 1):
        return left.scaled(right.as_scalars())
    shape = expanded((left.shape[0] * right.shape[0], left.shape[1] * right.shape[1]))
    pair = (KroneckerAtom.of(shape, left.alone(), right.alone()),) if left.atoms or right.atoms else ()
    return Word(pair, shape, left.scalars + right.scalars)


def vec(word: Word) -> Word:
    """Return the entries of a word as a column: `A x B` as `(A ⊗ Bᵀ) vec x` at its data, `u vᵀ` as `u ⊗ v`.

    Args:
        word: the word.
    """
    rows, columns = word.shape
    if columns == 1:
        return word
    if word.scalars:
        return vec(word.alone()).scaled(word.scalars)
    for k, atom in enumerate(word.atoms):
        inner = [word.shape[0], *(a.shape[1] for a in word.atoms)]
        before = Word(word.atoms[:k], (rows, inner[k]))
        if k and inner[k] == 1:
            return kronecker(before, Word(word.atoms[k:], (inner[k], columns)).transposed())
        if atom.data:
            after = Word(word.atoms[k + 1 :], (inner[k + 1], columns))
            return times(kronecker(before, after.transposed()), _vec_of_atom(atom))
    if len(word.atoms) == 1:
        return _vec_of_atom(word.atoms[0])
    return Word((VecAtom.of((rows * columns, Integer(1)), word),), expanded((rows * columns, Integer(1))))


def _vec_of_atom(atom: Atom) -> Word:
    """Return the `vec` of an atom: the one that it knows, itself if it is a column, or an atom of its own."""
    known = atom.vec()
    if known is not None:
        return known
    shape, word = expanded((atom.shape[0] * atom.shape[1], Integer(1))), Word((atom,), atom.shape)
    return word if atom.shape[1] == 1 else Word((VecAtom.of(shape, word),), shape)
