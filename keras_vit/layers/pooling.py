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
class TokenMeanPooling(MeanPooling):
    """The class token beside the mean of the patch tokens (the linear head of DINOv2).

    Args:
        num_prefix_tokens: tokens at the front; the first is the class token, none is in the mean.

    Input shape: `(B, T, D)`. Output shape: `(B, 2*D)`.
    """

    def call(self, inputs):
        return ops.concatenate([inputs[:, 0], super().call(inputs)], axis=-1)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 2 * input_shape[2])


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
        self.head_size = hidden_size // self.num_heads
        self.query, self.key_value, self.output_projection = (
            # lecun_uniform on several D x D matrices side by side = Xavier-uniform on each
            keras.layers.Dense(
                width, kernel_initializer="lecun_uniform", dtype=self.dtype_policy, name=name
            )
            for name, width in (
                ("query", hidden_size),
                ("key_value", 2 * hidden_size),
                ("output", hidden_size),
            )
        )
        vector = (input_shape[0], 1, hidden_size)
        self.query.build(vector)
        self.key_value.build(input_shape)
        self.output_projection.build(vector)
        self.norm.build(vector)
        self.mlp.build(vector)
        super().build(input_shape)

    def call(self, inputs, training=None):
        tokens = inputs[:, self.num_prefix_tokens :]  # (B, N, D)
        query = self._heads(self.query(ops.cast(self.probe, self.compute_dtype)), 1)
        key, value = (
            self._heads(half, ops.shape(tokens)[1])
            for half in ops.split(self.key_value(tokens), 2, -1)
        )  # (B, K, N, D/K)
        scores = ops.matmul(query * self.head_size**-0.5, ops.transpose(key, (0, 1, 3, 2)))
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)  # (B, K, 1, N)
        x = ops.matmul(ops.cast(weights, value.dtype), value)  # (B, K, 1, D/K)
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, 1, inputs.shape[-1]))  # (B, 1, D)
        x = self.output_projection(x)
        x = x + self.mlp(self.norm(x), training=training)
        return x[:, 0]  # (B, D)

    def _heads(self, x, length):
        """`(B, length, D)` to `(B, K, length, D/K)`."""
        x = ops.reshape(x, (-1, length, self.num_heads, self.head_size))
        return ops.transpose(x, (0, 2, 1, 3))

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
