"""How sure a curve against a baseline is: a band over samples of users and seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from firehose.data.corpus import Corpus
from firehose.experiments.ledger import Done, Group
from firehose.game.metrics import curve_ends
from firehose.game.scoring import Costs, has_costs, read_costs
from firehose.game.totals import samples

SAMPLES = 200  # of users and seeds: a band is drawn, not read off to the second digit
SMOOTH = 9  # stretches of the stream that a curve at the time is averaged over


class Band(NamedTuple):
    """Between which multiples of the baseline's perplexity 95 of 100 samples are."""

    low: NDArray[np.float64]  # [points]
    high: NDArray[np.float64]  # [points]


def ratio_bands(group: Group, base: Group, seed: int = 0) -> tuple[Band, Band] | None:
    """Of online perplexity as a multiple of the baseline's: on average so far, and at the time.

    A sample has the same users, and the same seeds, on both sides. None: the runs have no seed in
    common, or were not asked for the same posts.
    """
    ours, theirs = ({job.seed: job for job in each.jobs} for each in (group, base))
    pairs = [_nats(ours[common], theirs[common]) for common in sorted(ours.keys() & theirs.keys())]
    found = [pair for pair in pairs if pair is not None]
    return _bands(found, np.random.default_rng(seed)) if found else None


class _Pair(NamedTuple):
    """What two runs paid for the same posts, added up by users and stretches of the stream."""

    more: csr_array  # [users, points], the nats of ours less those of theirs
    words: csr_array  # [users, points]


def _nats(ours: Done, theirs: Done) -> _Pair | None:
    one, other = _paid(ours), _paid(theirs)
    if one is None or other is None or len(one.nats) != len(other.nats):
        return None
    point = np.searchsorted(curve_ends(len(one.nats)), np.arange(len(one.nats)), side="right")
    where = (one.user, point)
    return _Pair(csr_array((one.nats - other.nats, where)), csr_array((one.words, where)))


def _paid(job: Done) -> Costs | None:
    """What a game with posts paid when they came; None: it is another run."""
    if not isinstance(job.corpus, Corpus) or not has_costs(job.folder, "online"):
        return None
    return read_costs(job.folder, job.corpus, "online")


def _bands(pairs: Sequence[_Pair], generator: np.random.Generator) -> tuple[Band, Band]:
    """Bootstrapped over users and seeds, as differences of runs are."""
    writes = np.asarray(pairs[0].words.sum(1) > 0)
    so_far: list[NDArray[np.float64]] = []
    at_the_time: list[NDArray[np.float64]] = []
    for times in samples(writes, generator, SAMPLES):
        seeds = generator.integers(0, len(pairs), (len(pairs), len(times), 1))
        for found, add_up in ((so_far, True), (at_the_time, False)):
            by_seed = np.stack([_logs(pair, times, add_up) for pair in pairs])
            found.append(np.take_along_axis(by_seed, seeds, 0).mean(0))
    return _band(so_far), _band([smooth(logs) for logs in at_the_time])


def _logs(pair: _Pair, times: NDArray[np.int64], add_up: bool) -> NDArray[np.float64]:
    """The logarithm of the ratio in each sample, [samples, points]; nan where nobody writes."""
    more, words = (np.asarray(times @ each) for each in pair)
    if add_up:
        more, words = more.cumsum(1), words.cumsum(1)
    with np.errstate(invalid="ignore"):
        return np.asarray(more / words)


def _band(logs: Sequence[NDArray[np.float64]]) -> Band:
    return Band(*np.exp(np.nanquantile(np.concatenate(logs), [0.025, 0.975], axis=0)))


def smooth(values: NDArray[np.float64], width: int = SMOOTH) -> NDArray[np.float64]:
    """The mean of each value and its neighbours along the last axis; fewer of them at the ends.

    What is not a number is left out.
    """
    reach = min(width, values.shape[-1]) // 2
    sides = [(0, 0)] * (values.ndim - 1) + [(reach, reach)]
    padded = np.pad(values, sides, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1, axis=-1)
    known = ~np.isnan(windows)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, windows, 0).sum(-1) / known.sum(-1))
