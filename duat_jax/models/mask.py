"""Validation of token masks, inverted ones included."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from duat_jax.errors import InvalidInput
from duat_jax.nn.pattern import require_boolean

SHOWN = 4


def require_mask(ids: Any, mask: Any) -> Bool[Array, ""]:
    """Check that a mask fits its token ids; raise if it is known not to.

    Example:
        >>> import numpy as np
        >>> bool(require_mask(np.array([5, 6, 7, 0, 0]), np.arange(5) < 3))
        True
        >>> require_mask(np.array([5, 6, 7, 0, 0]), np.arange(5) >= 3)
        Traceback (most recent call last):
        duat_jax.errors.InvalidInput: the mask hides 3 different tokens (5, 6, 7), but padding is one and the same ...
    """
    # Every text needs a real token, and all masked-out tokens have to be one and the same token, as padding is. An
    # inverted mask would mask out the text itself.
    require_boolean(mask)
    if mask.shape != ids.shape:
        raise InvalidInput(
            f"the mask has shape {list(mask.shape)}, but the token ids have {list(ids.shape)}: give one value for each"
        )
    if isinstance(ids, jax.core.Tracer) or isinstance(mask, jax.core.Tracer):
        limits = jnp.iinfo(ids.dtype)
        hidden_least, hidden_most = jnp.where(mask, limits.max, ids).min(), jnp.where(mask, limits.min, ids).max()
        return mask.any(-1).all() & (hidden_most <= hidden_least)
    ids, mask = np.asarray(ids), np.asarray(mask)
    meaning = "True means a real token, False means padding, and an inverted mask has to be given as ~mask"
    if not mask.any(-1).all():
        raise InvalidInput(f"the mask leaves a text without a real token: {meaning}")
    hidden = list(dict.fromkeys(ids[~mask].tolist()))
    if len(hidden) > 1:
        some = ", ".join(map(str, hidden[:SHOWN])) + (", …" if len(hidden) > SHOWN else "")
        raise InvalidInput(
            f"the mask hides {len(hidden)} different tokens ({some}), but padding is one and the same token: {meaning};"
            " to hide real tokens, give the mask to model.output(model.embed(ids), mask)"
        )
    return jnp.array(True)
