"""Position and patch embeddings at another size, by every published method.

A method is a pair of matrices, one for rows and one for columns: all of them are separable. They
are made in float64; what is resampled is float32.
"""

import numpy as np

from keras_vit.config import UserError


def _linear(x):
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(a: float):
    """Keys's cubic kernel."""

    def kernel(x):
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


# method: (kernel, its radius, corners aligned, antialiased)
METHODS = {
    "bilinear_corners": (_linear, 1, True, False),  # vit_jax checkpoint.py (scipy zoom, order 1)
    "bilinear": (_linear, 1, False, False),  # FlexiViT
    "bicubic": (_cubic(-0.75), 2, False, False),  # Hugging Face, DeiT: torch, no antialias
    "bicubic_antialias": (_cubic(-0.5), 2, False, True),  # timm: torch, antialias=True
    "bicubic_corners": (_cubic(-0.75), 2, True, False),  # torchvision interpolate_embeddings
}


def resize_matrix(old: int, new: int, method: str) -> np.ndarray:
    """Float64 `(new, old)` with which a column of `old` values becomes one of `new`.

    Raises: UserError: an unknown method.
    """
    if method not in METHODS:
        raise UserError(f"position_resize={method!r} must be one of {', '.join(METHODS)}")
    kernel, radius, corners, antialias = METHODS[method]
    if corners:
        places = np.arange(new) * (old - 1) / max(1, new - 1)
    else:
        places = (np.arange(new) + 0.5) * old / new - 0.5
    if antialias:  # a wider kernel that stops at the border (Pillow, torch)
        scale = max(1.0, old / new)
        weights = kernel((places[:, None] - np.arange(old)) / scale)
        return weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((new, old))
    first = np.floor(places).astype(int)
    for offset in range(1 - radius, radius + 1):  # the border is repeated outwards
        source = first + offset
        np.add.at(
            matrix,
            (np.arange(new), np.clip(source, 0, old - 1)),
            kernel(places - source),
        )
    return matrix


def resample_positions(table, old_grid, new_grid, method: str) -> np.ndarray:
    """Position embeddings of the patches, `(1, N, D)`, from one grid to another `(1, N', D)`.

    Args:
        table: float array, rows first.
        old_grid, new_grid: (rows, columns).
        method: a key of `METHODS`.
    """
    rows, columns = (
        resize_matrix(old, new, method) for old, new in zip(old_grid, new_grid, strict=True)
    )
    grid = np.asarray(table, np.float64).reshape(*old_grid, -1)  # (rows, columns, D)
    grid = np.einsum("ir,jc,rcd->ijd", rows, columns, grid, optimize=True)
    return grid.reshape(1, -1, grid.shape[-1]).astype(np.float32)


def resample_patches(kernel, old_patch, new_patch, method: str) -> np.ndarray:
    """Patch embedding `(P*P*C, D)` for another patch size `(P'*P'*C, D)`.

    The pseudo-inverse of the resize (Beyer et al. 2023, FlexiViT, equation 5): the new kernel
    gives an enlarged patch the embedding that the old one gives the patch itself.
    """
    rows, columns = (
        np.linalg.pinv(resize_matrix(old, new, method).T)
        for old, new in zip(old_patch, new_patch, strict=True)
    )
    kernel = np.asarray(kernel, np.float64)
    patches = kernel.reshape(*old_patch, -1, kernel.shape[-1])  # (P, P, C, D)
    patches = np.einsum("ir,jc,rckd->ijkd", rows, columns, patches, optimize=True)
    return patches.reshape(-1, kernel.shape[-1]).astype(np.float32)


def resample_channels(kernel, patch_size, channels: int) -> np.ndarray:
    """Patch embedding for another number of channels (timm's rule).

    One channel gets the sum over the old ones; more repeat the old ones in turn, scaled by
    old / new. So a gray image embeds as its copy in every channel did.
    """
    kernel = np.asarray(kernel, np.float32)
    pixels = kernel.reshape(*patch_size, -1, kernel.shape[-1])  # (P, P, C, D)
    old = pixels.shape[2]
    if channels == 1:
        pixels = pixels.sum(axis=2, keepdims=True)
    else:
        pixels = pixels[:, :, np.arange(channels) % old] * np.float32(old / channels)
    return pixels.reshape(-1, kernel.shape[-1])
