"""Factors of a learning rate that change with time."""

import math


def warmup(now: int, length: int) -> float:
    """Rises linearly from 0 to 1 over ``length`` rounds or steps, ``now`` counted from 1."""
    return min(1.0, now / length) if length else 1.0


def cosine(done: int, total: int) -> float:
    """Falls from 1 to 0 along half a cosine, after ``done`` of ``total`` steps."""
    return 0.5 + 0.5 * math.cos(math.pi * done / total)
