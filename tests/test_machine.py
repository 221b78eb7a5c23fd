from types import SimpleNamespace

import pytest
import torch

from firehose.experiments.execute import Slot, slots
from firehose.machine import gpus, machine
from firehose.models.device import Compute


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A fast one")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def visible(slot: Slot, device: str = "auto") -> str | None:
    job = SimpleNamespace(settings=SimpleNamespace(compute=Compute(device=device)))
    return slot.environment(job).get("CUDA_VISIBLE_DEVICES")  # type: ignore[arg-type]


@pytest.mark.usefixtures("two_gpus")
def test_jobs_take_turns_with_the_gpus() -> None:
    assert [visible(each) for each in slots(3)] == ["0", "1", "0"]
    assert machine()["gpu"] == "A fast one"
    assert [visible(each, device="cuda:1") for each in slots(2)] == [None, None]  # it is named


@pytest.mark.usefixtures("two_gpus")
def test_only_gpus_that_are_to_be_seen_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus() == ["5", "7"]
    assert [visible(each) for each in slots(2)] == ["5", "7"]
    assert visible(slots(2)[0], device="cpu") == "5,7"  # as it was


def test_without_gpus_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    job = SimpleNamespace(settings=SimpleNamespace(compute=Compute()))
    found = [each.environment(job) for each in slots(3)]  # type: ignore[arg-type]
    assert [each["OMP_NUM_THREADS"] for each in found] == ["2", "2", "2"]
    assert visible(slots(3)[0]) is None
    assert "gpu" not in machine()
