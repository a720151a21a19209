"""Positions and patches at another size: the published methods, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import zoom

from keras_vit import UserError
from keras_vit.weights.resample import (
    METHODS,
    resample_channels,
    resample_patches,
    resample_positions,
    resize_matrix,
)


@pytest.mark.parametrize("pair", ["4_to_6", "6_to_4", "14_to_24", "7_to_12"])
def test_the_originals_bilinear(pair, shared):
    content = np.load(shared / "reference/jax/position_embedding_resize.npz")
    old, new = content[f"in_{pair}"], content[f"out_{pair}"]
    table = old.reshape(1, -1, old.shape[-1])
    ours = resample_positions(table, old.shape[:2], new.shape[:2], "bilinear_corners")
    np.testing.assert_allclose(ours.reshape(new.shape), new, atol=1e-6)


@pytest.mark.parametrize("pair", ["4x4_to_6x6", "6x6_to_4x4", "4x4_to_3x8"])
def test_timms_antialiased_bicubic(pair, shared):
    content = np.load(shared / "reference/timm/position_embedding_resize_bicubic.npz")
    old, new = (tuple(map(int, side.split("x"))) for side in pair.split("_to_"))
    table, expected = content[f"in_{pair}"], content[f"out_{pair}"]
    ours = resample_positions(table[:, 1:], old, new, "bicubic_antialias")
    np.testing.assert_allclose(ours, expected[:, 1:], atol=1e-6)
    np.testing.assert_array_equal(table[:, :1], expected[:, :1])


def test_flexivits_pseudo_inverse(shared):
    content = np.load(shared / "reference/timm/patch_embedding_resize_8_to_12.npz")
    old, new = (a.transpose(2, 3, 1, 0) for a in (content["inp"], content["out"]))
    ours = resample_patches(old.reshape(-1, 16), (8, 8), (12, 12), "bicubic_antialias")
    np.testing.assert_allclose(ours.reshape(new.shape), new, atol=1e-5)


sides = st.integers(1, 12)


@given(sides, sides, sides, sides, st.sampled_from(list(METHODS)))
def test_rows_and_columns_are_never_mixed_up(rows, columns, new_rows, new_columns, method):
    """A table that depends on the row alone stays so; so does one of columns, and a constant."""
    old, new = (rows, columns), (new_rows, new_columns)
    ramp = np.broadcast_to(np.arange(rows, dtype="f")[:, None], old).reshape(1, -1, 1)
    grid = resample_positions(ramp, old, new, method).reshape(new)
    np.testing.assert_allclose(grid, np.broadcast_to(grid[:, :1], new), atol=1e-5)
    one = resample_positions(np.ones((1, rows * columns, 2)), old, new, method)
    np.testing.assert_allclose(one, np.ones((1, new_rows * new_columns, 2)), atol=1e-5)


@given(sides, st.sampled_from(list(METHODS)))
def test_the_same_size_changes_nothing(side, method):
    np.testing.assert_allclose(resize_matrix(side, side, method), np.eye(side), atol=1e-12)


@given(st.integers(2, 12), st.integers(2, 12))
def test_corners_stay_where_they_are(old, new):
    for method in ("bilinear_corners", "bicubic_corners"):
        matrix = resize_matrix(old, new, method)
        np.testing.assert_allclose(matrix[[0, -1]], np.eye(old)[[0, -1]], atol=1e-9)


def test_bilinear_corners_is_scipys_zoom():
    table = np.random.default_rng(0).normal(size=(5, 3, 2))
    expected = zoom(table, (8 / 5, 7 / 3, 1), order=1)
    ours = resample_positions(table.reshape(1, 15, 2), (5, 3), (8, 7), "bilinear_corners")
    np.testing.assert_allclose(ours.reshape(8, 7, 2), expected, atol=1e-6)


@given(st.integers(1, 5), st.integers(0, 4), st.sampled_from(["bilinear", "bicubic_antialias"]))
def test_an_enlarged_patch_embeds_as_the_patch_did(size, more, method):
    rng = np.random.default_rng(0)
    new = size + more
    kernel, patch = rng.normal(size=(size * size * 2, 4)), rng.normal(size=(size, size, 2))
    resize = resize_matrix(size, new, method)
    larger = np.einsum("ir,jc,rck->ijk", resize, resize, patch)
    ours = resample_patches(kernel, (size, size), (new, new), method)
    np.testing.assert_allclose(larger.ravel() @ ours, patch.ravel() @ kernel, atol=1e-4)


@pytest.mark.parametrize("old, new", [(3, 1), (3, 3), (3, 6), (1, 3), (3, 9)])
def test_a_gray_image_embeds_as_before(old, new):
    kernel = np.random.default_rng(0).normal(size=(4 * 2 * old, 5)).astype("f")
    gray = np.random.default_rng(1).normal(size=(4, 2, 1))
    ours = resample_channels(kernel, (4, 2), new)
    assert ours.shape == (4 * 2 * new, 5)
    before = np.repeat(gray, old, axis=2).ravel() @ kernel
    np.testing.assert_allclose(np.repeat(gray, new, axis=2).ravel() @ ours, before, atol=1e-5)


def test_an_unknown_method_is_named():
    with pytest.raises(UserError, match="position_resize='cubic' must be one of bilinear_corners"):
        resize_matrix(3, 4, "cubic")
