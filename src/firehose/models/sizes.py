"""How many bytes a model takes, reckoned from its plan, and whether this machine has them."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from firehose.errors import FirehoseError
from firehose.machine import memory
from firehose.report.words import size

if TYPE_CHECKING:
    from firehose.models.personal import ModelPlan

FLOAT = 4  # bytes


def count_weights(plan: "ModelPlan", pieces: int) -> int:
    """The number of a model's weights, without the users' vectors."""
    shape, d_model = plan.shape, plan.shape.d_model
    inner, norm = shape.heads * shape.d_head, 2 * d_model
    attention = 5 * d_model * inner + norm
    feed_forward = 2 * d_model * shape.d_inner + shape.d_inner + d_model + norm
    shared = pieces * (d_model + 1) + 2 * inner + shape.layers * (attention + feed_forward)
    mlp = 3 * d_model * plan.mlp + plan.mlp + d_model + norm
    mlps = {"agnostic": 0, "adapters": shape.layers}.get(plan.architecture, 1)
    projects = plan.project_users and plan.architecture != "agnostic"
    return shared + mlps * mlp + (plan.d_user * d_model if projects else 0)


def count_kept(plan: "ModelPlan") -> int:
    """The least numbers that are kept of each token of a step, to compute the gradient."""
    shape = plan.shape
    return shape.layers * (3 * shape.heads * shape.d_head + shape.d_inner + 2 * shape.d_model)


def refuse_beyond_memory(needs: Mapping[str, int], advice: str) -> None:
    """Refuse what needs more bytes in all than this machine has; ``needs`` says what for."""
    if (total := sum(needs.values())) <= memory():
        return
    most = max(needs, key=lambda what: needs[what])
    whole = "" if total == needs[most] else f" of {size(total)} in all"
    there = "each process here has" if "LOCAL_WORLD_SIZE" in os.environ else "this machine has"
    raise FirehoseError(
        f"{most} needs {size(needs[most])}{whole}, and {there} {size(memory())}; {advice}."
    )
