"""The device that a model is computed on, and the precision it learns with."""

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Literal, NamedTuple

import torch
from pydantic import Field

from firehose.config import Section
from firehose.errors import FirehoseError
from firehose.machine import gpus

TRIAL = "import torch; half = torch.ones(64, 64, dtype=torch.bfloat16); half @ half"


class Device(NamedTuple):
    """A torch device, and the number type of matrix products while learning."""

    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32

    def learning(self) -> AbstractContextManager[object]:
        """Compute products with this precision inside; sums and weights stay in float32."""
        if self.precision != torch.bfloat16:
            return nullcontext()
        return torch.autocast(self.device.type, self.precision)

    def __str__(self) -> str:
        name = str(self.device)
        if self.device.type == "cuda":
            name += f" ({torch.cuda.get_device_name(self.device)})"
        return f"{name}, {str(self.precision).removeprefix('torch.')}"


HALF = Device(precision=torch.bfloat16)


@cache
def works(trial: str) -> bool:
    """Whether a Python program ends without error, tried in a process of its own: it may crash."""
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


class Compute(Section):
    """The device and precision to compute with; by default the best there is.

    Only learning is done in ``bfloat16``; costs of posts, and losses that ConGraD compares, are
    always computed in ``float32``.
    """

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def find_device(self) -> Device:
        """Find the device and its precision; refuse a device that this machine does not have."""
        count = len(gpus())
        name = ("cuda" if count else "cpu") if self.device == "auto" else self.device
        device = torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= count:
            raise FirehoseError(
                f"compute.device = {name!r}: torch sees {count or 'no'} GPUs here; use another "
                "device, or install a build of torch for your GPU."
            )
        found = Device(device, self._type(device))
        if found == HALF and not works(TRIAL):
            raise FirehoseError(
                "compute.precision = 'bfloat16': this processor says that it has instructions for "
                "bfloat16, and fails at them (some virtual machines do); use float32, or set "
                "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment, which does without them."
            )
        return found

    def _type(self, device: torch.device) -> torch.dtype:
        if self.precision != "auto":
            return {"float32": torch.float32, "bfloat16": torch.bfloat16}[self.precision]
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
