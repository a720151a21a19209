"""What the layouts share: grids, heads and rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_vit import UserError
from keras_vit.weights.layout import (
    Hints,
    concatenated,
    count_blocks,
    find_grid,
    find_heads,
    grid_of,
)


def test_a_square_is_taken_only_where_nothing_else_is_known():
    assert find_grid(196, (16, 16)) == (14, 14)
    assert find_grid(196, (16, 16), stored=(7, 28)) == (7, 28)
    # The image size is that of the model to be made, not of the file.
    assert find_grid(196, (16, 16), image_size=(112, 448)) == (14, 14)
    assert find_grid(24, (16, 8), image_size=(48, 64)) == (3, 8)


def test_what_cannot_be_known_is_asked_for():
    with pytest.raises(UserError, match="24 positions are no square grid; give the image_size"):
        find_grid(24, (16, 16), path="x.npz")
    with pytest.raises(UserError, match=r"has 24 positions, but says its grid is \(5, 5\)"):
        find_grid(24, (16, 16), stored=(5, 5))


def test_heads_are_those_of_the_file_or_the_variant_or_given():
    assert find_heads((384, 12, 1536), None, Hints(), "x") == 6
    assert find_heads((1152, 27, 4304), None, Hints(num_heads=3), "x") == 16  # 72 wide
    assert find_heads((384, 12, 1536), 12, Hints(), "x") == 12
    assert find_heads((48, 3, 96), None, Hints(num_heads=3), "x") == 3
    with pytest.raises(UserError, match="x: no tensor shows how many attention heads.*num_heads="):
        find_heads((640, 5, 99), None, Hints(), "x")


def test_blocks_are_counted_by_number():
    names = ["blocks.0.a", "blocks.0.b", "blocks.10.a", "block.3", "blocks.2.a"]
    assert count_blocks(names, "blocks.") == 3


def test_sizes_become_grids():
    assert grid_of(224, (16, 14)) == (14, 16)
    assert grid_of((48, 64), (16, 8)) == (3, 8)
    assert grid_of(None, (16, 16)) is None


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_a_rule_knows_shapes_without_values_and_is_exact_both_ways(parts, heads, width):
    names = [f"part{index}" for index in range(parts)]
    rule = concatenated("ours", names, own=(5, heads * width), shape=(5, heads, width))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(5, heads, width)) for _ in names]
    ours = rule.to_ours(*arrays)
    assert rule.shape({name: (5, heads, width) for name in names}) == ours.shape
    for there, back in zip(arrays, rule.to_theirs(ours), strict=True):
        np.testing.assert_array_equal(there, back)
