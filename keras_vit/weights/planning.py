"""What each variable of a model gets from a weight file, decided from shapes before any reading."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keras_vit.weights.layout import Rule
from keras_vit.weights.opening import Weights
from keras_vit.weights.resample import resample_channels, resample_patches, resample_positions

POSITIONS = "patch_encoder/position_embedding"
KERNEL = "patch_encoder/projection/kernel"
TOKENS = ("class_token", "distillation_token", "register_tokens")
HEADS = ("pre_logits", "head", "head_distillation")


@dataclass(frozen=True)
class Step:
    """How a variable gets its value; `change` says what is not as in the file."""

    read: Callable[[], np.ndarray]
    change: str | None = None


class Misfit(Exception):
    """A variable that the file cannot fill. kind: "missing" or "misshapen"."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


def is_head(name: str) -> bool:
    return name.split("/")[0] in HEADS


def plan_variable(name: str, shape: tuple, weights: Weights, config, method: str) -> Step:
    """The step for a variable that the file is to fill. Raises: Misfit."""
    rule = find_rule(name, weights)
    found = shape_in_file(rule, weights)
    token = name.removeprefix("patch_encoder/")
    if name == POSITIONS and found[2] == shape[2]:
        return positions_step(rule, weights, config, method)
    # A stem's feature maps have no channels that could stand for one another.
    if name == KERNEL and found[1] == shape[1] and getattr(config, "stem_layers", None) is None:
        return kernel_step(rule, weights, config)
    if found != shape:
        raise Misfit("misshapen", f"{rule.theirs[0]} gives {found}, the model has {shape}")
    if token in TOKENS:
        return token_step(token, rule, weights, config)
    return Step(lambda: read(rule, weights))


def find_rule(name: str, weights: Weights) -> Rule:
    """The rule for a variable, all of whose tensors are there. Raises: Misfit."""
    rule = next((rule for rule in weights.rules if rule.ours == name), None)
    if rule is None:
        raise Misfit("missing", name)
    for their in rule.theirs:
        if their not in weights.tensors.shapes:
            raise Misfit("missing", their)
    return rule


def shape_in_file(rule: Rule, weights: Weights) -> tuple:
    try:
        return rule.shape(weights.tensors.shapes)
    except ValueError as error:
        raise Misfit("misshapen", f"{rule.theirs[0]}: {error}") from error


def read(rule: Rule, weights: Weights) -> np.ndarray:
    return rule.to_ours(*(weights.tensors.read(their) for their in rule.theirs))


def positions_step(rule: Rule, weights: Weights, config, method: str) -> Step:
    """Positions of the patches resampled to the model's grid, those of tokens before them kept."""
    file = weights.config
    old, new = file.grid_size, config.grid_size
    owned, wanted = file.num_position_prefix, config.num_position_prefix
    if old == new and owned == wanted:
        return Step(lambda: read(rule, weights))

    def resampled() -> np.ndarray:
        table = np.asarray(read(rule, weights), np.float32)
        tokens, patches = table[:, :owned], table[:, owned:]
        if old != new:
            patches = resample_positions(patches, old, new, method)
        zeros = np.zeros((1, max(0, wanted - owned), table.shape[2]), np.float32)
        return np.concatenate([tokens[:, :wanted], zeros, patches], axis=1)

    changes = []
    if old != new:
        changes.append(f"grid {old[0]}x{old[1]} to {new[0]}x{new[1]}, {method}")
    if owned > wanted:
        changes.append(f"{owned - wanted} of a token's own added to the token")
    if owned < wanted:
        changes.append(f"zeros for {wanted - owned} tokens that had none")
    return Step(resampled, "; ".join(changes))


def token_step(token: str, rule: Rule, weights: Weights, config) -> Step:
    """A prefix token; where the model keeps no position for it, its position goes into it."""
    file = weights.config
    sizes = (file.class_token, file.distillation_token, file.num_register_tokens)
    start = sum(sizes[: TOKENS.index(token)])
    end = start + sizes[TOKENS.index(token)]
    own = range(max(start, config.num_position_prefix), min(end, file.num_position_prefix))
    if not own or file.position_embedding != "learned":
        return Step(lambda: read(rule, weights))
    positions = find_rule(POSITIONS, weights)

    def added() -> np.ndarray:
        value = np.array(read(rule, weights), np.float32)
        value[:, own.start - start : own.stop - start] += read(positions, weights)[
            :, own.start : own.stop
        ]
        return value

    return Step(added, "with its position, of which the model keeps none")


def kernel_step(rule: Rule, weights: Weights, config) -> Step:
    """The patch embedding, for other patches or channels resampled."""
    file = weights.config
    old, new = file.patch_size, config.patch_size
    if old == new and file.in_channels == config.in_channels:
        return Step(lambda: read(rule, weights))

    def resampled() -> np.ndarray:
        kernel = np.asarray(read(rule, weights), np.float32)
        if file.in_channels != config.in_channels:
            kernel = resample_channels(kernel, old, config.in_channels)
        if old != new:
            kernel = resample_patches(kernel, old, new, weights.patch_resize)
        return kernel

    changes = []
    if file.in_channels != config.in_channels:
        changes.append(f"{file.in_channels} to {config.in_channels} channels")
    if old != new:
        method = weights.patch_resize
        changes.append(f"patch {old[0]}x{old[1]} to {new[0]}x{new[1]}, pseudo-inverse of {method}")
    return Step(resampled, "; ".join(changes))


def why_no_head(name: str, weights: Weights, config) -> str | None:
    """Why a head's variable, or the tensor for it, is not taken over; None: it is.

    Pre-logits stay with a backbone whatever becomes of the head; a head that was trained on other
    features is of no use, even if its shape fits.
    """
    file = weights.config
    for field in ("representation_size", "pooling"):
        old, new = getattr(file, field, None), getattr(config, field, None)
        if old != new:
            return f"the file's head is for {field}={old}, the model has {new}"
    if name.split("/")[0] == "pre_logits" or file.num_classes == config.num_classes:
        return None
    if not config.num_classes:
        return "the model has no head"
    if not file.num_classes:
        return "the file has no head"
    return f"the file has {file.num_classes} classes, the model {config.num_classes}"
