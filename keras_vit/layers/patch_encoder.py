"""PatchEncoder: linear embedding, prefix tokens and positions: equation 1 of the paper."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.composite import Composite


def sincos_2d(grid_size, hidden_size, temperature=10000.0):
    """Fixed 2-D sine-cosine positions (Beyer et al. 2022; big_vision `posemb_sincos_2d`).

    Args:
        grid_size: (rows, columns) of the patches.
        hidden_size: D, divisible by 4.
        temperature: the longest wavelength, in patches, over 2 pi.

    Returns: float32 array `(1, N, D)`: sin x, cos x, sin y, cos y, each D/4 wide.
    """
    y, x = np.mgrid[: grid_size[0], : grid_size[1]]
    omega = np.arange(hidden_size // 4) / max(1, hidden_size // 4 - 1)
    omega = 1.0 / temperature**omega
    x = x.reshape(-1, 1) * omega  # (N, D/4)
    y = y.reshape(-1, 1) * omega
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return table[None].astype("float32")  # (1, N, D)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEncoder(Composite):
    """Embed flattened patches, put learned tokens before them, add positions (equation 1).

    Initial values are the original's: LeCun-normal kernel, zero class token, positions N(0, 0.02).
    Registers start at N(0, 0.02) too: equal ones without positions would stay equal for ever.

    Args:
        hidden_size: D.
        grid_size: (rows, columns) of the patches; kept here so that 14x14 positions are never
            taken for 7x28.
        class_token: whether a class token comes first.
        distillation_token: whether DeiT's token follows it.
        num_register_tokens: register tokens between these and the patches.
        position_embedding: "learned", "sincos2d" (fixed, patches only) or "none".
        position_tokens: who owns a learned position: "all" tokens, "class" (and distillation)
            tokens and patches, or "patches" alone.
        use_bias: whether the embedding has a bias.

    Call arguments:
        patches: `(B, N, P*P*C)`.
        positions: `(1, N, D)` of patches that come from another grid, in place of its own.

    Input shape: `(B, N, P*P*C)`. Output shape: `(B, T, D)`, T = prefix tokens + N.
    Raises: ValueError: N is not rows * columns, or a setting is unknown.
    """

    def __init__(
        self,
        hidden_size,
        grid_size,
        class_token=True,
        distillation_token=False,
        num_register_tokens=0,
        position_embedding="learned",
        position_tokens="all",
        use_bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if position_embedding not in ("learned", "sincos2d", "none"):
            raise ValueError(
                "position_embedding must be 'learned', 'sincos2d' or 'none'."
                f" Received: {position_embedding!r}"
            )
        if position_tokens not in ("all", "class", "patches"):
            raise ValueError(
                "position_tokens must be 'all', 'class' or 'patches'."
                f" Received: {position_tokens!r}"
            )
        self.hidden_size = hidden_size
        self.grid_size = tuple(grid_size)
        self.class_token = class_token
        self.distillation_token = distillation_token
        self.num_register_tokens = num_register_tokens
        self.position_embedding = position_embedding
        self.position_tokens = position_tokens
        self.use_bias = use_bias
        self.num_prefix_tokens = int(class_token) + int(distillation_token) + num_register_tokens
        self.projection = keras.layers.Dense(
            hidden_size,
            use_bias=use_bias,
            kernel_initializer="lecun_normal",
            dtype=self.dtype_policy,
            name="projection",
        )

    @property
    def num_patches(self):
        return self.grid_size[0] * self.grid_size[1]

    def build(self, input_shape):
        if input_shape[1] != self.num_patches:
            raise ValueError(
                f"grid_size={self.grid_size} needs {self.num_patches} patches."
                f" Received input of shape {tuple(input_shape)}"
            )
        self.projection.build(input_shape)
        self.prefix = []  # in the order of the sequence
        if self.class_token:
            self.prefix.append(self._tokens("class_token", 1, "zeros"))
        if self.distillation_token:
            self.prefix.append(self._tokens("distillation_token", 1))
        if self.num_register_tokens:
            self.prefix.append(self._tokens("register_tokens", self.num_register_tokens))
        if self.position_embedding == "learned":
            count = self.num_position_prefix + self.num_patches
            self.positions = self._tokens("position_embedding", count)
        super().build(input_shape)

    def _tokens(self, name, count, initializer=None):
        initializer = initializer or keras.initializers.RandomNormal(stddev=0.02)
        shape = (1, count, self.hidden_size)
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    @property
    def num_position_prefix(self):
        """Prefix tokens that own a learned position."""
        special = int(self.class_token) + int(self.distillation_token)
        return {"all": self.num_prefix_tokens, "class": special, "patches": 0}[self.position_tokens]

    def call(self, patches, positions=None):
        x = self.projection(patches)  # (B, N, D)
        if self.prefix:
            prefix = ops.concatenate(self.prefix, axis=1)  # (1, prefix tokens, D)
            shape = (ops.shape(x)[0], self.num_prefix_tokens, self.hidden_size)
            x = ops.concatenate([ops.broadcast_to(prefix, shape), x], axis=1)  # (B, T, D)
        if self.position_embedding == "none":
            return x
        return x + ops.cast(self._position_table(positions), x.dtype)

    def _position_table(self, positions):
        """Positions of all tokens, `(1, T, D)`: zeros for those that own none."""
        if self.position_embedding == "sincos2d":
            table, owned = ops.convert_to_tensor(sincos_2d(self.grid_size, self.hidden_size)), 0
        else:
            table, owned = ops.convert_to_tensor(self.positions), self.num_position_prefix
        if positions is not None:
            table = ops.concatenate([table[:, :owned], positions], axis=1)
        missing = self.num_prefix_tokens - owned
        if not missing:
            return table
        zeros = ops.zeros((1, missing, self.hidden_size), dtype=table.dtype)
        return ops.concatenate([table[:, :owned], zeros, table[:, owned:]], axis=1)

    def save_own_variables(self, store):
        super().save_own_variables(store)
        store["grid_size"] = np.array(self.grid_size)

    def load_own_variables(self, store):
        variables = {key: store[key] for key in store.keys() if key != "grid_size"}
        if "grid_size" in store.keys():  # files of version 0.1.0 have none
            grid = tuple(int(side) for side in store["grid_size"])
            if grid != self.grid_size:
                raise ValueError(
                    f"The file's positions are a {grid} grid, the model's {self.grid_size};"
                    " keras_vit.load_weights resamples them."
                )
        super().load_own_variables(variables)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_prefix_tokens + self.num_patches, self.hidden_size)

    def get_config(self):
        return {
            **super().get_config(),
            "hidden_size": self.hidden_size,
            "grid_size": self.grid_size,
            "class_token": self.class_token,
            "distillation_token": self.distillation_token,
            "num_register_tokens": self.num_register_tokens,
            "position_embedding": self.position_embedding,
            "position_tokens": self.position_tokens,
            "use_bias": self.use_bias,
        }
