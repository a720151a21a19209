"""MLP-Mixer: no attention, no positions (Tolstikhin et al. 2021; vit_jax `models_mixer.py`)."""

import keras

from keras_vit.config import MixerConfig
from keras_vit.layers import MeanPooling, MixerBlock, PatchEncoder, Patches


def mlp_mixer(config: MixerConfig, dtype=None, name="mixer"):
    """The model of `config`. The image size is fixed: token mixing knows the number of patches."""
    images = keras.Input((*config.image_size, config.in_channels), name="image")  # (B, H, W, C)
    x = Patches(config.patch_size, dtype=dtype, name="patches")(images)  # (B, N, P*P*C)
    x = PatchEncoder(
        config.hidden_size,
        config.grid_size,
        class_token=False,
        position_embedding="none",
        dtype=dtype,
        name="patch_encoder",
    )(x)  # (B, N, D)
    for index in range(config.num_layers):
        x = MixerBlock(
            config.tokens_mlp_dim,
            config.channels_mlp_dim,
            drop_path=config.drop_path * index / max(1, config.num_layers - 1),
            gelu=config.gelu,
            norm_epsilon=config.norm_epsilon,
            dtype=dtype,
            name=f"block_{index:02d}",
        )(x)
    x = keras.layers.LayerNormalization(
        epsilon=config.norm_epsilon, dtype=dtype, name="encoder_norm"
    )(x)
    x = MeanPooling(dtype=dtype, name="pool")(x)  # (B, D)
    if config.num_classes:
        x = keras.layers.Dense(
            config.num_classes, kernel_initializer="zeros", dtype="float32", name="head"
        )(x)
    return keras.Model(images, x, name=name)
