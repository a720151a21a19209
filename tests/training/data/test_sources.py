import numpy as np
import pytest

from keras_vit import UserError
from training.data.sources import open_source


@pytest.mark.parametrize("spec", ["", "photos", "folder", "folder:", "tfds:", "digits:8", "s3:x"])
def test_an_unknown_source_is_refused(spec):
    with pytest.raises(UserError) as error:
        open_source(spec, seed=0)
    assert str(error.value) == (
        f"data={spec!r} must be digits, folder:PATH, tfds:NAME, tfrecord:GLOB or vtab:NAME"
    )


def test_class_counts_of_an_indexed_split():
    split = open_source("digits", seed=0).splits["train"]
    counts = split.class_counts(12)
    assert counts.sum() == split.num_examples
    np.testing.assert_array_equal(counts[10:], 0)
