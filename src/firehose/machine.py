"""What there is to compute with, and what results were computed on."""

import os
import platform
from pathlib import Path

import torch


def cores() -> int:
    """As many as there are."""
    return os.cpu_count() or 1


def gpus() -> list[str]:
    """The numbers of those that torch can use, as CUDA_VISIBLE_DEVICES has them."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]


def machine() -> dict[str, str | int]:
    """The processor, and the versions that numbers depend on; nothing about whose it is."""
    gpu: dict[str, str | int] = {"gpu": torch.cuda.get_device_name()} if gpus() else {}
    return gpu | {
        "processor": _processor(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
