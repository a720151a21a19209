"""at_size: the same model, with the same weights, for images of another size."""

import keras
from keras import ops

from keras_vit.config import UserError, ViTConfig
from keras_vit.config_of import config_of
from keras_vit.layers import PatchEncoder, sincos_2d
from keras_vit.variants import override
from keras_vit.weights.resample import resize_matrix


def at_size(model, image_size, position_resize="bicubic_antialias"):
    """A view of a ViT for images of another size; both share every weight.

    Learned positions are resampled in each forward pass, so that training the view trains the
    model's own (as FlexiViT does, Beyer et al. 2023); sin-cos positions are computed anew. For a
    model of its own at another size use `create_model(..., weights=...)`.

    Args:
        model: what `create_model` returned, or the same loaded from a file.
        image_size: pixels, an int or (height, width).
        position_resize: a method of `load_weights`.

    Returns: a `keras.Model`, for `fit`, `evaluate` and `predict`; not to be saved.
    Raises: UserError: a size that no whole patches fill, or an MLP-Mixer, which has but one.
    """
    config = config_of(model)
    if not isinstance(config, ViTConfig):
        raise UserError(f"image_size={image_size!r}: an MLP-Mixer cannot change its size")
    config = override(config, {"image_size": image_size})
    image = keras.Input((*config.image_size, config.in_channels), name="image")

    def call(layer, *args, **kwargs):
        if isinstance(layer, PatchEncoder):
            layer = PatchEncoderAt(layer, config.grid_size, position_resize)
        return layer(*args, **kwargs)

    return keras.models.clone_model(
        model, input_tensors=image, clone_function=lambda layer: layer, call_function=call
    )


class PatchEncoderAt(keras.layers.Layer):
    """A PatchEncoder whose patches come from another grid, (rows, columns)."""

    def __init__(self, encoder, grid_size, position_resize):
        super().__init__(dtype=encoder.dtype_policy, name=encoder.name)
        self.encoder = encoder
        self.grid_size = grid_size
        self.matrices = [
            resize_matrix(old, new, position_resize).astype("float32")
            for old, new in zip(encoder.grid_size, grid_size, strict=True)
        ]

    def build(self, input_shape):
        pass  # the encoder is

    def call(self, patches):
        return self.encoder(patches, positions=self.positions())

    def positions(self):
        """Of the patches, `(1, N, D)`; None where there are none."""
        encoder = self.encoder
        if encoder.position_embedding == "none":
            return None
        if encoder.position_embedding == "sincos2d":
            return ops.convert_to_tensor(sincos_2d(self.grid_size, encoder.hidden_size))
        table = ops.convert_to_tensor(encoder.positions)[0, encoder.num_position_prefix :]
        rows, columns = (ops.cast(matrix, table.dtype) for matrix in self.matrices)
        table = ops.reshape(table, (*encoder.grid_size, encoder.hidden_size))
        table = ops.einsum("ir,rcd->icd", rows, table)
        table = ops.einsum("jc,icd->ijd", columns, table)
        return ops.reshape(table, (1, -1, encoder.hidden_size))

    def compute_output_shape(self, input_shape):
        batch, num_patches, _ = input_shape
        return batch, self.encoder.num_prefix_tokens + num_patches, self.encoder.hidden_size
