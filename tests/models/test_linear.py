"""A linear map is the same whichever way it is computed."""

import pytest
import torch
from torch.nn import functional

from firehose.models.linear import FEW, Linear, linear


@pytest.mark.parametrize("rows", [0, 1, 2, 3, FEW, FEW + 1])
@pytest.mark.parametrize(("inputs", "outputs"), [(300, 500), (500, 300), (3, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_few_rows_are_mapped_as_many_are(
    rows: int, inputs: int, outputs: int, bias: bool
) -> None:
    torch.manual_seed(0)
    layer, given = Linear(inputs, outputs, bias).double(), torch.randn(rows, inputs).double()
    given.requires_grad_()
    ours, theirs = layer(given), functional.linear(given, layer.weight, layer.bias)
    assert ours.shape == theirs.shape and ours.is_contiguous()
    torch.testing.assert_close(ours, theirs)
    above = torch.randn_like(ours)
    sources = (given, *layer.parameters())
    for one, other in zip(
        torch.autograd.grad(ours, sources, above),
        torch.autograd.grad(theirs, sources, above),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_rows_of_a_few_are_one_after_the_other_in_memory() -> None:
    found = linear(torch.ones(4, 512), torch.eye(512), torch.arange(512.0))
    assert found.is_contiguous()
    assert torch.equal(found, (1 + torch.arange(512.0)).expand(4, -1))
