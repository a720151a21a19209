"""The learning rate against its closed form."""

import math

import keras
import numpy as np
import pytest

from training.schedule import WarmupDecay


def rates(schedule, steps) -> np.ndarray:
    return np.array([float(schedule(step)) for step in range(steps)])


@pytest.mark.parametrize("warmup, total", [(10, 100), (0, 7), (1, 2), (5, 5)])
def test_every_step_has_the_closed_form(warmup, total):
    def expected(step):
        if step < warmup:
            return 0.3 * (step + 1) / warmup
        return 0.3 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2

    found = rates(WarmupDecay(0.3, warmup, total), total)
    # Near the end 1 + cos cancels: the rounding is that of float32 numbers of the peak's size.
    np.testing.assert_allclose(found, [expected(s) for s in range(total)], rtol=1e-6, atol=3e-8)


@pytest.mark.parametrize("peak", [0.3, 1e-6])
def test_linear_ends_where_the_original_does(peak):
    """vit_jax utils.py: end + (peak - end) * (1 - progress), with end 1e-5."""
    found = rates(WarmupDecay(peak, 10, 100, "linear"), 101)
    end = min(1e-5, peak)
    expected = [end + (peak - end) * (1 - (step - 10) / 90) for step in range(10, 101)]
    np.testing.assert_allclose(found[10:], expected, rtol=1e-5, atol=3e-8 * peak)
    assert found[-1] == pytest.approx(end)


def test_the_peak_is_reached_at_the_end_of_the_warm_up_and_nothing_is_left_after_the_last_step():
    schedule = WarmupDecay(0.3, 10, 100)
    assert float(schedule(9)) == float(schedule(10)) == pytest.approx(0.3)
    assert rates(schedule, 100).argmax() == 9
    assert float(schedule(99)) > 0  # the last step still learns
    assert float(schedule(100)) == float(schedule(1000)) == 0.0


def test_it_survives_serialization():
    schedule = WarmupDecay(0.3, 10, 100)
    config = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(config)
    np.testing.assert_array_equal(rates(copy, 101), rates(schedule, 101))
