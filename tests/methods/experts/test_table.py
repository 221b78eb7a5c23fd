"""The hash table against a dictionary."""

import numpy as np
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from firehose.methods.experts.table import FULL, NUMBER, Slots, Table, enter, locate
from small_methods import same, stored

NONE = -1

# Checksums that want the same few buckets, and checksums that are one to the table.
checksums = st.builds(
    lambda high, low, rest: (high << 60) + (low << 16) + rest,
    st.integers(0, 3),
    st.integers(0, 300),
    st.integers(0, 1),
)
turns = st.lists(
    st.tuples(
        st.lists(checksums, max_size=120, unique_by=lambda key: max(key >> 16, 1)),
        st.integers(0, 9),
    ),
    max_size=8,
)


def slots_for(table: Table, keys: NDArray[np.uint64]) -> Slots:
    """The slot of each checksum; rows are made for those that have none."""
    table.make_room(len(keys))
    slots, new = enter(table.words, keys)
    table.used += new
    return slots


def find(table: Table, keys: NDArray[np.uint64]) -> Slots:
    """The slot of each checksum; NONE where there is no row for it."""
    found = [locate(table.words, key) for key in keys]
    return np.array([slot if is_known else NONE for slot, is_known in found], np.int64)


def put_numbers(table: Table, slots: Slots, numbers: NDArray[np.int64]) -> None:
    words = table.words.reshape(-1)
    words[slots] = (words[slots] & ~NUMBER) | numbers.astype(np.uint64)


def numbers_of(table: Table, slots: Slots) -> NDArray[np.int64]:
    numbers = (table.words.reshape(-1)[slots] & NUMBER).astype(np.int64)
    return np.where(slots == NONE, 0, numbers)


@settings(max_examples=60, deadline=None)
@given(turns)
def test_a_table_does_what_a_dictionary_does(entered: list[tuple[list[int], int]]) -> None:
    table, plain = Table({"other": np.uint32}), dict[int, tuple[int, int]]()
    for keys, number in entered:
        slots = slots_for(table, np.array(keys, np.uint64))
        assert len(set(slots.tolist())) == len(keys)
        put_numbers(table, slots, np.full(len(keys), number))
        table["other"][slots] = number + 70_000
        plain |= {max(key >> 16, 1): (number, number + 70_000) for key in keys}
        check(table, plain)
    again = Table({"other": np.uint32})
    again.restore(stored(table.state()))
    check(again, plain)
    more = np.arange(5, 2000, dtype=np.uint64) << np.uint64(17)
    assert slots_for(again, more).tolist() == slots_for(table, more).tolist()
    assert same(again.state(), table.state())


def check(table: Table, plain: dict[int, tuple[int, int]]) -> None:
    asked = [(high << 44) + low for high in range(4) for low in range(301)]
    slots = find(table, np.array(asked, np.uint64) << np.uint64(16) | np.uint64(9))
    expected = [plain.get(max(key, 1), (0, 0)) for key in asked]
    numbers, others = zip(*expected, strict=True)
    assert numbers_of(table, slots).tolist() == list(numbers)
    kept = np.array(numbers) > 0  # a row whose number is 0 may be left out
    assert (table["other"][slots][kept] == np.array(others)[kept]).all()
    assert (slots[kept] != NONE).all()
    assert (table.words != 0).sum() == table.used <= FULL * table.words.size


def test_rows_whose_number_is_0_make_room_for_others() -> None:
    table = Table()
    for turn in range(100):
        slots = slots_for(
            table, np.arange(turn * 1000, turn * 1000 + 1000, dtype=np.uint64) << np.uint64(40)
        )
        put_numbers(table, slots, np.full(1000, 1))
        put_numbers(table, slots, np.zeros(1000, np.int64))
    assert table.words.size < 4000


def test_many_rows_are_found_and_no_others() -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    table = Table()
    for start in range(0, 100_000, 5000):
        put_numbers(
            table,
            slots_for(table, keys[start : start + 5000]),
            np.arange(start, start + 5000) % 65536,
        )
    assert (numbers_of(table, find(table, keys[:100_000])) == np.arange(100_000) % 65536).all()
    assert (find(table, keys[100_000:]) == NONE).all()
    assert table.nbytes < 8 * 100_000 / 0.78
