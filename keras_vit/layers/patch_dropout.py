"""PatchDropout: train on a random part of the patches."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchDropout(keras.layers.Layer):
    """While training, keep a random part of each image's patch tokens (Li et al. 2023, FLIP).

    Every image keeps max(1, floor(N * (1 - rate))) patches of its own choice, in their order, and
    all its prefix tokens. Nothing is scaled. Comes after the positions are added.

    Args:
        rate: part of the patches left out, in [0, 1).
        num_prefix_tokens: tokens at the front that always stay.
        seed: int for a fixed random sequence, or None.

    Input shape: `(B, T, D)`. Output shape: `(B, T, D)`; while training T is smaller.
    Raises: ValueError: rate out of its range.
    """

    def __init__(self, rate, num_prefix_tokens=0, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1). Received: {rate}")
        self.rate = rate
        self.num_prefix_tokens = num_prefix_tokens
        self.seed = seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        pass  # no weights

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        prefix, patches = (
            inputs[:, : self.num_prefix_tokens],
            inputs[:, self.num_prefix_tokens :],
        )
        num_patches = patches.shape[1]
        kept = max(1, int(num_patches * (1.0 - self.rate)))
        lots = keras.random.uniform((ops.shape(inputs)[0], num_patches), seed=self.seed_generator)
        chosen = ops.sort(ops.top_k(lots, kept, sorted=False)[1], axis=1)  # (B, kept)
        patches = ops.take_along_axis(patches, chosen[:, :, None], axis=1)  # (B, kept, D)
        return ops.concatenate([prefix, patches], axis=1)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "rate": self.rate,
            "num_prefix_tokens": self.num_prefix_tokens,
            "seed": self.seed,
        }
