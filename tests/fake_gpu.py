"""A GPU that computes nothing, for machines without one: every operation must find all on it."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FAKE = torch.device("meta")  # tensors with a shape and a type, but without values
MOVING = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}


class FakeGPU(TorchDispatchMode):
    """Refuses to mix devices, as a real one does.

    What comes back from it is ones, and single numbers are 1 and −1 in turn, so that whatever
    depends on them goes both ways.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0  # that were done on it
        self.read = 0  # numbers that came back

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        devices = {tensor.device for tensor in tensors}
        if func == torch.ops.aten._local_scalar_dense.default and FAKE in devices:
            self.read += 1
            return 1.0 if self.read % 2 else -1.0
        if func in MOVING:
            target = kwargs.get("device") or (args[0].device if len(args) > 1 else None)
            source = args[1] if len(args) > 1 else args[0]
            if source.device == FAKE and target is not None and torch.device(target) != FAKE:
                made = torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
                return args[0].copy_(made) if len(args) > 1 else made
        elif len(devices) > 1:
            raise AssertionError(f"{func} is given tensors of {devices}")
        self.operations += FAKE in devices
        return func(*args, **kwargs)
