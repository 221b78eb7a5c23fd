"""What followed where a long context stood before, by how much of the context agrees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.chain import Chain
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.posts import Posts


class Matches(NamedTuple):
    """Earlier places that end in the same context as one of those asked about, newest first."""

    which: NDArray[np.int64]  # [matches], the place asked about
    length: NDArray[np.int64]  # [matches], pieces that agree
    at: NDArray[np.int64]  # [matches], the place


def find(chain: Chain, posts: Posts, contexts: Contexts, most: int) -> Matches:
    """The newest matches of each context, up to ``most``, among the posts that are kept."""
    at, which = chain.walk(contexts, most)
    if chain.by_user:
        own = posts.owner[at] == (contexts.user + 2)[which]
        at, which = at[own], which[own]
    tokens = posts.tokens
    wanted = contexts.before + 1  # as tokens are kept; 0 beyond <SOT>, where it does not matter
    kind = np.promote_types(tokens.dtype, np.min_scalar_type(int(wanted.max(initial=0))))
    length = np.zeros(len(at), np.int64)
    alive, here, there = np.arange(len(at)), at, which
    for distance, pieces in enumerate(wanted.astype(kind)):
        here = here - 1
        same = np.flatnonzero(tokens.take(here, mode="clip") == pieces.take(there))
        if not len(same):
            break
        alive, here, there = alive.take(same), here.take(same), there.take(same)
        length[alive] = distance + 1
    length = np.minimum(length, contexts.depth[which])
    # A chain is also of contexts that share its bucket, and agree in less.
    matched = np.flatnonzero(length >= np.minimum(chain.order, contexts.depth)[which])
    return Matches(which[matched], length[matched], at[matched])


class Opinions(NamedTuple):
    """What matches of at least some lengths say of the next piece, length by length."""

    counts: NDArray[np.int64]  # [lengths, places, pieces]
    total: NDArray[np.int64]  # [lengths, places]
    different: NDArray[np.int64]  # [lengths, places]
    newest: NDArray[np.int64]  # [lengths, places], what followed last time; −1: there is no match
    age: NDArray[np.int64]  # [lengths, places], tokens since then


def opinions(
    matches: Matches,
    posts: Posts,
    depth: NDArray[np.int64],
    pieces: NDArray[np.int64],
    lengths: Sequence[int],
    min_users: int = 1,
) -> Opinions:
    """Count what followed the matches of at least each of ``lengths`` pieces, which grow.

    All matches have the first of them, or the whole context. A match of the whole context, back to
    <SOT>, is as good as one of any length. With ``min_users`` only continuations count that so many
    different users have written.
    """
    which, length, at = matches
    piece = posts.tokens[at].astype(np.int64) - 1
    # The level of a match is the number of lengths that it has at least, less 1.
    reached = np.arange(int(length.max(initial=0)) + 1)
    level = (np.searchsorted(lengths, reached, side="right") - 1)[length]
    level[length >= depth[which]] = len(lengths) - 1
    if min_users > 1:
        owner = posts.owner[at]
        level = np.minimum(level, _spoken(which, piece, owner, level, min_users))
        told = level >= 0
        which, piece, level, at = which[told], piece[told], level[told], at[told]
    places, levels = len(depth), len(lengths)
    row = level * places + which
    newest = np.full((levels, places), len(which))
    # The newest is written last. (Views that run backwards would be written in any order.)
    newest.reshape(-1)[row[::-1].copy()] = np.arange(len(which))[::-1].copy()
    for above in range(levels - 1, 0, -1):
        np.minimum(newest[above - 1], newest[above], out=newest[above - 1])
    count, different = _counted(which, piece, level, pieces, levels)
    return Opinions(
        count,
        _at_least(np.bincount(row, minlength=levels * places).reshape(levels, places)),
        different,
        np.append(piece, -1)[newest],
        posts.size - np.append(at, posts.size)[newest],
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
    kind = np.min_scalar_type(places * most * levels)  # small numbers are sorted faster
    keys = np.sort(((which * most + piece) * levels + (levels - 1 - level)).astype(kind))
    same = (keys // levels).astype(np.int64)
    level = levels - 1 - (keys - same * levels)
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


def _spoken(
    which: NDArray[np.int64],
    piece: NDArray[np.int64],
    owner: NDArray[np.integer],
    level: NDArray[np.int64],
    min_users: int,
) -> NDArray[np.int64]:
    """The highest level at which so many users have written the piece of a match; −1: none."""
    order = np.lexsort((-level, owner, piece, which))
    which, piece, owner = which[order], piece[order], owner[order]
    changes = np.ones((2, len(order)), bool)  # another piece or place; another user
    changes[0, 1:] = (which[1:] != which[:-1]) | (piece[1:] != piece[:-1])
    changes[1, 1:] = changes[0, 1:] | (owner[1:] != owner[:-1])
    group = np.cumsum(changes[0]) - 1
    # The highest level of each user, and the one that enough users have.
    group_of_user, of_user = group[changes[1]], level[order][changes[1]]
    falling = np.lexsort((-of_user, group_of_user))
    users = np.bincount(group_of_user)
    begins = np.cumsum(users) - users
    reached = np.full(len(users), -1)
    enough = users >= min_users
    reached[enough] = of_user[falling][begins[enough] + min_users - 1]
    spoken = np.empty(len(order), np.int64)
    spoken[order] = reached[group]
    return spoken
