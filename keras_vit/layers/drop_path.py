"""DropPath: stochastic depth, whole residual branches left out for some images."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class DropPath(keras.layers.Layer):
    """While training, set a residual branch to zero for a random part of the images.

    What remains is divided by (1 - rate), so the mean is kept (Huang et al. 2016; timm `DropPath`).

    Args:
        rate: probability of leaving an image's branch out, in [0, 1).
        seed: int for a fixed random sequence, or None.

    Input shape: `(B, ...)`. Output shape: the same.
    Raises: ValueError: rate out of its range.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1). Received: {rate}")
        self.rate = rate
        self.seed = seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        pass  # no weights

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        shape = (ops.shape(inputs)[0],) + (1,) * (len(inputs.shape) - 1)
        keep = keras.random.uniform(shape, seed=self.seed_generator) >= self.rate
        return inputs * ops.cast(keep, inputs.dtype) / (1.0 - self.rate)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
