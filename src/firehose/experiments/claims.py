"""What a paper claims, compared with what is seen here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firehose.experiments.ledger import Group, difference
from firehose.experiments.naming import label
from firehose.experiments.recipe import ClaimPlan, Selection, Shown
from firehose.game.totals import PERPLEXITY, Measured, Scale

Answer = Literal["yes", "no", "open"]


def fits(facts: dict[str, str], selection: Selection) -> bool:
    """Whether a run is one of those that a claim speaks of."""
    return all(facts.get(setting) in values for setting, values in selection.items())


@dataclass(frozen=True)
class Compared:
    """Two groups of runs, and what the comparison says of a claim."""

    label: str
    difference: Measured
    answer: Answer


@dataclass(frozen=True)
class Checked:
    """A claim of the paper, and all that speaks for and against it here."""

    says: str
    measure: Shown
    compared: tuple[Compared, ...]
    scale: Scale = PERPLEXITY

    @property
    def verdict(self) -> str:
        """In one word or two."""
        answers = [each.answer for each in self.compared]
        if not answers:
            return "not run"
        if len(set(answers)) == 1:
            return {"yes": "holds", "no": "does not hold", "open": "undecided"}[answers[0]]
        against = f", not in {answers.count('no')}" if "no" in answers else ""
        return f"holds in {answers.count('yes')} of {len(answers)}{against}"


def tally(claims: Sequence[Checked]) -> str:
    """How many claims hold: “3 hold, 1 does not, 1 undecided”; empty, where there are none."""
    verdicts = [claim.verdict for claim in claims]
    in_part = sum(verdict.startswith("holds in") for verdict in verdicts)
    counts = {
        ("holds", "hold"): verdicts.count("holds"),
        ("holds in part", "hold in part"): in_part,
        ("does not", "do not"): verdicts.count("does not hold"),
        ("undecided", "undecided"): verdicts.count("undecided"),
        ("not run", "not run"): verdicts.count("not run"),
    }
    told = [f"{count} {words[count > 1]}" for words, count in counts.items() if count]
    return ", ".join(told)


def check(plan: ClaimPlan, found: Sequence[Group], varies: Sequence[str]) -> Checked:
    """Compare all that a claim speaks of."""
    compared, scale = [], PERPLEXITY
    for low in (group for group in found if fits(group.facts, plan.lower)):
        for high in (group for group in found if fits(group.facts, plan.higher)):
            if any(low.facts.get(name) != high.facts.get(name) for name in plan.within):
                continue
            other = plan.higher_measure or plan.measure
            if found_here := difference(low, high, plan.measure, other):
                answer = _answer(found_here, plan.same)
                compared.append(Compared(_versus(low, high, varies), found_here, answer))
                scale = low.totals(plan.measure)[0].scale
    return Checked(plan.says, plan.measure, tuple(compared), scale)


def _versus(low: Group, high: Group, varies: Sequence[str]) -> str:
    """What two groups share, and in what they differ."""
    shared = [name for name in varies if low.facts.get(name) == high.facts.get(name)]
    differing = [name for name in varies if name not in shared]
    common = label(low.facts, shared) if any(name in low.facts for name in shared) else ""
    sides = " : ".join(label(group.facts, differing) for group in (low, high))
    return ", ".join(filter(None, [common, sides if differing else ""]))


def _answer(found: Measured, same: float | None) -> Answer:
    if same is None:
        return "yes" if found.high < 0 else "no" if found.low > 0 else "open"
    if -same < found.low and found.high < same:
        return "yes"
    return "no" if found.low > same or found.high < -same else "open"
