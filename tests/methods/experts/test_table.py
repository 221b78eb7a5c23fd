"""The hash table against a dictionary."""

import numpy as np
from hypothesis import given, settings, strategies as st

from firehose.methods.experts.table import FULL, NONE, Table
from small_methods import same, stored

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


@settings(max_examples=60, deadline=None)
@given(turns)
def test_a_table_does_what_a_dictionary_does(entered: list[tuple[list[int], int]]) -> None:
    table, plain = Table({"other": np.uint32}), dict[int, tuple[int, int]]()
    for keys, number in entered:
        slots = table.enter(np.array(keys, np.uint64))
        assert len(set(slots.tolist())) == len(keys)
        table.put_numbers(slots, np.full(len(keys), number))
        table["other"][slots] = number + 70_000
        plain |= {max(key >> 16, 1): (number, number + 70_000) for key in keys}
        check(table, plain)
    again = Table({"other": np.uint32})
    again.restore(stored(table.state()))
    check(again, plain)
    more = np.arange(5, 2000, dtype=np.uint64) << np.uint64(17)
    assert again.enter(more).tolist() == table.enter(more).tolist()
    assert same(again.state(), table.state())


def check(table: Table, plain: dict[int, tuple[int, int]]) -> None:
    asked = [(high << 44) + low for high in range(4) for low in range(301)]
    slots = table.find(np.array(asked, np.uint64) << np.uint64(16) | np.uint64(9))
    expected = [plain.get(max(key, 1), (0, 0)) for key in asked]
    numbers, others = zip(*expected, strict=True)
    assert table.numbers(slots).tolist() == list(numbers)
    kept = np.array(numbers) > 0  # a row whose number is 0 may be left out
    assert (table.get("other", slots)[kept] == np.array(others)[kept]).all()
    assert (slots[kept] != NONE).all()
    assert (table.words != 0).sum() == table.used <= FULL * table.words.size


def test_rows_whose_number_is_0_make_room_for_others() -> None:
    table = Table()
    for turn in range(100):
        slots = table.enter(
            np.arange(turn * 1000, turn * 1000 + 1000, dtype=np.uint64) << np.uint64(40)
        )
        table.put_numbers(slots, np.full(1000, 1))
        table.put_numbers(slots, np.zeros(1000, np.int64))
    assert table.words.size < 4000


def test_many_rows_are_found_and_no_others() -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    table = Table()
    for start in range(0, 100_000, 5000):
        table.put_numbers(
            table.enter(keys[start : start + 5000]), np.arange(start, start + 5000) % 65536
        )
    assert (table.numbers(table.find(keys[:100_000])) == np.arange(100_000) % 65536).all()
    assert (table.find(keys[100_000:]) == NONE).all()
    assert table.nbytes < 8 * 100_000 / 0.78
