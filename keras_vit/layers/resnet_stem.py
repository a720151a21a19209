"""The convolutional stem of the hybrids: R50+ViT-B/16 and its like (vit_jax `models_resnet.py`)."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite


@keras.saving.register_keras_serializable(package="keras_vit")
class StdConv2D(keras.layers.Conv2D):
    """Convolution whose kernel is standardised for each output channel (Qiao et al. 2019).

    w = (w - mean) / (std + 1e-5) over height, width and input channels; the epsilon is added to
    the standard deviation, as in the original. Arguments are those of `keras.layers.Conv2D`.
    """

    def convolution_op(self, inputs, kernel):
        kernel = ops.cast(kernel, "float32")
        mean = ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        std = ops.std(kernel, axis=(0, 1, 2), keepdims=True)
        kernel = ops.cast((kernel - mean) / (std + 1e-5), inputs.dtype)
        return super().convolution_op(inputs, kernel)


def std_conv(filters, kernel_size, strides, dtype, name):
    """A `StdConv2D` as the stem uses it: "SAME", no bias, LeCun-normal."""
    return StdConv2D(
        filters,
        kernel_size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="lecun_normal",
        dtype=dtype,
        name=name,
    )


def group_norm(dtype, name, gamma_initializer="ones"):
    """GroupNorm as the stem uses it: 32 groups, epsilon 1e-6."""
    return keras.layers.GroupNormalization(
        32, epsilon=1e-6, gamma_initializer=gamma_initializer, dtype=dtype, name=name
    )


@keras.saving.register_keras_serializable(package="keras_vit")
class BottleneckUnit(Composite):
    """Bottleneck residual unit with StdConv and GroupNorm: 1x1, 3x3, 1x1, activation last.

    Args:
        filters: channels inside; the output has four times as many.
        strides: stride of the 3x3 convolution (and of the projection).

    Input shape: `(B, H, W, C)`. Output shape: `(B, H/strides, W/strides, 4*filters)`, rounded up.
    """

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides
        dtype = self.dtype_policy
        self.conv1 = std_conv(filters, 1, 1, dtype, "conv1")
        self.conv2 = std_conv(filters, 3, strides, dtype, "conv2")
        self.conv3 = std_conv(4 * filters, 1, 1, dtype, "conv3")
        self.gn1 = group_norm(dtype, "gn1")
        self.gn2 = group_norm(dtype, "gn2")
        # A zero scale makes the unit start as the identity.
        self.gn3 = group_norm(dtype, "gn3", gamma_initializer="zeros")

    def build(self, input_shape):
        inner = (*input_shape[:-1], self.filters)
        output = self.compute_output_shape(input_shape)
        reduced = (*output[:-1], self.filters)
        self.conv1.build(input_shape)
        self.gn1.build(inner)
        self.conv2.build(inner)
        self.gn2.build(reduced)
        self.conv3.build(reduced)
        self.gn3.build(output)
        self.project = input_shape[-1] != 4 * self.filters or self.strides != 1
        if self.project:
            dtype = self.dtype_policy
            self.conv_proj = std_conv(4 * self.filters, 1, self.strides, dtype, "conv_proj")
            self.gn_proj = group_norm(dtype, "gn_proj")
            self.conv_proj.build(input_shape)
            self.gn_proj.build(output)
        super().build(input_shape)

    def call(self, inputs):
        residual = self.gn_proj(self.conv_proj(inputs)) if self.project else inputs
        x = ops.relu(self.gn1(self.conv1(inputs)))
        x = ops.relu(self.gn2(self.conv2(x)))
        x = self.gn3(self.conv3(x))
        return ops.relu(residual + x)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        height, width = (-(-side // self.strides) for side in (height, width))
        return (batch, height, width, 4 * self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNetRoot(Composite):
    """What comes before the stages: StdConv 7x7 / 2, GroupNorm, ReLU, max-pooling 3x3 / 2.

    Args:
        filters: channels of the output.

    Input shape: `(B, H, W, C)`. Output shape: `(B, H/4, W/4, filters)`, rounded up.
    """

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.conv_root = std_conv(filters, 7, 2, self.dtype_policy, "conv_root")
        self.gn_root = group_norm(self.dtype_policy, "gn_root")

    def build(self, input_shape):
        self.conv_root.build(input_shape)
        self.gn_root.build(self.conv_root.compute_output_shape(input_shape))
        super().build(input_shape)

    def call(self, images):
        x = ops.relu(self.gn_root(self.conv_root(images)))  # (B, H/2, W/2, filters)
        return ops.max_pool(x, 3, strides=2, padding="same")  # (B, H/4, W/4, filters)

    def compute_output_shape(self, input_shape):
        batch, height, width, _ = input_shape
        return (batch, -(-height // 4), -(-width // 4), self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters}
