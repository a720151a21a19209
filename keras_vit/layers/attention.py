"""Multi-head self-attention: equations 5 to 8 of the paper."""

import math

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.recompute import recompute

QUERIES_AT_ONCE = 1024  # more tokens than these attend in slices


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(Composite):
    """Self-attention of K heads (Dosovitskiy et al. 2021, appendix A; vit_jax `models_vit.py`).

    Query, key and value are one fused product. Its kernel is still drawn as the original's three
    Xavier-uniform D x D matrices: their limit sqrt(6 / (D + D)) is that of a fan-in uniform with
    sqrt(3 / D), whatever the number of columns. Queries are scaled before the product and the
    softmax runs in float32, so that float16 does not overflow.

    Beyond 1024 tokens the queries attend in slices, which training computes again in the backward
    pass: no `(B, K, T, T)` is ever whole in memory (Rabe & Staats 2021), unless it is asked for.

    Args:
        num_heads: K; divides D.
        dropout: rate on each attention weight.
        use_qkv_bias: whether query, key and value have a bias.
        qk_norm: LayerNorm over each head's queries and keys (Dehghani et al. 2023).
        norm_epsilon: epsilon of that LayerNorm.

    Call arguments:
        inputs: `(B, T, D)`.
        return_attention_scores: also return the softmax weights `(B, K, T, T)`, float32.

    Output shape: `(B, T, D)`.
    Raises: ValueError: K does not divide D.
    """

    def __init__(
        self,
        num_heads,
        dropout=0.0,
        use_qkv_bias=True,
        qk_norm=False,
        norm_epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.use_qkv_bias = use_qkv_bias
        self.qk_norm = qk_norm
        self.norm_epsilon = norm_epsilon
        self.attention_dropout = keras.layers.Dropout(
            dropout, dtype=self.dtype_policy, name="attention_dropout"
        )
        if qk_norm:
            self.query_norm, self.key_norm = (
                keras.layers.LayerNormalization(
                    epsilon=norm_epsilon, dtype=self.dtype_policy, name=name
                )
                for name in ("query_norm", "key_norm")
            )

    def build(self, input_shape):
        hidden_size = input_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} must divide the hidden size."
                f" Received input of shape {tuple(input_shape)}"
            )
        self.head_size = hidden_size // self.num_heads
        self.qkv = keras.layers.Dense(
            3 * hidden_size,
            use_bias=self.use_qkv_bias,
            kernel_initializer="lecun_uniform",  # = Xavier-uniform of each D x D third
            dtype=self.dtype_policy,
            name="qkv",
        )
        self.qkv.build(input_shape)
        self.output_projection = keras.layers.Dense(
            hidden_size, kernel_initializer="glorot_uniform", dtype=self.dtype_policy, name="output"
        )
        self.output_projection.build(input_shape)
        if self.qk_norm:
            heads = (input_shape[0], self.num_heads, input_shape[1], self.head_size)
            self.query_norm.build(heads)
            self.key_norm.build(heads)
        super().build(input_shape)

    def call(self, inputs, training=None, return_attention_scores=False):
        tokens, hidden_size = ops.shape(inputs)[1], inputs.shape[-1]
        query, key, value = (
            ops.transpose(
                ops.reshape(third, (-1, tokens, self.num_heads, self.head_size)), (0, 2, 1, 3)
            )  # (B, K, T, D/K)
            for third in ops.split(self.qkv(inputs), 3, axis=-1)
        )
        if self.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        query = query * (self.head_size**-0.5)
        if return_attention_scores or (inputs.shape[1] or 0) <= QUERIES_AT_ONCE:
            x, weights = self.attend(query, key, value, training)
        else:
            x = self.attend_in_slices(query, key, value, training)
        x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, tokens, hidden_size))  # (B, T, D)
        x = self.output_projection(x)
        return (x, weights) if return_attention_scores else x

    def attend(self, query, key, value, training):
        """All `(B, K, T, D/K)`, the queries maybe fewer. Returns: the same, and the weights."""
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # (B, K, T, T)
        weights = ops.softmax(ops.cast(scores, "float32"), axis=-1)
        dropped = self.attention_dropout(ops.cast(weights, value.dtype), training=training)
        return ops.matmul(dropped, value), weights  # (B, K, T, D/K)

    def attend_in_slices(self, query, key, value, training):
        tokens = query.shape[2]
        size = math.ceil(tokens / math.ceil(tokens / QUERIES_AT_ONCE))

        def attend(query, key, value):
            return self.attend(query, key, value, training)[0]

        slices = [query[:, :, start : start + size] for start in range(0, tokens, size)]
        if training:
            slices = [recompute(self, attend, part, key, value) for part in slices]
        else:
            slices = [attend(part, key, value) for part in slices]
        return ops.concatenate(slices, axis=2)

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, inputs, training=None, return_attention_scores=False):
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        batch, tokens, _ = inputs.shape
        return output, keras.KerasTensor((batch, self.num_heads, tokens, tokens), dtype="float32")

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "use_qkv_bias": self.use_qkv_bias,
            "qk_norm": self.qk_norm,
            "norm_epsilon": self.norm_epsilon,
        }
