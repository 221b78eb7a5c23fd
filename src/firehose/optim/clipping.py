"""The norm of a gradient: refused where it is not finite, clipped where it is too large."""

import math

from firehose.optim.gradient import Gradient


class NotFinite(ArithmeticError):  # noqa: N818 (as in "the loss is …")
    """A loss or a gradient is not a finite number; nothing was changed."""


def clip(gradient: Gradient, max_norm: float | None) -> float:
    """Scale the gradient in place to a norm of at most ``max_norm``; returns its norm before.

    Raises NotFinite where the norm, or the loss, is not a finite number.
    """
    norm = gradient.norm()
    if not math.isfinite(gradient.loss + norm):
        raise NotFinite(f"a loss of {gradient.loss}, a gradient of norm {norm}")
    if max_norm is not None and norm > max_norm:
        gradient.scale(max_norm / (norm + 1e-6))
    return norm
