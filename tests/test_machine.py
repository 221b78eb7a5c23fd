import pytest
import torch

from firehose.experiments.execute import environments
from firehose.machine import gpus, machine


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A fast one")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_jobs_take_turns_with_the_gpus() -> None:
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environments(3)] == ["0", "1", "0"]
    assert machine()["gpu"] == "A fast one"


@pytest.mark.usefixtures("two_gpus")
def test_only_gpus_that_are_to_be_seen_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert gpus() == ["5", "7"]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environments(2)] == ["5", "7"]


def test_without_gpus_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [each["OMP_NUM_THREADS"] for each in environments(3)] == ["2", "2", "2"]
    assert "gpu" not in machine()
