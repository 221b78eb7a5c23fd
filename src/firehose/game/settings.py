"""The settings of models, trainings and games, as recipes and the command line give them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from firehose.config import Section, merge, overrides, read_recipe, refuse_unknown, together
from firehose.data.pictures.corpus import PicturePlan
from firehose.data.pictures.tasks import BENCHMARKS
from firehose.methods.buffers import BUFFERS, BufferChoice
from firehose.methods.learners import LEARNERS
from firehose.methods.optimizers import OPTIMIZERS
from firehose.methods.predictor import PREDICTORS
from firehose.models.device import Compute
from firehose.models.perceptron import PerceptronPlan
from firehose.models.personal import ModelPlan
from firehose.optim.rule import RULES
from firehose.plugins import Choice

LearnerChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(LEARNERS.settings)]
OptimizerChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(OPTIMIZERS.settings)]
PredictorChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(PREDICTORS.settings)]
RuleChoice = Annotated[SerializeAsAny[Choice], BeforeValidator(RULES.settings)]


class Training(Section):
    """How a model is trained on posts in random order; the defaults are the paper's."""

    epochs: int = Field(default=10, ge=1)
    posts: int = Field(default=128, ge=1)  # of a step
    rate: float = Field(default=2.5e-4, gt=0)
    user_rate: float = Field(default=1.0, gt=0)  # of the users' vectors, as a multiple of the rate
    warmup: int = Field(default=2000, ge=0)  # steps; then the rate falls to 0 along a cosine
    clip: float = Field(default=0.25, gt=0)  # the largest norm of a gradient
    seed: int = Field(default=0, ge=0)


class Playing(Section):
    """How the game is played; the defaults are the paper's.

    Learner, optimizer, update rule, memory and predictor are plug-ins: a kind,
    ``learner = "a-gem"``, or a table with the settings of that kind.
    """

    learner: LearnerChoice = Field(default_factory=lambda: LEARNERS.settings("mixed-replay"))
    optimizer: OptimizerChoice = Field(default_factory=lambda: OPTIMIZERS.settings("congrad"))
    rule: RuleChoice = Field(default_factory=lambda: RULES.settings("adam"))
    memory: BufferChoice = Field(default_factory=lambda: BUFFERS.settings({"per_user": 5}))
    predictor: PredictorChoice = Field(default_factory=lambda: PREDICTORS.settings("model"))
    steps: int = Field(default=5, ge=1)  # the most gradient steps of a round: the paper's K
    posts: int = Field(default=256, ge=1)  # of a round
    # If given, those of a round instead of posts; a thousand years are the most.
    hours: float | None = Field(default=None, gt=0, le=8_766_000)
    step_size: int = Field(default=128, ge=2)  # posts of a step, the same for every learner
    seed: int = Field(default=0, ge=0)


class Settings(Section):
    """All settings of a run; a recipe has the same tables.

    With ``pictures`` the game is played on a stream of tasks with pictures, by a perceptron.
    """

    model: ModelPlan = ModelPlan()
    pictures: PicturePlan | None = None
    perceptron: PerceptronPlan = PerceptronPlan()
    pretrain: Training = Training()
    offline: Training = Training()
    play: Playing = Playing()
    compute: Compute = Compute()

    @model_validator(mode="before")
    @classmethod
    def _own_rate(cls, values: Any) -> Any:
        """Choose among several rates of the update rule by the optimizer or the benchmark.

        They are given as ``rate = { online-gd = 0.001, congrad = 0.002 }``.
        """
        play = _table(_table(values).get("play"))
        rule = _table(play.get("rule"))
        rates = rule.get("rate")
        if not isinstance(rates, Mapping):
            return values
        names = kinds_of(OPTIMIZERS.settings(play.get("optimizer", "congrad")))
        if benchmark := _table(values.get("pictures")).get("benchmark"):
            refuse_unknown("benchmark", benchmark, list(BENCHMARKS))
            names += [benchmark]
        found = [rates[name] for name in names if name in rates]
        if not any(OPTIMIZERS.find(name).takes_steps for name in names if name not in BENCHMARKS):
            found = list(rates.values())  # none is ever used
        if not found:
            raise ValueError(
                f"play.rule.rate has one number for each of {', '.join(rates)}, and none for "
                f"{names[0]}; add one, or give a single number"
            )
        return {**values, "play": {**play, "rule": {**rule, "rate": found[0]}}}


def taking_steps(settings: Any) -> Any:
    """The settings of the optimizer that takes the steps: this one, or the innermost in it."""
    inner = getattr(settings, "inner", None)
    return settings if inner is None else taking_steps(inner)


def kinds_of(settings: Any) -> list[str]:
    """The kind of an optimizer, and of those inside it."""
    inner = getattr(settings, "inner", None)
    return [settings.kind, *(kinds_of(inner) if inner is not None else [])]


def _table(values: Any) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {}


Kind = Literal["pretrain", "offline", "play"]  # of a run


def make_settings(
    recipe: str | Path | None = None,
    assignments: Sequence[str] = (),
    trust: bool = False,
    **tables: Mapping[str, Any],
) -> Settings:
    """Settings from a recipe (a name or a TOML file), ``a.b=value`` assignments, and tables.

    Each overrides what comes before it. What a recipe says of a kind that is not chosen is set
    aside; assignments and tables must be known to the kinds that are. With ``trust``, code that
    the recipe names is run as if it were named here.
    """
    given = together(overrides(assignments), tables)
    values = merge(read_recipe(recipe, trust) if recipe else {}, given)
    return Settings.of(values, str(recipe or "the settings"))
