"""The library runs on Keras's JAX backend: TensorFlow's logits, a training step, a file."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_vit import MixerConfig, ViTConfig, create_model
from tests.check_layer import images_like, randomise

TINY = dict(hidden_size=24, num_layers=1, mlp_dim=24, num_heads=3, num_classes=5)
# JAX compiles for seconds: few models, much in each. The first one trains as well.
CONFIGS = {
    "hybrid": ViTConfig(
        **TINY,
        patch_size=1,
        image_size=16,
        stem_layers=(1,),
        stem_width=0.5,
        distillation_token=True,
        num_register_tokens=2,
        layer_scale=0.5,
        qk_norm=True,
        dropout=0.1,
        attention_dropout=0.1,
        patch_dropout=0.5,
    ),
    "map": ViTConfig(
        **TINY,
        patch_size=4,
        image_size=(16, 8),
        pooling="attention",
        position_embedding="sincos2d",
        gelu="erf",
    ),
    "mixer": MixerConfig(
        hidden_size=24, num_layers=1, tokens_mlp_dim=7, channels_mlp_dim=9, image_size=32
    ),
}

PROGRAM = """
import sys
import keras, keras_vit, numpy as np

assert keras.backend.backend() == "jax" and "tensorflow" not in sys.modules
folder, names = sys.argv[1], sys.argv[2:]
for name in names:
    images = np.load(f"{folder}/{name}.npy")
    model = keras.models.load_model(f"{folder}/{name}.keras")
    np.save(f"{folder}/{name}_logits.npy", model.predict(images, verbose=0))
    if name != names[0]:
        continue
    model.compile("sgd", "mse")
    before = model.get_weights()
    history = model.fit(images, np.ones((4, 5)), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    changed = sum(not np.array_equal(a, b) for a, b in zip(before, model.get_weights()))
    assert changed > 0.9 * len(before), (changed, len(before))
    model.save(f"{folder}/trained.keras")
    logits = keras.models.load_model(f"{folder}/trained.keras").predict(images, verbose=0)
    np.testing.assert_array_equal(model.predict(images, verbose=0), logits)
    np.save(f"{folder}/trained_logits.npy", logits)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What JAX made of each TensorFlow model: one process for all, it starts slowly."""
    folder = tmp_path_factory.mktemp("jax")
    for name, config in CONFIGS.items():
        randomise(create_model(config)).save(folder / f"{name}.keras")
        np.save(folder / f"{name}.npy", images_like((4, *config.image_size, 3)))
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        # Nearly all the time goes into optimising code that runs once.
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, *CONFIGS],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def logits(folder, name, images):
    model = keras.models.load_model(folder / f"{name}.keras", compile=False)
    return model(np.load(folder / f"{images}.npy"))


@pytest.mark.parametrize("name", CONFIGS)
def test_both_backends_give_the_same_logits(folder, name):
    expected = np.load(folder / f"{name}_logits.npy")
    np.testing.assert_allclose(logits(folder, name, name), expected, atol=1e-5)


def test_what_jax_trained_and_saved_gives_the_same_logits(folder):
    expected = np.load(folder / "trained_logits.npy")
    np.testing.assert_allclose(logits(folder, "trained", "hybrid"), expected, atol=1e-5)
    assert not np.allclose(expected, np.load(folder / "hybrid_logits.npy"), atol=1e-3)
