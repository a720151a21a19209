"""MixerBlock: one MLP across tokens, one across channels."""

import numpy as np
import pytest

from keras_vit.layers import MixerBlock
from tests.check_layer import images_like, randomise
from tests.keras_vit import reference

TOKENS = (2, 7, 12)


@pytest.mark.parametrize("settings", [{}, dict(gelu="erf", norm_epsilon=0.2, drop_path=0.3)])
def test_it_is_the_equation(settings):
    layer = MixerBlock(9, 20, **settings)
    layer.build(TOKENS)
    randomise(layer, scale=0.3)
    tokens = images_like(TOKENS)
    expected = reference.mixer_block(tokens.astype("float64"), layer)
    np.testing.assert_allclose(layer(tokens), expected, atol=1e-5)


def test_token_mixing_works_on_tokens_and_channel_mixing_on_channels():
    layer = MixerBlock(9, 20)
    layer.build(TOKENS)
    assert layer.token_mixing.expand.kernel.shape == (7, 9)
    assert layer.channel_mixing.expand.kernel.shape == (12, 20)


def test_with_both_branches_dropped_it_is_the_identity():
    tokens = images_like(TOKENS)
    layer = MixerBlock(9, 20, drop_path=0.999999)
    np.testing.assert_array_equal(layer(tokens, training=True), tokens)
