"""Random changes to one training image: crop, flip, colour, RandAugment, erasing.

Every draw comes from the example's own seed, by stateless operations: the same seed gives the same
image in any order, on any number of threads, and after a restart.
"""

import math
from dataclasses import dataclass

import tensorflow as tf

from keras_vit.config import UserError
from training.data.decode import decode_window, window_size
from training.data.preprocess import Preprocess, fit_image, normalise, resize, to_pixels
from training.data.randaugment import MAX_MAGNITUDE, blend, grayscale, randaugment

CROP_TRIES = 10


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """What happens to training images.

    crop_scale: (least, most) part of the image's area that a random crop keeps ("Inception crop",
        aspect between 3/4 and 4/3); None for the centre crop of evaluation.
    flip: mirror half of the images.
    randaugment_layers: RandAugment operations on each image.
    randaugment_magnitude: their strength, 0 to 30; 10 is strong.
    color_jitter: brightness, contrast and saturation change by up to this part, in [0, 1).
    erasing: probability that a random rectangle is set to noise (Zhong et al. 2020).
    mixup: alpha of Mixup's Beta distribution (Zhang et al. 2018), 0 for none.
    cutmix: alpha of CutMix's (Yun et al. 2019), 0 for none. With both, each batch gets one.

    Raises: UserError: a field is out of its range.
    """

    crop_scale: tuple[float, float] | None = None
    flip: bool = False
    randaugment_layers: int = 0
    randaugment_magnitude: float = 0.0
    color_jitter: float = 0.0
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self):
        low, high = self.crop_scale or (1.0, 1.0)
        checks = {
            "crop_scale": (0 < low <= high <= 1, "0 < least <= most <= 1"),
            "randaugment_layers": (self.randaugment_layers >= 0, "at least 0"),
            "randaugment_magnitude": (
                0 <= self.randaugment_magnitude <= MAX_MAGNITUDE,
                f"between 0 and {MAX_MAGNITUDE:g}",
            ),
            "color_jitter": (0 <= self.color_jitter < 1, "at least 0 and less than 1"),
            "erasing": (0 <= self.erasing <= 1, "a probability, 0 to 1"),
            "mixup": (self.mixup >= 0, "at least 0"),
            "cutmix": (self.cutmix >= 0, "at least 0"),
        }
        for name, (is_right, wanted) in checks.items():
            if not is_right:
                raise UserError(f"{name}={getattr(self, name)!r} must be {wanted}")


# light: crop and flip, as the original fine-tunes. medium: AugReg's medium1 (Steiner et al. 2022,
# section 3.4). strong: DeiT (Touvron et al. 2021, table 9).
AUGMENTATIONS = {
    "none": Augmentation(),
    "light": Augmentation(crop_scale=(0.6, 1.0), flip=True),
    "medium": Augmentation(
        crop_scale=(0.3, 1.0), flip=True, randaugment_layers=2, randaugment_magnitude=6, mixup=0.2
    ),
    "strong": Augmentation(
        crop_scale=(0.08, 1.0),
        flip=True,
        randaugment_layers=2,
        randaugment_magnitude=9,
        color_jitter=0.3,
        erasing=0.25,
        mixup=0.8,
        cutmix=1.0,
    ),
}


def augment_image(image, augmentation: Augmentation, preprocess: Preprocess, seed):
    """One training image.

    Args:
        image: encoded bytes (scalar `tf.string`) or uint8 `(H, W, C)`.
        augmentation: what may happen.
        preprocess: size, channels and normalisation of the result.
        seed: int `(2,)`.

    Returns: float32 `(height, width, C)`, normalised.
    """
    seeds = iter(tf.unstack(tf.random.split(seed, 5)))
    crop_seed, flip_seed, color_seed, randaugment_seed, erase_seed = seeds
    if augmentation.crop_scale is None:
        levels = fit_image(to_pixels(image, preprocess), preprocess)
    else:
        levels = _random_crop(image, augmentation.crop_scale, preprocess, crop_seed)
    if augmentation.flip:
        mirror = tf.random.stateless_uniform([], flip_seed) < 0.5
        levels = tf.where(mirror, tf.reverse(levels, [1]), levels)
    if augmentation.color_jitter:
        levels = jitter(levels, augmentation.color_jitter, color_seed)
    if augmentation.randaugment_layers:
        levels = randaugment(
            levels,
            augmentation.randaugment_layers,
            augmentation.randaugment_magnitude,
            randaugment_seed,
        )
    image = normalise(levels, preprocess)
    if augmentation.erasing:
        image = erase(image, augmentation.erasing, erase_seed)
    return image


def _random_crop(image, crop_scale, preprocess: Preprocess, seed):
    """A random window scaled to the model's size; of a JPEG only the window is decoded."""
    if image.dtype == tf.string:
        window = random_window(window_size(image), crop_scale, seed)
        image = decode_window(image, window, preprocess.channels)
    else:
        y, x, height, width = tf.unstack(random_window(tf.shape(image)[:2], crop_scale, seed))
        image = to_pixels(image[y : y + height, x : x + width], preprocess)
    size = tf.cast(tf.shape(image)[:2], tf.float32)
    return resize(image, preprocess, tf.constant(preprocess.image_size, tf.float32) / size)


def random_window(size, crop_scale, seed):
    """A window of random area and aspect (Szegedy et al. 2015; torchvision's ten tries).

    Args:
        size: int32 (height, width) of the image.
        crop_scale: (least, most) part of its area, drawn uniformly.
        seed: int `(2,)`.

    Returns: int32 (y, x, height, width). The aspect is log-uniform in 3/4..4/3. If none of ten
        draws fits, the largest centred window within these aspects.
    """
    height, width = (tf.cast(side, tf.float32) for side in tf.unstack(size))
    draws = tf.random.stateless_uniform([4, CROP_TRIES], seed)
    area = height * width * (crop_scale[0] + draws[0] * (crop_scale[1] - crop_scale[0]))
    aspect = tf.exp((2.0 * draws[1] - 1.0) * math.log(4 / 3))  # width / height
    heights, widths = tf.round(tf.sqrt(area / aspect)), tf.round(tf.sqrt(area * aspect))
    fits = (heights >= 1) & (widths >= 1) & (heights <= height) & (widths <= width)
    first = tf.argmax(fits)
    tries = tf.stack(
        [
            tf.floor(draws[2] * (height - heights + 1)),
            tf.floor(draws[3] * (width - widths + 1)),
            heights,
            widths,
        ]
    )[:, first]
    high = tf.minimum(height, tf.maximum(1.0, tf.round(width * 4 / 3)))
    wide = tf.minimum(width, tf.maximum(1.0, tf.round(height * 4 / 3)))
    centre = tf.stack([(height - high) // 2, (width - wide) // 2, high, wide])
    return tf.cast(tf.where(tf.reduce_any(fits), tries, centre), tf.int32)


def jitter(levels, strength: float, seed):
    """Brightness, contrast and saturation, each by a factor in 1 - strength .. 1 + strength."""
    factors = tf.random.stateless_uniform([3], seed, 1.0 - strength, 1.0 + strength)
    levels = blend(tf.zeros_like(levels), levels, factors[0])
    levels = blend(tf.reduce_mean(grayscale(levels)), levels, factors[1])
    return blend(grayscale(levels), levels, factors[2])


def erase(image, probability: float, seed):
    """Set a rectangle of 2 to 33 % of the area to normal noise, with some probability."""
    height, width, _ = image.shape
    place_seed, noise_seed = tf.unstack(tf.random.split(seed, 2))
    draw = tf.random.stateless_uniform([5], place_seed)
    area = height * width * (0.02 + draw[1] * 0.31)
    aspect = tf.exp((2.0 * draw[2] - 1.0) * math.log(1 / 0.3))
    high = tf.clip_by_value(tf.round(tf.sqrt(area / aspect)), 1, height)
    wide = tf.clip_by_value(tf.round(tf.sqrt(area * aspect)), 1, width)
    top = tf.floor(draw[3] * (height - high + 1))
    left = tf.floor(draw[4] * (width - wide + 1))
    y, x = tf.range(height, dtype=tf.float32)[:, None], tf.range(width, dtype=tf.float32)[None]
    inside = (y >= top) & (y < top + high) & (x >= left) & (x < left + wide)
    inside &= draw[0] < probability
    return tf.where(inside[..., None], tf.random.stateless_normal(image.shape, noise_seed), image)
