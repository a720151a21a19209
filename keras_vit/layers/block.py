"""TransformerBlock: equations 2 and 3 of the paper."""

from functools import partial

import keras

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.composite import Composite
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mlp import MLP
from keras_vit.layers.recompute import recompute


@keras.saving.register_keras_serializable(package="keras_vit")
class TransformerBlock(Composite):
    """Pre-norm attention and MLP, each with a residual (Dosovitskiy et al. 2021, figure 1).

        x = x + DropPath(LayerScale(Dropout(MSA(LN(x)))))     (2)
        x = x + DropPath(LayerScale(MLP(LN(x))))              (3)

    Args:
        num_heads: K; divides D.
        mlp_dim: M.
        dropout: rate after the attention's output and in the MLP.
        attention_dropout: rate on the attention weights.
        drop_path: stochastic depth rate of both branches.
        layer_scale: initial value of LayerScale, or None for none.
        gelu: "tanh" or "erf".
        use_qkv_bias, qk_norm: see `MultiHeadSelfAttention`.
        norm_epsilon: epsilon of every LayerNorm.
        remat: what training computes again in the backward pass instead of keeping it: "none",
            "attention" or the whole "block".

    Input shape: `(B, T, D)`. Output shape: `(B, T, D)`.
    """

    def __init__(
        self,
        num_heads,
        mlp_dim,
        dropout=0.0,
        attention_dropout=0.0,
        drop_path=0.0,
        layer_scale=None,
        gelu="tanh",
        use_qkv_bias=True,
        qk_norm=False,
        norm_epsilon=1e-6,
        remat="none",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.drop_path = drop_path
        self.layer_scale = layer_scale
        self.gelu = gelu
        self.use_qkv_bias = use_qkv_bias
        self.qk_norm = qk_norm
        self.norm_epsilon = norm_epsilon
        self.remat = remat

        dtype = self.dtype_policy
        self.attention_norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=dtype, name="attention_norm"
        )
        self.attention = MultiHeadSelfAttention(
            num_heads,
            dropout=attention_dropout,
            use_qkv_bias=use_qkv_bias,
            qk_norm=qk_norm,
            norm_epsilon=norm_epsilon,
            dtype=dtype,
            name="attention",
        )
        self.output_dropout = keras.layers.Dropout(dropout, dtype=dtype, name="output_dropout")
        self.mlp_norm = keras.layers.LayerNormalization(
            epsilon=norm_epsilon, dtype=dtype, name="mlp_norm"
        )
        self.mlp = MLP(mlp_dim, dropout=dropout, gelu=gelu, dtype=dtype, name="mlp")
        self.attention_drop_path = DropPath(drop_path, dtype=dtype, name="attention_drop_path")
        self.mlp_drop_path = DropPath(drop_path, dtype=dtype, name="mlp_drop_path")
        if layer_scale is not None:
            self.attention_scale = LayerScale(layer_scale, dtype=dtype, name="attention_scale")
            self.mlp_scale = LayerScale(layer_scale, dtype=dtype, name="mlp_scale")

    def build(self, input_shape):
        sublayers = [self.attention_norm, self.attention, self.mlp_norm, self.mlp]
        if self.layer_scale is not None:
            sublayers += [self.attention_scale, self.mlp_scale]
        for layer in sublayers:
            layer.build(input_shape)
        super().build(input_shape)

    def call(self, inputs, training=None):
        if training and self.remat == "block":
            return recompute(self, partial(self._output, training=training), inputs)
        return self._output(inputs, training)

    def _output(self, inputs, training):
        return self.steps(inputs, training, scores=False)["output"]

    def steps(self, inputs, training=None, scores=True):
        """The forward pass with every intermediate by name.

        Returns: dict of "attention_scores" `(B, K, T, T)` unless `scores` is False, and
        `(B, T, D)` each: "attention" (the branch as it is added), "after_attention", "mlp",
        "output".
        """
        x, steps = self.attention_norm(inputs), {}
        attend = partial(self.attention, training=training)
        if scores:
            x, steps["attention_scores"] = attend(x, return_attention_scores=True)
        elif training and self.remat == "attention":
            x = recompute(self.attention, attend, x)
        else:
            x = attend(x)
        x = self.output_dropout(x, training=training)
        if self.layer_scale is not None:
            x = self.attention_scale(x)
        attention = self.attention_drop_path(x, training=training)
        after_attention = inputs + attention
        x = self.mlp(self.mlp_norm(after_attention), training=training)
        if self.layer_scale is not None:
            x = self.mlp_scale(x)
        mlp = self.mlp_drop_path(x, training=training)
        return steps | {
            "attention": attention,
            "after_attention": after_attention,
            "mlp": mlp,
            "output": after_attention + mlp,
        }

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "drop_path": self.drop_path,
            "layer_scale": self.layer_scale,
            "gelu": self.gelu,
            "use_qkv_bias": self.use_qkv_bias,
            "qk_norm": self.qk_norm,
            "norm_epsilon": self.norm_epsilon,
            "remat": self.remat,
        }
