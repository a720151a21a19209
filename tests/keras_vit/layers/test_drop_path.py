"""DropPath: whole images' branches, the mean kept, nothing outside training."""

import numpy as np
import pytest

from keras_vit.layers import DropPath


def test_it_drops_whole_images_and_keeps_the_mean():
    output = np.asarray(DropPath(0.3, seed=1)(np.ones((4000, 3, 2), "float32"), training=True))
    per_image = output.reshape(4000, -1)
    assert (per_image == per_image[:, :1]).all()
    np.testing.assert_allclose(np.unique(per_image), [0, 1 / 0.7], rtol=1e-6)
    dropped = (per_image[:, 0] == 0).mean()
    assert dropped == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / 4000))
    assert output.mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3, 4)])
def test_any_rank(shape):
    output = np.asarray(DropPath(0.5)(np.ones(shape, "float32"), training=True))
    assert output.shape == shape and set(np.unique(output)) <= {0.0, 2.0}


def test_outside_training_it_is_the_identity():
    x = np.ones((8, 3), "float32")
    np.testing.assert_array_equal(DropPath(0.9)(x), x)
    np.testing.assert_array_equal(DropPath(0.0)(x, training=True), x)


def test_a_seed_fixes_the_sequence_and_each_call_draws_anew():
    x = np.ones((64, 1), "float32")
    one, two = DropPath(0.5, seed=3), DropPath(0.5, seed=3)
    first = one(x, training=True)
    np.testing.assert_array_equal(first, two(x, training=True))
    assert not np.array_equal(first, one(x, training=True))


@pytest.mark.parametrize("rate", [1, -0.1, 2.0])
def test_a_rate_out_of_range(rate):
    with pytest.raises(ValueError, match=rf"rate must be in \[0, 1\). Received: {rate}"):
        DropPath(rate)
