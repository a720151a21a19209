"""MixerBlock: one MLP across tokens, one across channels."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.mlp import MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class MixerBlock(Composite):
    """Token mixing and channel mixing, each pre-norm with a residual (Tolstikhin et al. 2021).

    Args:
        tokens_mlp_dim: hidden width of the MLP across the N tokens.
        channels_mlp_dim: hidden width of the MLP across the D channels.
        drop_path: stochastic depth rate of both branches.
        gelu: "tanh" or "erf".
        norm_epsilon: epsilon of both LayerNorms.

    Input shape: `(B, N, D)`, N fixed. Output shape: `(B, N, D)`.
    """

    def __init__(
        self,
        tokens_mlp_dim,
        channels_mlp_dim,
        drop_path=0.0,
        gelu="tanh",
        norm_epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.tokens_mlp_dim = tokens_mlp_dim
        self.channels_mlp_dim = channels_mlp_dim
        self.drop_path = drop_path
        self.gelu = gelu
        self.norm_epsilon = norm_epsilon
        dtype = self.dtype_policy
        self.token_norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=dtype, name="token_norm"
        )
        self.token_mixing = MLP(tokens_mlp_dim, gelu=gelu, dtype=dtype, name="token_mixing")
        self.channel_norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=dtype, name="channel_norm"
        )
        self.channel_mixing = MLP(channels_mlp_dim, gelu=gelu, dtype=dtype, name="channel_mixing")
        self.token_drop_path = DropPath(drop_path, dtype=dtype, name="token_drop_path")
        self.channel_drop_path = DropPath(drop_path, dtype=dtype, name="channel_drop_path")

    def build(self, input_shape):
        batch, tokens, hidden_size = input_shape
        self.token_norm.build(input_shape)
        self.token_mixing.build((batch, hidden_size, tokens))
        self.channel_norm.build(input_shape)
        self.channel_mixing.build(input_shape)
        super().build(input_shape)

    def call(self, inputs, training=None):
        x = ops.transpose(self.token_norm(inputs), (0, 2, 1))  # (B, D, N)
        x = ops.transpose(self.token_mixing(x, training=training), (0, 2, 1))  # (B, N, D)
        x = inputs + self.token_drop_path(x, training=training)
        y = self.channel_mixing(self.channel_norm(x), training=training)
        return x + self.channel_drop_path(y, training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "tokens_mlp_dim": self.tokens_mlp_dim,
            "channels_mlp_dim": self.channels_mlp_dim,
            "drop_path": self.drop_path,
            "gelu": self.gelu,
            "norm_epsilon": self.norm_epsilon,
        }
