"""Mixup and CutMix: two images of a batch become one, and so do their labels.

Each image's partner is the one before it in the batch: any batch size works, 1 and odd ones too.
"""

import tensorflow as tf


def mix_batch(images, labels, mixup: float, cutmix: float, seed, partners=None):
    """Mix a batch with itself.

    Args:
        images: float32 `(B, H, W, C)`.
        labels: float32 `(B, num_classes)`, each row sums to 1.
        mixup, cutmix: alphas of the Beta distributions; 0 leaves that way out. With both, one is
            drawn for each batch, equally often.
        seed: int `(2,)`.
        partners: (images, labels) of each image's partner, where the batch at hand is only a part
            of a larger one.

    Returns: images and labels of the same shapes; rows of the labels still sum to 1.
    """
    choice_seed, seed = tf.unstack(tf.random.split(seed, 2))
    batch = images, labels
    if partners is None:
        partners = tuple(tf.roll(part, 1, axis=0) for part in batch)
    ways = [(mixup_batch, mixup), (cutmix_batch, cutmix)]
    branches = [
        lambda way=way, alpha=alpha: way(batch, partners, alpha, seed)
        for way, alpha in ways
        if alpha
    ]
    if not branches:
        return images, labels
    if len(branches) == 1:
        return branches[0]()
    mixes = tf.random.stateless_uniform([], choice_seed) < 0.5
    return tf.cond(mixes, *branches)


def mixup_batch(batch, partners, alpha: float, seed):
    """Weighted mean of each image and its partner, weight from Beta(alpha, alpha), one a batch."""
    weight = beta(alpha, seed)
    return tuple(_blend(*pair, weight) for pair in zip(batch, partners, strict=True))


def cutmix_batch(batch, partners, alpha: float, seed):
    """Paste a box of the partner; labels are weighted by the area that is truly pasted."""
    (images, labels), (partner_images, partner_labels) = batch, partners
    weight_seed, place_seed = tf.unstack(tf.random.split(seed, 2))
    _, height, width, _ = images.shape
    side = tf.sqrt(1.0 - beta(alpha, weight_seed))
    centre = tf.random.stateless_uniform([2], place_seed)
    top, bottom = _span(centre[0], side, height)
    left, right = _span(centre[1], side, width)
    y, x = tf.range(height)[:, None], tf.range(width)[None]
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    images = tf.where(inside[None, :, :, None], partner_images, images)
    pasted = tf.cast((bottom - top) * (right - left), tf.float32) / (height * width)
    return images, _blend(labels, partner_labels, 1.0 - pasted)


def _span(centre, side, length: int):
    """Both ends of the box along one axis, cut off at the image's border."""
    half = side * length / 2.0
    middle = centre * length
    ends = tf.round(tf.stack([middle - half, middle + half]))
    return tf.unstack(tf.cast(tf.clip_by_value(ends, 0, length), tf.int32))


def _blend(values, partners, weight):
    return weight * values + (1.0 - weight) * partners


def beta(alpha: float, seed):
    """One draw from Beta(alpha, alpha), as the part of one Gamma draw in the sum of two."""
    draws = tf.random.stateless_gamma([2], seed, alpha)
    # Both may underflow to 0 at small alphas: then either end is as likely.
    return tf.where(tf.reduce_sum(draws) > 0, draws[0] / tf.reduce_sum(draws), 0.0)
