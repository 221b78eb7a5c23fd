"""What followed where a long context stood before, by how much of the context agrees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.chain import Chain
from firehose.methods.experts.contexts import NOTHING, Contexts
from firehose.methods.experts.posts import Posts

_NEVER = -2  # no token; a removed one is 0


class Matches(NamedTuple):
    """Earlier places that end in the same context as one of those asked about, newest first."""

    which: NDArray[np.int64]  # [matches], the place asked about
    length: NDArray[np.int64]  # [matches], pieces that agree
    piece: NDArray[np.int64]  # [matches], what followed there
    owner: NDArray[np.int64]  # [matches], who wrote it
    age: NDArray[np.int64]  # [matches], tokens since then


def find(chain: Chain, posts: Posts, contexts: Contexts, most: int) -> Matches:
    """The newest matches of each context, up to ``most``, among the posts that are kept."""
    at, which = chain.walk(contexts, most)
    if chain.by_user:
        own = posts.owner[at] == contexts.user[which] + 2
        at, which = at[own], which[own]
    wanted = np.where(contexts.before == NOTHING, _NEVER, contexts.before + 1)
    length = np.zeros(len(at), np.int64)
    alive, here, there = np.arange(len(at)), at, which
    for distance, pieces in enumerate(wanted):
        same = posts.tokens[here - (distance + 1)] == pieces[there]
        alive, here, there = alive[same], here[same], there[same]
        if not len(alive):
            break
        length[alive] = distance + 1
    # A chain is also of contexts that share its bucket, and agree in less.
    matched = length >= np.minimum(chain.order, contexts.depth)[which]
    at, which, length = at[matched], which[matched], length[matched]
    piece, owner = posts.tokens[at].astype(np.int64) - 1, posts.owner[at].astype(np.int64) - 2
    return Matches(which, length, piece, owner, posts.size - at)


class Opinions(NamedTuple):
    """What matches of at least some lengths say of the next piece, length by length."""

    count: NDArray[np.int64]  # [lengths, places, pieces]
    total: NDArray[np.int64]  # [lengths, places]
    different: NDArray[np.int64]  # [lengths, places]
    newest: NDArray[np.int64]  # [lengths, places], what followed last time; −1: there is no match
    age: NDArray[np.int64]  # [lengths, places], tokens since then


def opinions(
    matches: Matches,
    depth: NDArray[np.int64],
    pieces: NDArray[np.int64],
    lengths: Sequence[int],
    min_users: int = 1,
) -> Opinions:
    """Count what followed the matches of at least each of ``lengths`` pieces, which grow.

    A match of the whole context, back to <SOT>, is as good as one of any length. With
    ``min_users`` only continuations count that so many different users have written.
    """
    # The level of a match is the number of lengths that it has at least.
    level = np.searchsorted(lengths, matches.length, side="right")
    level[matches.length >= depth[matches.which]] = len(lengths)
    if min_users > 1:
        level = np.minimum(level, _spoken(matches, level, min_users))
    some = level > 0
    which, piece, level = matches.which[some], matches.piece[some], level[some] - 1
    places, asked, levels = len(depth), pieces.shape[1], len(lengths)
    match, column = np.nonzero(piece[:, None] == pieces[which])
    hits = (level[match] * places + which[match]) * asked + column
    count = np.bincount(hits, minlength=levels * places * asked)
    newest = np.full(levels * places, len(which))
    # The newest is written last. (Views that run backwards would be written in any order.)
    newest[(level * places + which)[::-1].copy()] = np.arange(len(which))[::-1].copy()
    newest = np.minimum.accumulate(newest.reshape(levels, places)[::-1])[::-1]
    return Opinions(
        _at_least(count.reshape(levels, places, asked)),
        _at_least(np.bincount(level * places + which, minlength=levels * places), (levels, places)),
        _different(which, piece, level, (levels, places)),
        np.append(piece, -1)[newest],
        np.append(matches.age[some], 0)[newest],
    )


def _at_least(
    exactly: NDArray[np.int64], shape: tuple[int, ...] | None = None
) -> NDArray[np.int64]:
    """From numbers of things at each level to those at that level or above."""
    laid = exactly.reshape(shape or exactly.shape)
    return np.cumsum(laid[::-1], axis=0)[::-1]


def _different(
    which: NDArray[np.int64],
    piece: NDArray[np.int64],
    level: NDArray[np.int64],
    shape: tuple[int, int],
) -> NDArray[np.int64]:
    """How many different pieces there are for each place, at each level or above."""
    levels, places = shape
    pieces = int(piece.max(initial=0)) + 1
    # One sort: by place, by piece, the highest level first.
    keys = np.sort(((which * pieces + piece) * levels) + (levels - 1 - level))
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] // levels != keys[:-1] // levels
    place, highest = keys[first] // (levels * pieces), levels - 1 - keys[first] % levels
    return _at_least(np.bincount(highest * places + place, minlength=levels * places), shape)


def _spoken(matches: Matches, level: NDArray[np.int64], min_users: int) -> NDArray[np.int64]:
    """The highest level at which so many different users have written the piece of a match."""
    order = np.lexsort((-level, matches.owner, matches.piece, matches.which))
    which, piece, owner = matches.which[order], matches.piece[order], matches.owner[order]
    changes = np.ones((2, len(order)), bool)  # another piece or place; another user
    changes[0, 1:] = (which[1:] != which[:-1]) | (piece[1:] != piece[:-1])
    changes[1, 1:] = changes[0, 1:] | (owner[1:] != owner[:-1])
    group = np.cumsum(changes[0]) - 1
    # The highest level of each user, and the one that enough users have.
    group_of_user, of_user = group[changes[1]], level[order][changes[1]]
    falling = np.lexsort((-of_user, group_of_user))
    users = np.bincount(group_of_user)
    begins = np.cumsum(users) - users
    reached = np.zeros(len(users), np.int64)
    enough = users >= min_users
    reached[enough] = of_user[falling][begins[enough] + min_users - 1]
    spoken = np.empty(len(order), np.int64)
    spoken[order] = reached[group]
    return spoken
