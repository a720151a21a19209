import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vit import UserError
from training.data.split import stratified_split


@settings(deadline=None)
@given(
    st.lists(st.integers(2, 40), min_size=1, max_size=6),
    st.floats(0.05, 0.95),
    st.integers(0, 1000),
)
def test_it_is_exhaustive_disjoint_stratified_and_repeatable(sizes, fraction, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    groups = np.arange(len(labels))
    train, held_out = stratified_split(labels, groups, fraction, seed)
    assert sorted([*train, *held_out]) == list(groups)
    for label, size in enumerate(sizes):
        count = int((labels[held_out] == label).sum())
        assert count == min(max(1, round(fraction * size)), size - 1)
    again = stratified_split(labels, groups, fraction, seed)
    np.testing.assert_array_equal(train, again[0])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=8, max_size=80),
    st.integers(0, 1000),
)
def test_identical_images_stay_together(pairs, seed):
    labels, groups = np.array(pairs).T
    train, held_out = stratified_split(labels, groups, 0.3, seed)
    assert not set(groups[train]) & set(groups[held_out])
    assert len(train) + len(held_out) == len(labels)


def test_another_seed_is_another_split():
    labels, groups = np.zeros(50, int), np.arange(50)
    first, second = (stratified_split(labels, groups, 0.2, seed)[1] for seed in (0, 1))
    assert list(first) != list(second)


def test_a_class_of_identical_images_stays_in_training():
    train, held_out = stratified_split(np.zeros(5, int), np.zeros(5, int), 0.4, 0)
    assert len(train) == 5
    assert len(held_out) == 0


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1.0, 2.0])
def test_a_fraction_out_of_range_is_named(fraction):
    with pytest.raises(UserError, match=f"validation_fraction={fraction} must be more than 0"):
        stratified_split(np.zeros(5, int), np.arange(5), fraction, 0)
