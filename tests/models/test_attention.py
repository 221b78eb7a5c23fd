"""Attention: its hand-written gradient, and the grids it works on."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from firehose.models.attention import Grid, attend, attend_rows
from firehose.models.dropout import Dropout, Random

HEADS, D = 2, 3


def inputs(lengths: list[int], seen: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    sizes = [
        (sum(lengths), 3 * HEADS * D),
        (HEADS, D, seen + max(lengths)),
        (2, HEADS, D),
        (2, HEADS, len(lengths), seen, D),
    ]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def plainly(
    qkv: Tensor, relative_keys: Tensor, biases: Tensor, past: Tensor, lengths: list[int]
) -> Tensor:
    """The definition, a query and a head at a time."""
    found = []
    for post, tokens in enumerate(qkv.split(lengths)):
        query, key, value = tokens.view(-1, 3, HEADS, D).permute(1, 2, 0, 3)
        key, value = (torch.cat(p, 1) for p in zip(past[:, :, post], (key, value), strict=True))
        seen = past.shape[3]
        for place in range(len(tokens)):
            for head in range(HEADS):
                q = query[head, place]
                scores = [
                    (q + biases[0, head]) @ key[head, k]
                    + (q + biases[1, head]) @ relative_keys[head, :, -1 - (seen + place - k)]
                    for k in range(seen + place + 1)
                ]
                weights = (torch.stack(scores) / D**0.5).softmax(0)
                found.append(weights @ value[head, : seen + place + 1])
    return torch.stack(found).view(len(qkv), HEADS * D)


@pytest.mark.parametrize("lengths", [[1], [4, 1, 3], [2, 2, 7, 1, 5, 6]])
@pytest.mark.parametrize("groups", [1, 3])
def test_attention_is_what_its_definition_says(lengths: list[int], groups: int) -> None:
    qkv, relative_keys, biases, past = inputs(lengths)
    grid = Grid(torch.tensor(lengths), groups)
    found = attend(qkv, relative_keys, biases, grid, Dropout(0.5, Random()).eval())
    assert torch.allclose(found, plainly(qkv, relative_keys, biases, past, lengths))


@pytest.mark.parametrize("seen", [0, 4])
def test_attention_of_rows_that_go_on_is_what_its_definition_says(seen: int) -> None:
    lengths = [3, 3]
    qkv, relative_keys, biases, past = inputs(lengths, seen)
    found, new = attend_rows(qkv.view(2, 3, -1), relative_keys, biases, past)
    assert torch.allclose(found, plainly(qkv, relative_keys, biases, past, lengths))
    keys_and_values = qkv.view(2, 3, 3, HEADS, D)[:, :, 1:]
    assert torch.equal(new, keys_and_values.permute(2, 3, 0, 1, 4))


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_its_gradient_is_the_slope(rate: float) -> None:
    grid = Grid(torch.tensor([4, 1, 3]), groups=2)

    def found(*values: Tensor) -> Tensor:
        drop = Dropout(rate, Random(1)).train()  # the same masks every time
        return attend(values[0], values[1], values[2], grid, drop)

    values = [value.requires_grad_() for value in inputs([4, 1, 3])]
    assert torch.autograd.gradcheck(found, values[:3])


def test_what_is_on_padding_does_not_matter() -> None:
    lengths = [5, 2, 1]
    qkv, relative_keys, biases, _ = inputs(lengths)
    drop = Dropout(0.5, Random()).eval()
    together = attend(qkv, relative_keys, biases, Grid(torch.tensor(lengths), 1), drop)
    apart = [
        attend(part, relative_keys, biases, Grid(torch.tensor([len(part)])), drop)
        for part in qkv.split(lengths)
    ]
    assert torch.allclose(together, torch.cat(apart))


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=20), groups=st.integers(1, 9))
def test_what_is_laid_on_grids_comes_back(lengths: list[int], groups: int) -> None:
    grid = Grid(torch.tensor(lengths), groups)
    flat = 1 + torch.arange(sum(lengths) * 12.0).view(-1, 12)
    laid = grid.lay(flat, 3, 2)
    assert torch.equal(grid.take(laid, 3, 2), flat)
    blocks = grid.blocks(laid, 3, 2)
    assert [block.shape[2:4] for block in blocks] == [source.shape for source in grid.sources]
    assert sum(len(source) for source in grid.sources) == len(lengths)
    gradients = grid.lay_gradients(flat, 2)
    assert torch.equal(grid.take(gradients, 1, 2), flat)
    assert int((gradients != 0).sum()) == flat.numel()
