"""Settings and measures in the words of people."""

from collections.abc import Mapping, Sequence

from firehose.game.totals import ACCURACY, Scale

VALUES = {
    "online-gd": "Online GD", "congrad": "ConGraD", "averaged": "averaged weights",
    "online-only": "online only", "replay-only": "replay only", "mixed-replay": "mixed replay",
    "a-gem": "A-GEM", "gem": "GEM", "icarl": "iCaRL", "online-ewc": "online EWC", "der": "DER++",
    "mir": "MIR", "distill": "distillation", "offline": "offline oracle",
    "agnostic": "user-agnostic", "encoder": "multi-task encoder", "decoder": "multi-task decoder",
    "adapters": "residual adapters",
    "fifo": "FIFO", "reservoir": "reservoir", "stratified": "stratified",
    "disjoint-mnist": "Disjoint MNIST", "permuted-mnist": "Permuted MNIST",
    "disjoint-cifar": "Disjoint CIFAR", "disjoint-fashion": "Disjoint Fashion-MNIST",
}  # fmt: skip
PATTERNS = {
    "play.steps": "K = {}", "play.rule.rate": "rate {}",
    "play.memory.per_user": "{} remembered", "play.optimizer.validation.per_user": "{} held back",
}  # fmt: skip
MEASURES = {  # the others are called as they are
    "balanced": "test, users alike", "per-token": "test, per token",
    "crossed": "as others", "forward": "forward transfer",
    "past-left-out": "past, left out", "forgetting-left-out": "old : recent, left out",
}  # fmt: skip


def name_of(value: str, setting: str = "") -> str:
    """A setting's value, so that it can stand alone."""
    if setting == "name":
        return value
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
    if measure == "forgetting" and scale is not ACCURACY:
        return "old : recent"
    return MEASURES.get(measure, measure)


def label(facts: Mapping[str, str], settings: Sequence[str]) -> str:
    """A run by some of its settings."""
    names = [name_of(facts[setting], setting) for setting in settings if setting in facts]
    return ", ".join(names) or VALUES.get(facts["kind"], facts["kind"])
