"""Linear maps of a few rows by a large matrix: what a decoder does for every token.

Libraries of linear algebra are made for many rows. For a few they take several times what it takes
to fetch the matrix; with the matrix first, and rows as columns, they do not.
"""

from torch import Tensor, nn
from torch.nn import functional

FEW = 8  # rows
LARGE = 1 << 17  # weights from which on fetching them is what takes the time


class Linear(nn.Linear):
    """A linear layer that is fast for a few rows as well."""

    def forward(self, rows: Tensor) -> Tensor:
        """Map ``[rows, inputs]`` to ``[rows, outputs]``."""
        return linear(rows, self.weight, self.bias)


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``rows`` [rows, inputs] by ``weight`` [outputs, inputs]: ``[rows, outputs]``."""
    count, (outputs, inputs) = len(rows), weight.shape
    is_slow = count <= 2 or (count <= FEW and outputs >= inputs)
    if not is_slow or not count or weight.numel() < LARGE or not weight.is_cpu:
        return functional.linear(rows, weight, bias)
    two = rows if count > 1 else rows.expand(2, -1).contiguous()  # one takes longer than two
    found = (weight @ two.T).T[:count].contiguous()
    return found if bias is None else found + bias
