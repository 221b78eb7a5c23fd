"""A model computes where, and as precisely as, it is told."""

import numpy as np
import pytest
import torch

from fake_gpu import FAKE, FakeGPU
from firehose.errors import FirehoseError
from firehose.game.round import play
from firehose.generation.decoding import Decoder
from firehose.models import device
from firehose.models.device import HALF, Compute, Device
from firehose.models.dropout import Random
from firehose.models.personal import Architecture, Personal
from firehose.optim.gradient import Gradient
from small_methods import adam, buffer, congrad, learner, model_predictor
from small_models import TINY, awake, batch_of, tiny

POSTS = batch_of([[1, 2, 3], [4, 5, 6, 7, 8], [9, 10], [11, 12, 13, 14]], users=[0, 1, 1, 20])
DROPPING = TINY.model_copy(update={"dropout": 0.1})


def test_without_a_gpu_all_is_done_on_the_cpu_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Compute().find_device() == Device(torch.device("cpu"), torch.float32)
    assert Compute(precision="bfloat16").find_device() == HALF
    with pytest.raises(FirehoseError, match="torch sees no GPUs here"):
        Compute(device="cuda").find_device()


@pytest.mark.parametrize(("able", "precision"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_gpu_is_used_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, able: bool, precision: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: able)
    assert Compute().find_device() == Device(torch.device("cuda"), precision)
    second = Compute(device="cuda:1", precision="float32").find_device()
    assert second == Device(torch.device("cuda:1"), torch.float32)
    assert Compute(device="cpu").find_device() == Device()
    with pytest.raises(FirehoseError, match="torch sees 2 GPUs here"):
        Compute(device="cuda:2").find_device()


def test_a_processor_that_fails_at_what_it_promises_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr(device, "TRIAL", dies)
    with pytest.raises(FirehoseError, match=r"fails at them .* use float32, or set ONEDNN_MAX"):
        Compute(device="cpu", precision="bfloat16").find_device()
    assert Compute(device="cpu").find_device() == Device()


def test_only_devices_that_can_be_are_named() -> None:
    with pytest.raises(FirehoseError, match="device = 'tpu'"):
        Compute.of({"device": "tpu"})


def _trained(device: Device, steps: int = 30) -> tuple[Personal, Gradient]:
    model = awake(tiny("adapters")).move_to(device)
    rule = adam(model, 1e-2)
    for _ in range(steps):
        gradient = model.train().gradient(POSTS)
        rule.step(gradient)
    return model, gradient


def test_half_as_many_bits_learn_nearly_the_same() -> None:
    exact, rough = (awake(tiny("adapters")).move_to(p).gradient(POSTS) for p in (Device(), HALF))
    assert 0 < abs(rough.loss / exact.loss - 1) < 0.01
    likeness = rough.dot(exact) / (rough.norm() * exact.norm())
    assert likeness > 0.999
    assert {slope.dtype for slope in rough.shared if slope is not None} == {torch.float32}
    before = awake(tiny("adapters")).cost(POSTS)
    learned = [_trained(device)[0].cost(POSTS) for device in (Device(), HALF)]
    assert learned[1] == pytest.approx(learned[0], rel=0.1)
    assert learned[1] < before / 2


def test_posts_are_paid_for_exactly_all_the_same() -> None:
    exact, rough = (awake(tiny("adapters")).move_to(device) for device in (Device(), HALF))
    assert (exact.pay(POSTS).nats == rough.pay(POSTS).nats).all()
    assert exact.cost(POSTS) == rough.cost(POSTS)


@pytest.mark.parametrize("architecture", ["agnostic", "encoder", "decoder", "adapters"])
def test_a_whole_game_stays_on_its_device(
    architecture: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Random, "kept_on_device", lambda _, like, __: torch.ones_like(like, dtype=torch.uint8)
    )
    model = awake(tiny(architecture, shape=DROPPING)).move_to(Device(FAKE))
    generator = np.random.default_rng(0)
    for kind in ("online-only", "replay-only", "mixed-replay", "a-gem", "gem"):
        memory = buffer("stratified", per_user=2)
        with FakeGPU() as gpu:
            optimizer = congrad(adam(model, 1e-3), 2, validation=2, restore_moments=True)
            rounds = play(
                [POSTS] * 3,
                model_predictor(model, optimizer.weights),
                model,
                learner(kind, 4),
                optimizer,
                memory,
                generator,
            )
            assert [each.paid.nats.shape for each in rounds] == [(4,)] * 3
            assert gpu.operations > 1000
    assert model.users.vectors.device == torch.device("cpu")
    with FakeGPU():
        decoder = Decoder(model, user=1, rows=2)
        decoder.advance(torch.ones(2, 3, dtype=torch.int64))
        decoder.keep([1, 1])
        assert decoder.advance(torch.ones(2, 1, dtype=torch.int64)).device.type == "cpu"


def test_the_fake_gpu_notices_what_lies_elsewhere() -> None:
    with FakeGPU(), pytest.raises(AssertionError, match="given tensors of"):
        torch.ones(3, device=FAKE) + torch.ones(3)


def test_masks_drawn_on_a_device_have_their_rate_and_can_be_drawn_again() -> None:
    like, random = torch.empty(100, 100), Random(3)
    state = random.state()
    kept = random.kept_on_device(like, 0.3)
    assert kept.dtype == torch.uint8
    assert kept.float().mean() == pytest.approx(0.7, abs=0.02)  # 4 standard deviations
    assert not torch.equal(kept, random.kept_on_device(like, 0.3))
    random.restore(state)
    assert torch.equal(kept, random.kept_on_device(like, 0.3))
