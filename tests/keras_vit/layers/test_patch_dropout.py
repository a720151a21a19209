"""PatchDropout: which tokens stay, in their order, and only while training."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit.layers import PatchDropout


def numbered(batch, tokens):
    """Token t of image b holds (b, t)."""
    grid = np.stack(np.meshgrid(np.arange(batch), np.arange(tokens), indexing="ij"), axis=-1)
    return grid.astype("float32")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(patches=st.integers(1, 12), prefix=st.integers(0, 3), rate=st.sampled_from([0.1, 0.5, 0.75]))
def test_prefix_and_order_stay(patches, prefix, rate):
    tokens = numbered(3, prefix + patches)
    output = np.asarray(PatchDropout(rate, prefix)(tokens, training=True))
    kept = max(1, int(patches * (1 - rate)))
    assert output.shape == (3, prefix + kept, 2)
    for image, rows in enumerate(output):
        assert (rows[:, 0] == image).all()
        numbers = rows[:, 1]
        np.testing.assert_array_equal(numbers[:prefix], np.arange(prefix))
        assert (np.diff(numbers) > 0).all()  # in order, none twice
        assert (numbers[prefix:] >= prefix).all()


def test_every_patch_has_its_chance_and_images_choose_for_themselves():
    output = np.asarray(PatchDropout(0.5, 1, seed=0)(numbered(2000, 9), training=True))
    chosen = output[:, 1:, 1].astype(int)
    share = np.bincount(chosen.ravel(), minlength=9)[1:] / 2000
    np.testing.assert_allclose(share, 0.5, atol=0.06)
    assert len({tuple(row) for row in chosen}) > 50


def test_outside_training_it_is_the_identity():
    tokens = numbered(2, 5)
    np.testing.assert_array_equal(PatchDropout(0.5)(tokens), tokens)
    np.testing.assert_array_equal(PatchDropout(0.0)(tokens, training=True), tokens)


def test_a_rate_out_of_range():
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\). Received: 1"):
        PatchDropout(1)
