"""What can be chosen: sizes, rates, learners, buffers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from firehose.config import Section, merge, overrides, read_recipe
from firehose.methods.buffers.storage import BufferPlan
from firehose.models.device import Compute
from firehose.models.personal import ModelPlan


class Training(Section):
    """How a model is trained on posts in random order; the defaults are the paper's."""

    epochs: int = Field(default=10, ge=1)
    posts: int = Field(default=128, ge=1)  # of one step
    rate: float = Field(default=2.5e-4, gt=0)
    user_rate: float = Field(default=1.0, gt=0)  # times the rate, for the users' vectors
    warmup: int = Field(default=2000, ge=0)  # steps; then the rate falls to 0 along a cosine
    clip: float = Field(default=0.25, gt=0)  # the largest norm of a gradient
    patience: int = Field(default=2, ge=1)  # epochs in a row that may fail to be the best
    seed: int = Field(default=0, ge=0)


OptimizerName = Literal["online-gd", "congrad"]


class Playing(Section):
    """How the game is played; the defaults are the paper's.

    A recipe may give each optimizer a rate of its own, which is best for it:
    ``rate = { online-gd = 0.001, congrad = 0.002 }``.
    """

    learner: str = "mixed-replay"  # or FILE.py:Class
    optimizer: OptimizerName = "congrad"
    steps: int = Field(default=5, ge=1)  # of a round, at most: the paper's K
    posts: int = Field(default=256, ge=1)  # of a round
    hours: float | None = Field(default=None, gt=0)  # instead: a round is what comes in that time
    step_size: int = Field(default=128, ge=2)  # posts of a step, whatever the learner
    rate: float = Field(default=2.5e-4, gt=0)
    user_rate: float = Field(default=1.0, gt=0)  # times the rate, for the users' vectors
    warmup: int = Field(default=2000, ge=0)  # rounds
    clip: float = Field(default=0.25, gt=0)  # the largest norm of a gradient
    memory: BufferPlan = BufferPlan(per_user=5)
    validation: BufferPlan = BufferPlan(per_user=1)  # ConGraD's
    scored: int = Field(default=128, ge=1)  # validation posts that candidates are scored on
    zero: bool = True  # whether no step at all is a candidate, too
    moments: bool = False  # whether Adam's moments go back with the weights
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _own_rate(cls, values: Any) -> Any:
        """Of several rates, the optimizer's."""
        rates = values.get("rate") if isinstance(values, Mapping) else None
        if not isinstance(rates, Mapping):
            return values
        names = get_args(OptimizerName)
        if set(rates) != set(names):
            raise ValueError(f"rate is one number, or one for each of {', '.join(names)}")
        optimizer = values.get("optimizer", cls.model_fields["optimizer"].default)
        return {**values, "rate": rates.get(optimizer, 1.0)}  # a wrong optimizer is told later


class Settings(Section):
    """What the commands that make models are told; a recipe has the same tables."""

    model: ModelPlan = ModelPlan()
    pretrain: Training = Training()
    offline: Training = Training()
    play: Playing = Playing()
    compute: Compute = Compute()


def make_settings(
    recipe: str | Path | None = None, assignments: Sequence[str] = (), **tables: Mapping[str, Any]
) -> Settings:
    """Settings from a recipe (a name or a TOML file), ``a.b=value`` assignments, and tables."""
    values = read_recipe(recipe) if recipe else {}
    values = merge(merge(values, overrides(assignments)), tables)
    return Settings.of(values, str(recipe) if recipe else "the settings")
