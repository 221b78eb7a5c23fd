"""What followed where a long context stood before, by how much of the context agrees."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.chain import NONE, Chain, Links
from firehose.methods.experts.compiled import compiled
from firehose.methods.experts.contexts import Contexts
from firehose.methods.experts.posts import Posts
from firehose.methods.experts.walk import (
    AT_ONCE,
    Kept,
    Numbers,
    Wanted,
    agreement,
    carry,
    unite,
    walk,
)


class Opinions(NamedTuple):
    """What matches of at least some lengths say of the next piece, length by length."""

    counts: Numbers  # [lengths, places, pieces]
    total: Numbers  # [lengths, places]
    different: Numbers  # [lengths, places]
    newest: Numbers  # [lengths, places], what followed last time; −1: there is no match
    age: Numbers  # [lengths, places], tokens since then
    # [places], pieces that agree in the longest match; where several users are needed, no more than
    # the length at which enough of them have written what came
    longest: Numbers


# For what is compiled. Of matches: how many of the lengths one has at least, less 1, by its length.
Levels = NDArray[np.int64]
# Room for the matches of a place, [3, most]: where each is, its level, and the piece that came; and
# for those that are carried on, with the state of ``carry``.
Room = tuple[Numbers, Numbers, Numbers]


def look_back(
    chain: Chain,
    posts: Posts,
    contexts: Contexts,
    pieces: NDArray[np.int64],
    lengths: Sequence[int],
    most: int,
    min_users: int = 1,
) -> Opinions:
    """Count what followed the newest matches of at least each of ``lengths`` pieces, which grow.

    Up to ``most`` places are looked at for each context: those that were carried on to it, and the
    newest. All matches have the first of the lengths, or the whole context. A match of the whole
    context, back to <SOT>, is as good as one of any length. With ``min_users`` only continuations
    count that so many different users have written.
    """
    levels = np.searchsorted(lengths, np.arange(len(contexts.before) + 1), side="right") - 1
    wanted = (contexts.before, contexts.depth, contexts.user)
    kept = (posts.tokens, posts.owner, posts.size)
    limits = (len(lengths), most, min_users)
    # Where chains are dealt out to processes, they are followed before.
    walked = chain.newest(contexts, most) if chain.shards.parts > 1 else _NOT_YET
    return Opinions(*_look_back(chain.links(), kept, wanted, pieces, levels, limits, walked))


_NOT_YET = np.empty((0, 0), np.int64)


@compiled
def _look_back(
    links: Links,
    kept: Kept,
    wanted: Wanted,
    pieces: Numbers,
    levels: Levels,
    limits: tuple[int, int, int],
    followed: Numbers,
) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers, Numbers]:
    """The fields of ``Opinions``."""
    size, (rows, most, min_users) = kept[2], limits
    places, width = pieces.shape
    counts = np.zeros((rows, places, width), np.int64)
    total, different, newest, age = np.zeros((4, rows, places), np.int64)
    newest[:] = -1
    longest = np.zeros(places, np.int64)
    walked = np.empty((min(AT_ONCE, places), most), np.int64)
    room = (np.empty((3, most), np.int64), np.empty(most, np.int64), np.zeros(2, np.int64))
    (at, level, piece), highest = room[0], np.empty(most, np.int64)
    for place in range(places):
        if place % AT_ONCE == 0 and not len(followed):
            walk(links, wanted, place, walked)
        nearest = followed[place] if len(followed) else walked[place % AT_ONCE]
        found, longest[place] = _match(links, kept, wanted, levels, place, nearest, room)
        if min_users > 1:
            _protect(piece[:found], level[:found], kept[1], at, rows, min_users)
            longest[place] = _length(levels, level[:found].max() if found else -1)
        distinct = 0  # pieces so far, at the beginning of ``piece``, with their highest levels
        for match in range(found):
            reached, came = level[match], piece[match]
            for index in range(width if reached >= 0 else 0):
                counts[reached, place, index] += pieces[place, index] == came
            total[reached, place] += reached >= 0
            known = 0
            while known < distinct and piece[known] != came:
                known += 1
            if known == distinct:
                piece[distinct], highest[distinct] = came, -1
                distinct += 1
            for row in range(highest[known] + 1, reached + 1):
                different[row, place] += 1
                highest[known] = row
            for row in range(reached, -1, -1):
                if newest[row, place] >= 0:
                    break
                newest[row, place], age[row, place] = came, size - at[match]
        for row in range(rows - 2, -1, -1):  # a match counts for all lengths that it has
            total[row, place] += total[row + 1, place]
            for index in range(width):
                counts[row, place, index] += counts[row + 1, place, index]
    return counts, total, different, newest, age, longest


def mark_matches(
    chain: Chain, posts: Posts, contexts: Contexts, most: int, found: NDArray[np.bool_]
) -> None:
    """Set ``found`` [places, pieces] for what followed the matches that ``look_back`` looks at."""
    levels = np.zeros(len(contexts.before) + 1, np.int64)
    wanted = (contexts.before, contexts.depth, contexts.user)
    _mark_matches(
        chain.links(), (posts.tokens, posts.owner, posts.size), wanted, levels, most, found
    )


@compiled
def _mark_matches(
    links: Links,
    kept: Kept,
    wanted: Wanted,
    levels: Levels,
    most: int,
    found: NDArray[np.bool_],
) -> None:
    places = len(found)
    walked = np.empty((min(AT_ONCE, places), most), np.int64)
    room = (np.empty((3, most), np.int64), np.empty(most, np.int64), np.zeros(2, np.int64))
    for place in range(places):
        if place % AT_ONCE == 0:
            walk(links, wanted, place, walked)
        count, _ = _match(links, kept, wanted, levels, place, walked[place % AT_ONCE], room)
        for match in range(count):
            found[place, room[0][2, match]] = True


@compiled
def _match(
    links: Links,
    kept: Kept,
    wanted: Wanted,
    levels: Levels,
    place: int,
    nearest: Numbers,
    room: Room,
) -> tuple[int, int]:
    """Find the matches of a place; returns how many there are, and the length of the longest."""
    (at, level, piece), carried, state = room
    is_common = nearest[-1] != NONE
    if is_common:
        carry(links, kept, wanted, place, carried, state)
    count = unite(nearest, carried[: state[0] * is_common], at)
    found, longest = _find(links, kept, wanted, levels, place, at[:count], level)
    if not is_common:
        carried[:found] = at[:found]
        state[:] = found, len(wanted[0]) - links[3]
    for match in range(found):
        piece[match] = np.int64(kept[0][at[match]]) - 1
    return found, longest


@compiled
def _find(
    links: Links,
    kept: Kept,
    wanted: Wanted,
    levels: Levels,
    place: int,
    at: Numbers,
    level: Numbers,
) -> tuple[int, int]:
    """Move the matches of a context to the beginning of ``at``, and write their levels.

    Returns how many there are, and the length of the longest. A chain is also of contexts that
    share its bucket, and agree in less.
    """
    (tokens, owner, _), before, by_user = kept, wanted[0], links[4]
    depth, writer = wanted[1][place], wanted[2][place] + 2
    needed, most = min(links[3], depth), min(len(before), depth)
    found = longest = 0
    for here in at:
        length = agreement(tokens, here, before, place, most)
        if length >= needed and (not by_user or owner[here] == writer):
            at[found] = here
            level[found] = levels[-1] if length == depth else levels[length]
            longest = max(longest, length)
            found += 1
    return found, longest


@compiled
def _length(levels: Levels, level: int) -> int:
    """The pieces that a match of this level has at least; of none, 0."""
    length = 0
    while level >= 0 and levels[length] < level:
        length += 1
    return length


@compiled
def _protect(
    piece: Numbers,
    level: Numbers,
    owner: NDArray[np.unsignedinteger],
    at: Numbers,
    levels: int,
    min_users: int,
) -> None:
    """Lower the level of each match to the highest at which enough users have written its piece.

    Where there is none it is −1.
    """
    reached = np.empty(len(piece), np.int64)
    for match in range(len(piece)):
        reached[match] = -1
        for row in range(levels):
            users = 0
            for other in range(len(piece)):
                if piece[other] != piece[match] or level[other] < row:
                    continue
                is_first = True  # of its user, at this level
                for earlier in range(other):
                    if piece[earlier] == piece[match] and level[earlier] >= row:
                        is_first = is_first and owner[at[earlier]] != owner[at[other]]
                users += is_first
            if users >= min_users:
                reached[match] = row
    for match in range(len(piece)):
        level[match] = min(level[match], reached[match])
