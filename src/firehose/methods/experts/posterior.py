"""The plain way to weigh opinions: each by how well it has predicted so far."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firehose.methods.experts import Evidence, Portion
from firehose.parallel import group


class Posterior:
    """Bayes' mixture: the weight of an opinion is in proportion to exp(−what it has paid).

    Weights change piece by piece within a post, and from round to round by all of its posts. An
    opinion that does not speak at a place is taken to agree with the others there. Where all speak,
    with a post a round, the mixture pays no more than ln(opinions) more than the best of them.
    """

    def __init__(self, opinions: int) -> None:
        self.logs = np.zeros(opinions)  # of the weights, up to a constant

    def mix(self, evidence: Evidence, post: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The probability of each piece that was asked for, ``[places, pieces]``.

        ``post`` [places] is the post of each place, in order, where the first of the pieces asked
        for is the one that came; without it every place is the first of a post.
        """
        begins = np.arange(len(evidence.speaks.T)) if post is None else post
        return self._run(evidence, begins)[0]

    def learn(
        self, evidence: Evidence, post: NDArray[np.int64], portion: Portion | None = None
    ) -> None:
        """Let the weights follow what every opinion has paid in a round.

        With a ``portion`` of the places here, what is paid in all processes is added up.
        """
        change = self._run(evidence, post)[1]
        if portion:
            group.add_up(torch.from_numpy(change))
        self.logs = self.logs + change
        self.logs -= self.logs.max(initial=-np.inf)

    def _run(
        self, evidence: Evidence, post: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mixture at every place, and by how much the logarithms of weights change in all."""
        speaks, probability = evidence.speaks.T, evidence.probability.transpose(1, 0, 2)
        mixed = np.zeros((len(post), probability.shape[2]))
        starts = np.flatnonzero(np.append(True, post[1:] != post[:-1])[: len(post)])
        lengths = np.diff(starts, append=len(post))
        change = np.zeros((len(starts), len(self.logs)))
        with np.errstate(divide="ignore"):  # an opinion that was sure, and wrong, is out
            for position in range(int(lengths.max(initial=0))):
                going = np.flatnonzero(lengths > position)
                place = starts[going] + position
                logs = np.where(speaks[place], self.logs + change[going], -np.inf)
                weights = np.exp(logs - logs.max(1, keepdims=True))
                weights /= weights.sum(1, keepdims=True)
                here = probability[place].astype(np.float64)
                mixed[place] = np.einsum("po,pom->pm", weights, here)
                paid = np.where(speaks[place], here[:, :, 0], mixed[place, :1])
                change[going] += np.log(paid)
        return mixed, change.sum(0)

    def state(self) -> dict[str, Any]:
        """The weights."""
        return {"logs": self.logs}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what ``state`` was taken from."""
        self.logs = state["logs"].copy()
