"""The decoder says what the whole model says, in any pieces, at the price of one token a token."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from torch import Tensor, nn

from firehose.generation.decoding import CAPACITY, Decoder
from firehose.models.personal import Architecture, Personal
from firehose.models.users import NOBODY
from small_models import PERSONAL, PIECES, TINY, awake, batch_of, tiny

ARCHITECTURES: list[Architecture] = ["agnostic", *PERSONAL]
LONG = 2 * CAPACITY + 3  # tokens: the cache must grow twice


def loud(model: Personal) -> Personal:
    """With weights so large that every term of attention and every user counts."""
    awake(model)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


def whole(model: Personal, post: list[int], user: int) -> Tensor:
    """By the model's own scoring: the log-probabilities of what comes after ``post``, [pieces]."""
    posts = [[*post, piece] for piece in range(PIECES)]
    if len(post) > 1:
        posts.append(post)
    paid = torch.from_numpy(model.pay(batch_of(posts, [user] * len(posts))).nats)
    return (paid[PIECES] if len(post) > 1 else 0) - paid[:PIECES]


@st.composite
def cut_posts(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Rows of one length, and where to cut them."""
    length = draw(st.integers(1, LONG))
    row = st.lists(st.integers(0, PIECES - 1), min_size=length, max_size=length)
    cuts = draw(st.sets(st.integers(1, length)))
    return draw(st.lists(row, min_size=1, max_size=4)), sorted({0, length, *cuts})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=15, deadline=None)
@given(
    texts=st.lists(
        st.tuples(
            st.integers(NOBODY, 12),
            st.lists(st.integers(0, PIECES - 1), min_size=1, max_size=LONG),
            st.lists(st.integers(0, PIECES - 1), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
    width=st.integers(1, 3),
)
def test_what_is_read_together_is_what_each_reads_alone(
    architecture: Architecture, texts: list[tuple[int, list[int], list[int]]], width: int
) -> None:
    """Of several users, after prompts of several lengths, some rows each."""
    model = loud(tiny(architecture))
    decoders, further = [], []
    for user, prompt, pieces in texts:
        decoders.append(Decoder(model, user))
        decoders[-1].advance(torch.tensor([prompt]))
        further.append(torch.tensor([[piece] * width for piece in pieces]))
    found = Decoder.peek(decoders, further)
    for (user, prompt, _), rows, of_rows in zip(texts, further, found, strict=True):
        alone = Decoder(model, user, len(rows))
        alone.advance(torch.tensor([prompt] * len(rows)))
        assert torch.allclose(of_rows, alone.advance(rows), atol=1e-5)
    assert [decoder.length for decoder in decoders] == [len(prompt) for _, prompt, _ in texts]
    again = Decoder.peek(decoders[:1], further[:1])
    assert torch.allclose(again[0], found[0], atol=1e-5)  # nothing was changed


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@settings(max_examples=15, deadline=None)
@given(rows=cut_posts(), user=st.integers(NOBODY, 12))
def test_any_pieces_give_what_the_whole_gives(
    architecture: Architecture, rows: tuple[list[list[int]], list[int]], user: int
) -> None:
    model = loud(tiny(architecture))
    posts, cuts = rows
    decoder = Decoder(model, user, len(posts))
    tokens = torch.tensor(posts)
    for start, stop in pairwise(cuts):
        found = decoder.advance(tokens[:, start:stop])
        expected = torch.stack([whole(model, post[:stop], user) for post in posts])
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)
    assert decoder.length == len(posts[0])


class Rows(RuleBasedStateMachine):
    """Any sequence of reading, keeping and rewinding leaves rows that are the lists they seem."""

    def __init__(self) -> None:
        super().__init__()
        self.model = loud(tiny("adapters"))
        self.rows = [[row, 7, row + 1] for row in range(4)]
        self.decoder = Decoder(self.model, 3, len(self.rows))
        self.decoder.advance(torch.tensor(self.rows))

    @rule(data=st.data(), width=st.integers(1, 7))
    def read(self, data: st.DataObject, width: int) -> None:
        count = len(self.rows) * width
        drawn = data.draw(st.lists(st.integers(0, PIECES - 1), min_size=count, max_size=count))
        tokens = torch.tensor(drawn).view(-1, width)
        found = self.decoder.advance(tokens)
        for row, new in zip(self.rows, tokens.tolist(), strict=True):
            row.extend(new)
        expected = torch.stack([whole(self.model, row, 3) for row in self.rows])
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)

    @rule(data=st.data())
    def keep_and_read(self, data: st.DataObject) -> None:
        chosen = st.integers(0, len(self.rows) - 1)
        kept = data.draw(st.lists(chosen, min_size=2, max_size=5))
        self.decoder.keep(kept)
        self.rows = [self.rows[row].copy() for row in kept]
        self.read(data, width=1)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        length = data.draw(st.integers(1, len(self.rows[0])))
        self.decoder.rewind(length)
        self.rows = [row[:length] for row in self.rows]

    @invariant()
    def has_its_rows(self) -> None:
        assert (self.decoder.rows, self.decoder.length) == (len(self.rows), len(self.rows[0]))


Rows.TestCase.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
TestRows = Rows.TestCase


def counted(model: Personal) -> dict[str, list[int]]:
    """How many rows each linear map of the model multiplies from now on, call by call."""
    work: dict[str, list[int]] = defaultdict(list)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):

            def count(_: nn.Module, inputs: tuple[Tensor], __: Any, name: str = name) -> None:
                work[name].append(inputs[0].shape[:-1].numel())

            module.register_forward_hook(count)
    return work


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_token_costs_one_token_s_work(architecture: Architecture) -> None:
    model = tiny(architecture)
    rows = 3
    decoder = Decoder(model, 2, rows)
    work = counted(model)
    for length in range(1, LONG + 1):
        decoder.advance(torch.full((rows, 1), 5))
        for name, done in work.items():
            if name.endswith(".positions"):  # per distance, not per row, and ahead of need
                assert length <= sum(done) <= max(2 * length, CAPACITY)
            else:
                assert done == [rows] * length, name
    # Query, key and value, position, output, twice feed-forward: in every layer.
    assert sum(name.startswith("shared.") for name in work) == 5 * TINY.layers
    # The cache grows when distances are added: for 16, 32 and 64 tokens.
    growths = [len(done) for name, done in work.items() if name.endswith(".positions")]
    assert growths == [3] * TINY.layers


def test_decoding_changes_nothing_and_drops_nothing_out() -> None:
    shape = TINY.model_copy(update={"dropout": 0.5})
    model = loud(tiny("adapters", shape=shape)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    stands = model.random.state()
    tokens = torch.tensor([[1, 4, 5]])
    known, unknown = (Decoder(model, user).advance(tokens) for user in (3, 77))
    assert torch.equal(known, Decoder(model, 3).advance(tokens))
    assert not known.requires_grad and model.training
    assert model.random.state() == stands
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(model.users) == 9
    assert torch.equal(unknown, Decoder(model, NOBODY).advance(tokens))
    assert not torch.allclose(known, unknown, atol=0.1)


def test_what_does_not_fit_is_refused() -> None:
    decoder = Decoder(tiny("agnostic"), rows=2)
    with pytest.raises(ValueError, match="2 rows of tokens are needed, not 3 × 1"):
        decoder.advance(torch.ones(3, 1, dtype=torch.int64))
    decoder.advance(torch.ones(2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="Cannot go back to 5 tokens: 4 were read"):
        decoder.rewind(5)
    assert decoder.length == 4
