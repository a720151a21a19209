"""Shared fixtures. Keras runs on TensorFlow here; `shared` is the folder of real data beside us."""

import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import hypothesis
import pytest

from training.distribution import logical_cpus

# Before TensorFlow starts: four devices for the tests of strategies; the others use the first.
logical_cpus(4)

# A busy machine makes no test fail: speed belongs in benchmarks.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real images and reference outputs; absent in a user's clone."""
    if not SHARED.is_dir():
        if os.environ.get("CI"):
            pytest.fail("CI must run beside ../shared, the folder of real data")
        pytest.skip("needs ../shared (real images, reference outputs), absent in a user's clone")
    return SHARED


@pytest.fixture(autouse=True)
def fixed_seed():
    import keras

    keras.utils.set_random_seed(0)
