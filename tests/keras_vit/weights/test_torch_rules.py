"""PyTorch's layouts of the same arithmetic."""

import numpy as np

from keras_vit import ViTConfig
from keras_vit.weights.torch_rules import fused_linears, linear, patch_embedding
from tests.keras_vit.models import TINY

RNG = np.random.default_rng(0)


def test_a_linear_layer_multiplies_by_its_transpose():
    kernel, bias = linear("a", "b")
    assert (kernel.ours, kernel.theirs, bias.theirs) == ("a/kernel", ("b.weight",), ("b.bias",))
    weight, x = RNG.normal(size=(3, 5)), RNG.normal(size=5)
    np.testing.assert_allclose(x @ kernel.to_ours(weight), weight @ x)
    assert len(linear("a", "b", bias=False)) == 1


def test_three_linear_layers_are_one():
    kernel, bias = fused_linears("qkv", ["q", "k", "v"])
    weights, x = [RNG.normal(size=(4, 5)) for _ in "qkv"], RNG.normal(size=5)
    expected = np.concatenate([weight @ x for weight in weights])
    np.testing.assert_allclose(x @ kernel.to_ours(*weights), expected)
    for there, back in zip(weights, kernel.to_theirs(kernel.to_ours(*weights)), strict=True):
        np.testing.assert_array_equal(there, back)
    assert [part.shape for part in bias.to_theirs(np.arange(12))] == [(4,)] * 3


def test_a_patch_convolution_is_a_matrix():
    """nn.Conv2d with stride P on one patch (C, P1, P2) is our product with (P1, P2, C) flat."""
    config = ViTConfig(**TINY)
    kernel, _ = patch_embedding(config, "proj")
    weight, patch = RNG.normal(size=(24, 3, 4, 2)), RNG.normal(size=(3, 4, 2))
    expected = np.einsum("dchw,chw->d", weight, patch)
    ours = patch.transpose(1, 2, 0).ravel() @ kernel.to_ours(weight)
    np.testing.assert_allclose(ours, expected)
    np.testing.assert_array_equal(kernel.to_theirs(kernel.to_ours(weight))[0], weight)
