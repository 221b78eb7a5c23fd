"""Settings and measures in the words of people."""

from collections.abc import Mapping, Sequence

from firehose.game.totals import ACCURACY, Scale

VALUES = {
    "online-gd": "Online GD",
    "congrad": "ConGraD",
    "a-gem": "A-GEM",
    "gem": "GEM",
    "icarl": "iCaRL",
    "online-only": "online only",
    "replay-only": "replay only",
    "mixed-replay": "mixed replay",
    "offline": "offline oracle",
    "agnostic": "user-agnostic",
    "encoder": "multi-task encoder",
    "decoder": "multi-task decoder",
    "adapters": "residual adapters",
    "fifo": "FIFO",
    "reservoir": "reservoir",
    "stratified": "stratified",
    "disjoint-mnist": "Disjoint MNIST",
    "permuted-mnist": "Permuted MNIST",
    "disjoint-cifar": "Disjoint CIFAR",
    "disjoint-fashion": "Disjoint Fashion-MNIST",
}
PATTERNS = {
    "play.steps": "K = {}",
    "play.rule.rate": "rate {}",
    "play.optimizer.validation.per_user": "{} held back",
    "play.memory.per_user": "{} remembered",
}
MEASURES = {
    "test": "test",
    "balanced": "test, users alike",
    "per-token": "test, per token",
    "online": "online",
    "validation": "validation",
    "past": "past",
    "old": "old",
    "recent": "recent",
    "forgetting": "old : recent",
    "crossed": "as others",
}
TASK_MEASURES = {
    "accuracy": "accuracy",
    "forgetting": "forgetting",
    "forward": "forward transfer",
}


def name_of(value: str, setting: str = "") -> str:
    """A setting's value, so that it can stand alone."""
    if value in VALUES:
        return VALUES[value]
    if ":" in value:  # a class of the user's
        return value.rpartition(":")[2]
    if not setting:
        return value
    pattern = PATTERNS.get(setting, setting.rpartition(".")[2].replace("_", " ") + " {}")
    return pattern.format(value)


def measure_name(measure: str, scale: Scale) -> str:
    """What a number is called; forgetting is a ratio of perplexities, or points of accuracy."""
    names = MEASURES | TASK_MEASURES if scale is ACCURACY else TASK_MEASURES | MEASURES
    return names[measure]


def label(facts: Mapping[str, str], settings: Sequence[str]) -> str:
    """A run by some of its settings."""
    names = [name_of(facts[setting], setting) for setting in settings if setting in facts]
    return ", ".join(names) or VALUES.get(facts["kind"], facts["kind"])
