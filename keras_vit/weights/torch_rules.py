"""Rules that timm, Hugging Face and torchvision share: how PyTorch lays out what Keras lays out."""

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.weights.layout import Rule, same


def linear(ours: str, theirs: str, bias: bool = True) -> list[Rule]:
    """`nn.Linear` (out, in) and `Dense` (in, out)."""
    kernel = Rule(f"{ours}/kernel", (f"{theirs}.weight",), np.transpose, lambda kernel: (kernel.T,))
    return [kernel, same(f"{ours}/bias", f"{theirs}.bias")] if bias else [kernel]


def norm(ours: str, theirs: str) -> list[Rule]:
    return [same(f"{ours}/gamma", f"{theirs}.weight"), same(f"{ours}/beta", f"{theirs}.bias")]


def patch_embedding(config: ViTConfig, theirs: str) -> list[Rule]:
    """`nn.Conv2d` (D, C, P, P) and our matrix (P*P*C, D)."""

    def to_ours(weight):
        return weight.transpose(2, 3, 1, 0).reshape(-1, weight.shape[0])

    def to_theirs(kernel):
        kernel = kernel.reshape(*config.patch_size, config.in_channels, config.hidden_size)
        return (kernel.transpose(3, 2, 0, 1),)

    ours = "patch_encoder/projection"
    found = [Rule(f"{ours}/kernel", (f"{theirs}.weight",), to_ours, to_theirs)]
    return found + ([same(f"{ours}/bias", f"{theirs}.bias")] if config.patch_bias else [])


def fused_linears(ours: str, theirs: list[str], bias: bool = True) -> list[Rule]:
    """Several `nn.Linear` of one input as one `Dense`: query, key and value apart."""

    def to_ours(*weights):
        return np.concatenate([weight.T for weight in weights], axis=1)

    def to_theirs(kernel):
        return tuple(part.T for part in np.split(kernel, len(theirs), axis=1))

    found = [Rule(f"{ours}/kernel", tuple(f"{n}.weight" for n in theirs), to_ours, to_theirs)]
    if bias:
        names = tuple(f"{name}.bias" for name in theirs)
        split = len(theirs)
        found.append(
            Rule(f"{ours}/bias", names, lambda *b: np.concatenate(b), lambda b: np.split(b, split))
        )
    return found
