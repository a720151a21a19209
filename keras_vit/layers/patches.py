"""Patches: an image cut into squares, each flattened into a vector."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class Patches(keras.layers.Layer):
    """Cut images into non-overlapping patches and flatten each (Dosovitskiy et al. 2021, 3.1).

    Patches come row by row; within a patch the order is (row, column, channel), so that
    `Dense(D)` after it equals a convolution of kernel and stride P, with the same kernel reshaped.

    Args:
        patch_size: P in pixels, an int or (height, width).

    Input shape: `(B, H, W, C)`, any range, integers too. P divides H and W.
    Output shape: `(B, N, P*P*C)` with N = (H/P) * (W/P).
    Raises: ValueError: H or W unknown, or not a multiple of P.
    """

    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        pair = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
        self.patch_size = tuple(pair)

    def call(self, images):
        images = ops.cast(images, self.compute_dtype)
        # Checked on every call: a batch of the wrong size can still reshape, into garbage.
        _, num_patches, features = self.compute_output_shape(images.shape)
        patch_height, patch_width = self.patch_size
        columns, row = images.shape[2] // patch_width, features // patch_height
        # Never above rank 4: the LiteRT GPU delegate takes no more.
        x = ops.reshape(images, (-1, patch_height, columns, row))  # (B*rows, P, columns, P*C)
        x = ops.transpose(x, (0, 2, 1, 3))  # (B*rows, columns, P, P*C)
        return ops.reshape(x, (-1, num_patches, features))  # (B, N, P*P*C)

    def compute_output_shape(self, input_shape):
        batch, height, width, channels = input_shape
        for axis, side, patch in zip(
            ("height", "width"), (height, width), self.patch_size, strict=True
        ):
            if side is None or side % patch:
                raise ValueError(
                    f"patch_size={self.patch_size} must divide the image's {axis}, which is"
                    f" {side}. Received images of shape {tuple(input_shape)}"
                )
        patch_height, patch_width = self.patch_size
        num_patches = (height // patch_height) * (width // patch_width)
        return (batch, num_patches, patch_height * patch_width * channels)

    def build(self, input_shape):
        self.compute_output_shape(input_shape)  # refuses what does not fit

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}
