"""LayerScale: a learned factor for each channel of a residual branch."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(keras.layers.Layer):
    """Multiply each channel by a learned factor (Touvron et al. 2021, CaiT, equation 9).

    Args:
        initial_value: the factors at the start, 1e-4 to 1e-6 for deep models.

    Input shape: `(..., D)`. Output shape: the same.
    """

    def __init__(self, initial_value, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, inputs):
        return inputs * ops.cast(self.gamma, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
