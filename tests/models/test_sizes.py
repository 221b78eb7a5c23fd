"""How many bytes a model takes, reckoned and counted."""

import pytest
from hypothesis import given, settings, strategies as st

from firehose.errors import FirehoseError
from firehose.models import sizes
from firehose.models.perceptron import Perceptron
from firehose.models.personal import Architecture, ModelPlan, Personal
from firehose.models.sizes import count_weights, refuse_beyond_memory
from firehose.models.transformer_xl import Shape

ARCHITECTURES: list[Architecture] = ["agnostic", "encoder", "decoder", "adapters"]


@settings(deadline=None, max_examples=40)
@given(
    architecture=st.sampled_from(ARCHITECTURES),
    numbers=st.tuples(*[st.integers(1, 5)] * 8),
    projects=st.booleans(),
)
def test_the_weights_of_a_plan_are_those_of_the_model(
    architecture: Architecture, numbers: tuple[int, ...], projects: bool
) -> None:
    layers, half, heads, d_head, d_inner, mlp, d_user, pieces = numbers
    sizes = {"heads": heads, "d_head": d_head, "d_inner": d_inner}
    shape = Shape(layers=layers, d_model=2 * half, **sizes)
    user = d_user if projects else 2 * half
    plan = ModelPlan(
        architecture=architecture, shape=shape, mlp=mlp, d_user=user, project_users=projects
    )
    model = Personal(plan, pieces)
    assert count_weights(plan, pieces) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    "shape", [{"layers": 10**9}, {"d_model": 10**6}, {"d_inner": 10**15}, {"heads": 2**62}]
)
def test_a_model_that_no_memory_holds_is_refused_before_it_is_made(shape: dict[str, int]) -> None:
    plan = ModelPlan(shape=Shape(**shape))
    with pytest.raises(
        FirehoseError, match=r"needs .* [GTPE]B, and this machine has .* GB; choose"
    ):
        Personal(plan, 32_000)


def test_a_perceptron_is_measured_too() -> None:
    with pytest.raises(FirehoseError, match="A perceptron of this size needs"):
        Perceptron(784, 10, (10**9, 10**9))


def test_what_needs_the_most_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "memory", lambda: 1_000)
    refuse_beyond_memory({"a": 500, "b": 500}, "rest")
    with pytest.raises(FirehoseError) as error:
        refuse_beyond_memory({"a": 400, "b": 601}, "rest")
    assert str(error.value) == "b needs 601 bytes of 1 kB in all, and this machine has 1 kB; rest."
