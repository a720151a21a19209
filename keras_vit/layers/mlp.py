"""MLP: the feed-forward half of a block: equation 3 of the paper."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(Composite):
    """Two dense layers with GELU between, on the last axis (vit_jax `MlpBlock`).

    Kernels start Xavier-uniform, biases at N(0, 1e-6), as in the original.

    Args:
        mlp_dim: M, width of the hidden layer.
        dropout: rate after GELU and after the second layer.
        gelu: "tanh" (approximation of the original JAX code) or "erf" (exact).

    Input shape: `(..., D)`. Output shape: `(..., D)`.
    Raises: ValueError: unknown `gelu`.
    """

    def __init__(self, mlp_dim, dropout=0.0, gelu="tanh", **kwargs):
        super().__init__(**kwargs)
        if gelu not in ("tanh", "erf"):
            raise ValueError(f"gelu must be 'tanh' or 'erf'. Received: {gelu!r}")
        self.mlp_dim = mlp_dim
        self.dropout = dropout
        self.gelu = gelu
        self.expand = self._dense(mlp_dim, "expand")
        self.hidden_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.output_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def _dense(self, units, name):
        return keras.layers.Dense(
            units,
            kernel_initializer="glorot_uniform",
            bias_initializer=keras.initializers.RandomNormal(stddev=1e-6),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape):
        self.expand.build(input_shape)
        self.contract = self._dense(input_shape[-1], "contract")
        self.contract.build((*input_shape[:-1], self.mlp_dim))
        super().build(input_shape)

    def call(self, inputs, training=None):
        x = ops.gelu(self.expand(inputs), approximate=self.gelu == "tanh")  # (..., M)
        x = self.hidden_dropout(x, training=training)
        return self.output_dropout(self.contract(x), training=training)  # (..., D)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "gelu": self.gelu,
        }
