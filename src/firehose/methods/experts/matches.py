"""What followed where a long context stood before, by how much of the context agrees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.chain import NONE, Chain
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.posts import Posts


class Matches(NamedTuple):
    """Earlier places that end in the same context, the newest first."""

    length: NDArray[np.int8]  # [most, places], pieces that agree; 0: no match
    piece: NDArray[np.int64]  # [most, places], what followed there
    owner: NDArray[np.int64]  # [most, places], who wrote it
    age: NDArray[np.int64]  # [most, places], tokens since then


def find(chain: Chain, posts: Posts, contexts: Contexts, most: int) -> Matches:
    """The newest matches of each context, up to ``most``, among the posts that are kept."""
    places = chain.walk(contexts, most)
    flat = np.flatnonzero(places.ravel() != NONE)
    at, which = places.ravel()[flat].astype(np.int64), flat % max(len(contexts), 1)
    length = np.zeros(len(flat), np.int8)
    alive = np.arange(len(flat))
    if chain.by_user:
        alive = np.flatnonzero(posts.owner[at] == contexts.user[which] + 2)
    for distance, pieces in enumerate(contexts.before):
        here, query = at[alive] - 1 - distance, which[alive]
        same = posts.tokens[here] == pieces[query] + 1
        same &= contexts.depth[query] > distance
        alive = alive[same]
        if not len(alive):
            break
        length[alive] = distance + 1
    # A chain is also of contexts that share its bucket, and agree in less.
    length[length < np.minimum(chain.order, contexts.depth[which])] = 0
    shape = places.shape
    laid = np.zeros((4, places.size), np.int64)
    matched = length > 0
    where, at = flat[matched], at[matched]
    laid[0, where], laid[1, where] = length[matched], posts.tokens[at].astype(np.int64) - 1
    laid[2, where], laid[3, where] = posts.owner[at].astype(np.int64) - 2, posts.size - at
    return Matches(
        laid[0].astype(np.int8).reshape(shape), *(each.reshape(shape) for each in laid[1:])
    )


class Opinion(NamedTuple):
    """What matches of at least some length say of the next piece."""

    count: NDArray[np.int64]  # [places, pieces]
    total: NDArray[np.int64]  # [places]
    different: NDArray[np.int64]  # [places]
    newest: NDArray[np.int64]  # [places], what followed last time; −1: there is no match
    age: NDArray[np.int64]  # [places], tokens since then


def opinions(
    matches: Matches,
    depth: NDArray[np.int64],
    pieces: NDArray[np.int64],
    lengths: Sequence[int],
    min_users: int = 1,
) -> list[Opinion]:
    """Count what followed the matches of at least each of ``lengths`` pieces.

    A match of the whole context, back to <SOT>, is as good as one of any length. With
    ``min_users`` only continuations count that so many different users have written.
    """
    found = []
    for length in lengths:
        enough = (matches.length > 0) & (matches.length >= np.minimum(length, depth))
        if min_users > 1:
            enough = _spoken(matches, enough, min_users)
        hits = (matches.piece[:, :, None] == pieces) & enough[:, :, None]
        first = enough.argmax(0)
        total, places = enough.sum(0), np.arange(len(depth))
        found.append(
            Opinion(
                hits.sum(0),
                total,
                _different(matches.piece, enough),
                np.where(total > 0, matches.piece[first, places], -1),
                np.where(total > 0, matches.age[first, places], 0),
            )
        )
    return found


def _different(pieces: NDArray[np.int64], chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many different pieces there are in each column, among the chosen ones."""
    ordered = np.sort(np.where(chosen, pieces, -1), axis=0)
    new = (ordered[1:] != ordered[:-1]).sum(0) + (ordered[0] >= 0)
    return new.astype(np.int64)


def _spoken(matches: Matches, chosen: NDArray[np.bool_], min_users: int) -> NDArray[np.bool_]:
    """The chosen matches whose piece so many different users have written, among the chosen."""
    most, places = chosen.shape
    # Context by context, sorted by piece and then by user; what is not chosen comes first.
    both = np.where(chosen, (matches.piece << 32) + matches.owner + 1, -1).T  # [places, most]
    order = np.argsort(both, axis=1, kind="stable")
    both = np.take_along_axis(both, order, 1)
    begins = np.ones((2, places, most), bool)  # of a piece; of a piece and a user
    begins[0, :, 1:] = both[:, 1:] >> 32 != both[:, :-1] >> 32
    begins[1, :, 1:] = both[:, 1:] != both[:, :-1]
    starts = np.flatnonzero(begins[0].ravel())
    users = np.add.reduceat(begins[1].ravel().astype(np.int64), starts) if len(starts) else starts
    of_each = np.repeat(users, np.diff(starts, append=both.size)).reshape(both.shape)
    enough = np.empty_like(begins[0])
    np.put_along_axis(enough, order, of_each >= min_users, 1)
    return chosen & enough.T
