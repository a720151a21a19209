"""From tokens to one vector an image: one token, the mean of the patches, or attention."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenPooling(keras.layers.Layer):
    """Take one token: the class token is number 0 (equation 4 of the paper).

    Args:
        index: which token.

    Input shape: `(B, T, D)`. Output shape: `(B, D)`.
    """

    def __init__(self, index=0, **kwargs):
        super().__init__(**kwargs)
        self.index = index

    def build(self, input_shape):
        pass  # no weights

    def call(self, inputs):
        return inputs[:, self.index]

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {**super().get_config(), "index": self.index}


@keras.saving.register_keras_serializable(package="keras_vit")
class MeanPooling(keras.layers.Layer):
    """Mean of the patch tokens ("gap" of the original; prefix tokens left out, as in timm).

    Args:
        num_prefix_tokens: tokens at the front that are left out.

    Input shape: `(B, T, D)`. Output shape: `(B, D)`.
    """

    def __init__(self, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, input_shape):
        pass  # no weights

    def call(self, inputs):
        return ops.mean(inputs[:, self.num_prefix_tokens :], axis=1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {**super().get_config(), "num_prefix_tokens": self.num_prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class AttentionPooling(Composite):
    """A learned query attends to the patch tokens, then an MLP with a residual.

    Multi-head attention pooling (Zhai et al. 2022; big_vision `MAPHead`).

    Args:
        num_heads: K; divides D.
        mlp_dim: M.
        num_prefix_tokens: tokens at the front that are left out.
        gelu: "tanh" or "erf".
        norm_epsilon: epsilon of the LayerNorm before the MLP.

    Input shape: `(B, T, D)`. Output shape: `(B, D)`.
    Raises: ValueError: K does not divide D.
    """

    def __init__(
        self, num_heads, mlp_dim, num_prefix_tokens=0, gelu="tanh", norm_epsilon=1e-6, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.num_prefix_tokens = num_prefix_tokens
        self.gelu = gelu
        self.norm_epsilon = norm_epsilon
        self.norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.mlp = MLP(mlp_dim, gelu=gelu, dtype=self.dtype_policy, name="mlp")

    def build(self, input_shape):
        hidden_size = input_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide the hidden size."
                f" Received input of shape {tuple(input_shape)}"
            )
        self.probe = self.add_weight(
            name="probe", shape=(1, 1, hidden_size), initializer="glorot_uniform"
        )
        self.attention = keras.layers.MultiHeadAttention(
            self.num_heads,
            hidden_size // self.num_heads,
            kernel_initializer="glorot_uniform",
            dtype=self.dtype_policy,
            name="attention",
        )
        vector = (input_shape[0], 1, hidden_size)
        self.attention.build(vector, input_shape)
        self.norm.build(vector)
        self.mlp.build(vector)
        super().build(input_shape)

    def call(self, inputs, training=None):
        tokens = inputs[:, self.num_prefix_tokens :]
        probe = ops.cast(self.probe, self.compute_dtype)
        probe = ops.broadcast_to(probe, (ops.shape(tokens)[0], 1, tokens.shape[-1]))
        x = self.attention(probe, tokens, training=training)  # (B, 1, D)
        x = x + self.mlp(self.norm(x), training=training)
        return x[:, 0]  # (B, D)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[2])

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "num_prefix_tokens": self.num_prefix_tokens,
            "gelu": self.gelu,
            "norm_epsilon": self.norm_epsilon,
        }
