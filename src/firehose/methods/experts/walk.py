"""The earlier places that a context is compared with: the newest of its chain, and long matches.

Of a context that stood very often only the newest places are looked at, and an old text would be
lost where it says what many say. So places that matched a rarer context, a few pieces before, are
carried on from piece to piece as long as they agree.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from firehose.methods.experts.chain import NONE, Links, follow, head, row
from firehose.methods.experts.compiled import compiled

AT_ONCE = 32  # contexts whose chains are followed side by side
Numbers = NDArray[np.int64]

# For what is compiled, which takes no classes.
# Of posts: all tokens side by side, whose they are, and how many there are.
Kept = tuple[NDArray[np.unsignedinteger], NDArray[np.unsignedinteger], int]
# Of contexts: the pieces before [reach, places], how many there are, and whose they are [places].
Wanted = tuple[NDArray[np.int32], Numbers, Numbers]


@compiled
def walk(links: Links, wanted: Wanted, first: int, walked: Numbers) -> None:
    """Write the newest places of the chains of some contexts into a row each; NONE after the last.

    These are the contexts from ``first`` on, as many as there are rows.
    """
    count = min(len(walked), len(wanted[1]) - first)
    walked[:] = NONE
    for index in range(count):
        walked[index, 0] = head(links, wanted[0], wanted[2], first + index, 0)
    follow(links, walked[:count])


@compiled
def agreement(
    tokens: NDArray[np.unsignedinteger], here: int, before: NDArray[np.int32], place: int, most: int
) -> int:
    """How many pieces before an earlier place are those before this one, up to ``most``."""
    length = 0
    while length < most and length < here:
        if np.int64(tokens[here - 1 - length]) - 1 != before[length, place]:
            break
        length += 1
    return length


@compiled
def carry(
    links: Links, kept: Kept, wanted: Wanted, place: int, carried: Numbers, state: Numbers
) -> None:
    """Bring ``carried`` to a place: what matched the nearest context before that is not too common.

    ``state`` is how many there are, and how many pieces further they may be carried. A place that
    follows the last one takes over what agrees with the piece that came; any other looks for such a
    context anew, and finds the same.
    """
    depth = wanted[1]
    if place and depth[place] == depth[place - 1] + 1:
        came, count = wanted[0][0, place], 0
        state[1] -= 1
        for index in range(state[0] if state[1] >= 0 else 0):
            here = carried[index]
            if np.int64(kept[0][here]) - 1 == came and _is_predicted(kept, here + 1):
                carried[count] = here + 1
                count += 1
        state[0] = count
    else:
        _recover(links, kept, wanted, place, carried, state)


@compiled
def _is_predicted(kept: Kept, here: int) -> Any:
    """Whether there is a piece at a place, and it is not the first of a post that was cut short."""
    return here < kept[2] and kept[1][here] > 0


@compiled
def _recover(
    links: Links, kept: Kept, wanted: Wanted, place: int, carried: Numbers, state: Numbers
) -> None:
    """Find what is carried to a place whose predecessors were not looked at."""
    order, (before, depth, _) = links[3], wanted
    furthest = len(before) - order
    state[0] = state[1] = 0
    for back in range(1, min(furthest, depth[place] - 1) + 1):
        count, here = 0, head(links, before, wanted[2], place, back)
        needed = back + min(order, depth[place] - back)
        for _ in range(len(carried)):
            if here == NONE:
                break
            carried[count] = here + back
            count += 1
            here = np.int64(links[1][row(links, here)])
        if count == len(carried):
            continue  # too common
        for index in range(count):
            at = carried[index]
            if not _is_predicted(kept, at):
                continue
            is_own = not links[4] or kept[1][at] == wanted[2][place] + 2  # users share buckets
            if is_own and agreement(kept[0], at, before, place, needed) == needed:
                carried[state[0]] = at
                state[0] += 1
        state[1] = furthest - back
        return


@compiled
def unite(nearest: Numbers, carried: Numbers, into: Numbers) -> int:
    """What is carried and as many of the nearest places as there is room for, the newest first.

    Returns how many there are. ``nearest`` ends with NONE, or has no room for more.
    """
    count = first = second = 0
    room = len(into) - len(carried)
    while first < room and nearest[first] != NONE:
        here = nearest[first]
        while second < len(carried) and carried[second] > here:
            into[count] = carried[second]
            count, second = count + 1, second + 1
        if second < len(carried) and carried[second] == here:
            second += 1
        into[count] = here
        count, first = count + 1, first + 1
    for here in carried[second:]:
        into[count] = here
        count += 1
    return count
