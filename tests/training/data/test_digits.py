import numpy as np
from sklearn.datasets import load_digits

from training.data.digits import open_digits


def pixels(split):
    return np.stack([split.read(i).numpy() for i in range(split.num_examples)])


def test_all_1797_real_digits_are_in_one_of_three_splits():
    source = open_digits(seed=0, validation_fraction=0.2)
    assert set(source.splits) == {"train", "validation", "test"}
    images = np.concatenate([pixels(split) for split in source.splits.values()])
    labels = np.concatenate([split.labels for split in source.splits.values()])
    ours = sorted(zip(map(bytes, images), labels.tolist(), strict=True))
    original = load_digits()
    theirs = [np.round(image * 255 / 16).astype(np.uint8) for image in original.images]
    assert ours == sorted(zip(map(bytes, theirs), original.target.tolist(), strict=True))
    assert images.dtype == np.uint8 and images.shape[1:] == (8, 8, 1)
    assert images.max() == 255


def test_the_test_set_is_a_fifth_and_does_not_move():
    first, second = (open_digits(seed, 0.2) for seed in (0, 1))
    np.testing.assert_array_equal(pixels(first.splits["test"]), pixels(second.splits["test"]))
    assert first.splits["test"].num_examples == 359
    assert list(first.splits["validation"].labels) != list(second.splits["validation"].labels)
    assert first.fingerprint == second.fingerprint


def test_no_image_is_on_two_sides():
    source = open_digits(seed=3, validation_fraction=0.3)
    seen = [set(map(bytes, pixels(split))) for split in source.splits.values()]
    assert not seen[0] & seen[1] and not seen[0] & seen[2] and not seen[1] & seen[2]


def test_a_digit_is_not_mirrored():
    source = open_digits(0, 0.2)
    assert not source.flip
    assert source.channels == 1 and source.image_size == (8, 8)
    assert source.class_names == tuple("0123456789")
