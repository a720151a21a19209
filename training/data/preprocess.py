"""The one definition of how an image becomes numbers: train-time evaluation, evaluate, predict.

A run keeps it in `preprocess.json`; nothing else in this project scales or crops for a model.
"""

from dataclasses import asdict, dataclass, fields

import tensorflow as tf

from keras_vit.config import UserError
from training.data.decode import decode_image, to_channels


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How a uint8 image is resized and normalised.

    image_size: (height, width) of the result.
    channels: 3 (RGB) or 1 (gray).
    resize: "crop" keeps the aspect: the image is scaled until it just covers
        image_size / crop_fraction, and the centre is cut out. "squash" scales both sides.
    crop_fraction: in (0, 1], for "crop".
    interpolation: "bilinear" or "bicubic", antialiased.
    mean, std: of each channel, for pixels in 0..1; 0.5 and 0.5 give the original's -1..1.

    Raises: UserError: a field is out of its range.
    """

    image_size: tuple[int, int]
    channels: int = 3
    resize: str = "crop"
    crop_fraction: float = 1.0
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)

    def __post_init__(self):
        for name in ("image_size", "mean", "std"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("mean", "std"):  # one number stands for every channel
            value = getattr(self, name)
            object.__setattr__(self, name, value * self.channels if len(value) == 1 else value)
        checks = {
            "image_size": len(self.image_size) == 2 and all(side > 0 for side in self.image_size),
            "channels": self.channels in (1, 3),
            "resize": self.resize in ("crop", "squash"),
            "crop_fraction": 0 < self.crop_fraction <= 1,
            "interpolation": self.interpolation in ("bilinear", "bicubic"),
            "mean": len(self.mean) == self.channels,
            "std": len(self.std) == self.channels and all(value > 0 for value in self.std),
        }
        for name, is_right in checks.items():
            if not is_right:
                raise UserError(f"preprocess: {name}={getattr(self, name)!r} is not allowed")

    def to_dict(self) -> dict:
        """Plain values, for `preprocess.json`."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict) -> "Preprocess":
        """The inverse of `to_dict`. Raises: UserError: a key is missing or unknown."""
        known = {field.name for field in fields(cls)}
        for key in sorted(known.symmetric_difference(values)):
            what = "is missing" if key in known else "is unknown"
            raise UserError(f"preprocess.json: {key!r} {what}")
        return cls(**values)


def preprocess_image(image, preprocess: Preprocess):
    """Encoded bytes or uint8 `(H, W, C)` to float32 `(height, width, C)`, ready for the model."""
    return normalise(fit_image(to_pixels(image, preprocess), preprocess), preprocess)


def to_pixels(image, preprocess: Preprocess):
    """Encoded bytes or uint8 `(H, W, 3 or 1)` to uint8 `(H, W, C)`."""
    if image.dtype == tf.string:
        return decode_image(image, preprocess.channels)
    return to_channels(image, preprocess.channels)


def fit_image(image, preprocess: Preprocess):
    """uint8 `(H, W, C)` brought to the model's size: float32 whole levels 0..255."""
    target = tf.constant(preprocess.image_size, tf.float32)
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    if preprocess.resize == "crop":
        cover = tf.round(target / preprocess.crop_fraction)
        scaled = tf.maximum(tf.round(size * tf.reduce_max(cover / size)), target)
    else:
        scaled = target
    offset = (scaled - target) // 2
    return resize(image, preprocess, scaled / size, offset)


def resize(image, preprocess: Preprocess, scale, offset=(0.0, 0.0)):
    """Scale `(H, W, C)`, antialiased, and cut `image_size` out at `offset` of the scaled image.

    One operation, so that what is cut away is never computed: a 100000 x 1 image costs no more
    than another. Levels 0..255 are rounded to whole ones, as Pillow does.
    """
    kernel = {"bilinear": "triangle", "bicubic": "keyscubic"}[preprocess.interpolation]
    image = tf.raw_ops.ScaleAndTranslate(
        images=image[None],
        size=preprocess.image_size,
        scale=scale,
        translation=-tf.convert_to_tensor(offset),
        kernel_type=kernel,
        antialias=True,
    )[0]
    image = tf.round(tf.clip_by_value(image, 0.0, 255.0))
    return tf.ensure_shape(image, (*preprocess.image_size, preprocess.channels))


def normalise(image, preprocess: Preprocess):
    """float32 levels 0..255 to (level / 255 - mean) / std."""
    mean, std = (tf.constant(values, tf.float32) for values in (preprocess.mean, preprocess.std))
    return (image / 255.0 - mean) / std
