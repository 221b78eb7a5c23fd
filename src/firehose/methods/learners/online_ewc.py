"""Online EWC: elastic weight consolidation without tasks (Schwarz et al. 2018)."""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from firehose.methods.learners import Learner
from firehose.methods.learners.mixed_replay import MixedReplay
from firehose.methods.learners.online_only import OnlineOnly
from firehose.methods.step import Setup, Step, Steps
from firehose.optim.gradient import Gradient
from firehose.plugins import Choice


class OnlineEWC(Learner):
    """Learns from the stream, and holds on to the shared weights that earlier posts depend on.

    The penalty is ½ Σ c (θ − θ*)², where c = strength · F, and bounded by 1 as c / (1 + c): beyond
    that, plain descent would overshoot. F, the Fisher information, is a running average of the
    squared gradient; θ*, the anchor, is one of the weights. Both are averages over rounds, because
    a stream has no tasks after which they could be set. A user's vector is moved by that user's
    posts alone, and needs no penalty.
    """

    class Settings(Choice):
        """How strongly it holds on, and for how long."""

        kind: str = "online-ewc"
        strength: float = Field(default=1000.0, ge=0)
        gamma: float = Field(default=0.95, ge=0, lt=1)  # what a round leaves of F and of θ*
        replay: bool = False  # whether half of a step's posts are remembered ones

    settings: Settings

    def __init__(self, settings: Settings, setup: Setup) -> None:
        super().__init__(settings, setup)
        self.data = (MixedReplay if settings.replay else OnlineOnly)(settings, setup)
        named = [(name, weight.detach()) for name, weight in setup.model.named_parameters()]
        self.names = [name for name, _ in named]
        self.fisher: list[Tensor] = [torch.zeros_like(weight) for _, weight in named]
        self.anchor: list[Tensor] = [weight.clone() for _, weight in named]
        self.squares: list[Tensor] = []  # of the latest gradient in this round

    @torch.no_grad()
    def gradient(self, step: Step) -> Gradient | None:
        """The gradient on the posts of this step, and of the penalty."""
        with torch.enable_grad():
            gradient = self.data.gradient(step)
        if gradient is None:
            return None
        weights: list[Tensor] = list(step.model.parameters())
        pairs = zip(gradient.shared, weights, strict=True)
        found = [torch.zeros_like(w) if slope is None else slope for slope, w in pairs]
        self.squares = list(torch._foreach_mul(found, found))
        strict = torch._foreach_mul(self.fisher, self.settings.strength)
        pull = torch._foreach_sub(weights, self.anchor)
        torch._foreach_mul_(pull, strict)
        torch._foreach_div_(pull, torch._foreach_add(strict, 1.0))
        gradient.shared = list(torch._foreach_add(found, pull))
        return gradient

    @torch.no_grad()
    def end_round(self, step: Step, steps: Steps) -> None:
        """Take in what mattered in this round, and where it has led."""
        if self.squares:
            share = 1 - self.settings.gamma
            torch._foreach_lerp_(self.fisher, self.squares, share)
            torch._foreach_lerp_(self.anchor, list(step.model.parameters()), share)
            self.squares = []

    def state(self) -> dict[str, Any]:
        """Fisher information and anchor of each shared weight."""
        kept = {"fisher": self.fisher, "anchor": self.anchor}
        return {name: dict(zip(self.names, each, strict=True)) for name, each in kept.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        for number, name in enumerate(self.names):
            self.fisher[number].copy_(state["fisher"][name])
            self.anchor[number].copy_(state["anchor"][name])
