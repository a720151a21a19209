"""load_weights: a weight file into a model, exactly, or one line that says why not."""

import re
import warnings
from dataclasses import dataclass, field

import keras
import numpy as np

from keras_vit.config import UserError
from keras_vit.config_of import config_of
from keras_vit.weights.layout import WeightsWarning
from keras_vit.weights.opening import Weights, open_weights
from keras_vit.weights.planning import Misfit, Step, is_head, plan_variable, why_no_head


@dataclass(frozen=True)
class LoadReport:
    """What became of a weight file. `str(report)` says it in plain words.

    source, layout: of the file.
    loaded: variables of the model that got the file's values, resampled ones too.
    resampled: of these, what was changed and how, by variable.
    skipped: variables of the model that keep their own values, and why.
    unexpected: tensors of the file that the model has no place for, and why.
    notes: what else there is to know.
    """

    source: str
    layout: str
    loaded: tuple[str, ...]
    resampled: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    unexpected: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.source} ({self.layout}): {len(self.loaded)} variables loaded"]
        lines += [f"resampled: {name}: {how}" for name, how in self.resampled.items()]
        lines += by_reason("keeps its own values", self.skipped)
        lines += by_reason("left out of the file", self.unexpected)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def by_reason(title: str, table: dict[str, str]) -> list[str]:
    names_of = {}
    for name, reason in table.items():
        names_of.setdefault(reason, []).append(name)
    return [f"{title}: {few(names)}: {reason}" for reason, names in names_of.items()]


def few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def load_weights(model: keras.Model, weights, *, position_resize: str | None = None) -> LoadReport:
    """Fill a model from a weight file of any known layout.

    The layout is recognised by the content. Positions are resampled to the model's grid, the
    patch embedding to its patch size and channels. The head is kept if it fits; everything else
    must fit, or nothing is loaded.

    Args:
        model: what `create_model` builds, under any dtype policy.
        weights: path or URI (see `open_weights`), or what `open_weights` returned.
        position_resize: instead of the layout's own method: "bilinear_corners", "bilinear",
            "bicubic", "bicubic_antialias" or "bicubic_corners".

    Raises: UserError: not found, broken, or it does not fit: the first names that do not.
    Warns: WeightsWarning: values that are not finite, a head of zeros, another GELU or epsilon.
    """
    if not isinstance(weights, Weights):
        config = config_of(model)
        heads = getattr(config, "num_heads", None)
        weights = open_weights(weights, image_size=config.image_size, num_heads=heads, like=config)
    report = fill(model, weights, position_resize)
    for note in report.notes:
        warnings.warn(f"{weights.source}: {note}", WeightsWarning, stacklevel=2)
    return report


def fill(
    model: keras.Model, weights: Weights, position_resize: str | None = None, chosen=()
) -> LoadReport:
    """`load_weights` of an opened file, without warnings.

    Args:
        chosen: settings that the user gave, of which a difference from the file needs no note.
    """
    config = config_of(model)
    shapes = {variable.path: tuple(variable.shape) for variable in model.weights}
    steps, skipped, unexpected = plan(shapes, weights, config, position_resize)
    notes = differences(weights.config, config, chosen)
    not_finite = []
    for variable in model.weights:
        if variable.path not in steps:
            continue
        value = np.asarray(steps[variable.path].read(), np.float32)
        if not np.isfinite(value).all():
            not_finite.append(variable.path)
        if variable.path == "head/kernel" and not value.any():
            notes.append("the head is all zeros, so that every class scores alike")
        variable.assign(value)
    if not_finite:
        notes.append(f"not finite in the file (NaN or infinite): {few(not_finite)}")
    return LoadReport(
        source=weights.source,
        layout=weights.layout,
        loaded=tuple(steps),
        resampled={name: step.change for name, step in steps.items() if step.change},
        skipped=skipped,
        unexpected=unexpected,
        notes=tuple(notes),
    )


def plan(shapes: dict[str, tuple], weights: Weights, config, method: str | None):
    """(step of each variable, variables skipped, tensors left over), the latter with reasons.

    Raises: UserError: the file does not fit.
    """
    steps: dict[str, Step] = {}
    wrong = {"missing": [], "unexpected": [], "misshapen": []}
    skipped = {}
    for name, shape in shapes.items():
        reason = why_no_head(name, weights, config) if is_head(name) else None
        if reason:
            skipped[name] = reason
            continue
        try:
            steps[name] = plan_variable(
                name, shape, weights, config, method or weights.position_resize
            )
        except Misfit as misfit:
            wrong[misfit.kind].append(str(misfit))
    unexpected, wrong["unexpected"] = leftovers(set(shapes) - set(skipped), weights, config)
    if any(wrong.values()):
        raise UserError(misfit_line(wrong, weights, config))
    return steps, skipped, unexpected


def leftovers(filled: set[str], weights: Weights, config):
    """Tensors that no variable takes: ({those that may be left out: why}, [the others])."""
    taker = {their: rule.ours for rule in weights.rules for their in rule.theirs}
    unexpected, wrong = {}, []
    for tensor in weights.tensors.shapes:
        ours = taker.get(tensor)
        if ours in filled:
            continue
        if ours and is_head(ours):
            unexpected[tensor] = why_no_head(ours, weights, config) or "the model has no such head"
        elif re.fullmatch(weights.extras, tensor):
            unexpected[tensor] = "no part of this model"
        else:
            wrong.append(tensor)
    return unexpected, wrong


STRUCTURE = (
    "hidden_size", "num_layers", "mlp_dim", "num_heads", "class_token", "distillation_token",
    "num_register_tokens", "position_embedding", "layer_scale", "patch_bias", "qkv_bias",
    "qk_norm", "pre_norm", "norm_after_pooling", "pooling", "stem_layers",
)  # fmt: skip


def misfit_line(wrong: dict[str, list[str]], weights: Weights, config) -> str:
    parts = [f"{kind}: {few(names)}" for kind, names in wrong.items() if names]
    described = weights.config
    fields = ("hidden_size", "num_layers", "mlp_dim", "num_heads")
    sizes = [
        f"{name} {getattr(described, name)}, not {getattr(config, name, None)}"
        for name in fields
        if getattr(described, name, None) != getattr(config, name, None)
    ]
    hint = f" (the file's model has {', '.join(sizes)})" if sizes else ""
    advice = ""
    if any(getattr(described, name, None) != getattr(config, name, None) for name in STRUCTURE):
        advice = "; without a model's name its own architecture is built"
    return f"{weights.path}: does not fit the model{hint}: {'; '.join(parts)}{advice}"


def differences(file, model, chosen) -> list[str]:
    """What changes the numbers though every tensor fits."""
    return [
        f"{name} is {getattr(file, name)} in the file's model, {getattr(model, name)} in this one"
        for name in ("gelu", "norm_epsilon", "num_heads", "pooling", "norm_after_pooling")
        if name not in chosen and getattr(file, name, None) != getattr(model, name, None)
    ]
