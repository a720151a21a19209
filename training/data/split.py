"""A stratified, seeded split into train and validation that never parts identical images."""

import numpy as np

from keras_vit.config import UserError


def stratified_split(
    labels: np.ndarray, groups: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the validation examples, both ascending.

    Of each class `fraction` of the examples is set aside: at least one where the class has two
    different ones, never all. Examples of one group stay together.

    Args:
        labels: int `(N,)` class indices.
        groups: int `(N,)`; equal numbers are identical images.
        fraction: in (0, 1).
        seed: the same seed gives the same split on every machine.

    Raises: UserError: `fraction` out of its range.
    """
    if not 0 < fraction < 1:
        raise UserError(f"validation_fraction={fraction} must be more than 0 and less than 1")
    held_out = []
    for label in np.unique(labels):
        groups_here, counts = np.unique(groups[labels == label], return_counts=True)
        order = np.random.default_rng([seed, int(label)]).permutation(len(groups_here))
        wanted = max(1, round(fraction * counts.sum()))
        taken = np.cumsum(counts[order]) - counts[order]  # before each group
        chosen = order[:-1][taken[:-1] < wanted]  # the last group stays for training
        held_out.append(groups_here[chosen])
    in_validation = np.isin(groups, np.concatenate(held_out))
    return np.flatnonzero(~in_validation), np.flatnonzero(in_validation)
