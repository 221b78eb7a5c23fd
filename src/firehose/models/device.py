"""Where a model computes, and how precisely it does while it learns."""

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


class Place(NamedTuple):
    """A device, and the type of the products of learning."""

    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32

    def learning(self) -> AbstractContextManager[object]:
        """Within it, products are computed with this precision; sums and weights stay exact."""
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.precision)

    def __str__(self) -> str:
        name = str(self.device)
        if self.device.type == "cuda":
            name += f" ({torch.cuda.get_device_name(self.device)})"
        return f"{name}, {str(self.precision).removeprefix('torch.')}"


HALF = Place(precision=torch.bfloat16)


@cache
def works(trial: str) -> bool:
    """Whether a program comes to a good end, in a process of its own: it may well be killed."""
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


class Compute(Section):
    """What a model is computed with: the best there is, unless something else is asked for.

    Only learning is done in ``bfloat16``; what posts cost, and what ConGraD decides by, is always
    computed in ``float32``.
    """

    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def place(self) -> Place:
        """The device and the type; a device that is not there is refused with a sentence."""
        found = len(gpus())
        name = ("cuda" if found else "cpu") if self.device == "auto" else self.device
        device = torch.device(name)
        if device.type == "cuda" and (device.index or 0) >= found:
            raise FirehoseError(
                f"compute.device = {name!r}: torch sees {found or 'no'} GPUs here; use another "
                "device, or install a build of torch for your GPU."
            )
        place = Place(device, self._type(device))
        if place == HALF and not works(TRIAL):
            raise FirehoseError(
                "compute.precision = 'bfloat16': this processor says that it has instructions for "
                "bfloat16, and fails at them (some virtual machines do); use float32, or set "
                "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment, which does without them."
            )
        return place

    def _type(self, device: torch.device) -> torch.dtype:
        if self.precision != "auto":
            return {"float32": torch.float32, "bfloat16": torch.bfloat16}[self.precision]
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if fast else torch.float32
