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
    places, levels = len(depth), len(lengths)
    newest = np.full(levels * places, len(which))
    # The newest is written last. (Views that run backwards would be written in any order.)
    newest[(level * places + which)[::-1].copy()] = np.arange(len(which))[::-1].copy()
    newest = np.minimum.accumulate(newest.reshape(levels, places)[::-1])[::-1]
    count, different = _counted(which, piece, level, pieces, levels)
    exactly = np.bincount(level * places + which, minlength=levels * places)
    return Opinions(
        count,
        _at_least(exactly.reshape(levels, places)),
        different,
        np.append(piece, -1)[newest],
        np.append(matches.age[some], 0)[newest],
    )


def _counted(
    which: NDArray[np.int64],
    piece: NDArray[np.int64],
    level: NDArray[np.int64],
    pieces: NDArray[np.int64],
    levels: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each of ``pieces`` follows, and how many different ones do, at each level or above.

    One sort of all matches serves both: by place, by piece, the highest level first.
    """
    places, most = len(pieces), int(max(piece.max(initial=0), pieces.max(initial=0))) + 1
    keys = np.sort((which * most + piece) * levels + (levels - 1 - level))
    same, level = keys // levels, levels - 1 - keys % levels
    first = np.append(True, same[1:] != same[:-1])[: len(same)]
    groups, highest = same[first], level[first]  # a place and a piece each
    exactly = np.bincount((np.cumsum(first) - 1) * levels + level, minlength=len(groups) * levels)
    table = _at_least(exactly.reshape(len(groups), levels).T)
    asked = np.arange(places)[:, None] * most + pieces
    at = np.minimum(np.searchsorted(groups, asked), max(len(groups) - 1, 0))
    if len(groups):
        count = np.where(groups[at] == asked, table[:, at], 0)
    else:
        count = np.zeros((levels, *pieces.shape), np.int64)
    different = np.bincount(highest * places + groups // most, minlength=levels * places)
    return count, _at_least(different.reshape(levels, places))


def _at_least(exactly: NDArray[np.int64]) -> NDArray[np.int64]:
    """From numbers of things at each level to those at that level or above."""
    return np.cumsum(exactly[::-1], axis=0)[::-1]


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
