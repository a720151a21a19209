"""create_model and from_weights: a name, a weight file, or both, to a model."""

import logging
import warnings
from pathlib import Path

import keras

from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.model import build_model, model_name
from keras_vit.variants import find_config, override
from keras_vit.weights import Weights, WeightsWarning, open_weights
from keras_vit.weights.loading import by_reason, fill

logger = logging.getLogger(__name__)
FROM_FILE = ("gelu", "norm_epsilon")  # what no tensor shows, but changes every number


def create_model(
    model: str | ViTConfig | MixerConfig | None = None,
    *,
    weights: str | Path | Weights | None = None,
    dtype=None,
    name: str | None = None,
    **overrides,
) -> keras.Model:
    """Build a Vision Transformer, a hybrid or an MLP-Mixer.

    Args:
        model: a name ("vit_b16", "ViT-B/16", any patch size: "vit_ti4"; see `list_models`), or a
            `ViTConfig` or `MixerConfig`; None: the architecture that `weights` describes.
        weights: path or URI of a weight file, its layout recognised by the content (see
            `load_weights`), or what `open_weights` returned. None: fresh weights. With a name, GELU
            and LayerNorm epsilon are the file's unless they are given.
        dtype: Keras dtype policy of every layer ("mixed_bfloat16"...), None for the global one.
            Logits are float32 under any policy.
        name: name of the Keras model; by default the name given.
        **overrides: any field of the configuration: `image_size` (int or (height, width)),
            `num_classes` (0 or None: no head), `dropout`, `drop_path`...

    Returns:
        A functional `keras.Model` from images `(B, H, W, C)` to logits `(B, num_classes)`;
        without a head to features `(B, D)`, without pooling to one for each token `(B, T, ...)`.
        Every layer can be reached by name: "patches", "patch_encoder", "block_00"...,
        "encoder_norm", "pool", "pre_logits", "head"; `intermediates` reaches into the blocks.

    Raises:
        UserError (a ValueError): an unknown name or setting, one out of range, or weights that are
        broken or do not fit.
    Warns: WeightsWarning: as `load_weights`, but not of settings that were given; and of a named
        model whose head the file does not fill. The whole report is logged as information.
    """
    if model is None and weights is None:
        raise UserError(
            "model=None must be a name, like 'vit_b16', or a configuration, or bring weights"
        )
    if weights is None:
        return build_model(model, dtype=dtype, name=name, **overrides)
    if not isinstance(weights, Weights):
        like = find_config(model, **overrides) if isinstance(model, str) else model
        known = {"image_size": getattr(like, "image_size", None)}
        known["num_heads"] = getattr(like, "num_heads", None)
        known |= {key: overrides[key] for key in known if key in overrides}
        weights = open_weights(weights, like=like, **known)
    if name is None and isinstance(model, str):
        name = model_name(model)
    built = build_model(config_for(model, weights, **overrides), dtype=dtype, name=name)
    report = fill(built, weights, chosen=overrides)
    logger.info("%s", report)
    notes = list(report.notes)
    if isinstance(model, str) and "num_classes" not in overrides:  # else the user knows
        notes += by_reason("keeps its own values", report.skipped)
    for note in notes:
        warnings.warn(f"{weights.source}: {note}", WeightsWarning, stacklevel=2)
    return built


def config_for(model, weights: Weights, **overrides) -> ViTConfig | MixerConfig:
    """The configuration that `create_model` builds for weights that are opened already."""
    if model is None:
        return override(weights.config, overrides)
    if not isinstance(model, str):
        return override(model, overrides)
    kept = {key: getattr(weights.config, key) for key in FROM_FILE if key not in overrides}
    return override(find_config(model, **overrides), kept)


def from_weights(weights, image_size=None, num_classes=None, **settings) -> keras.Model:
    """Build the model that a weight file itself describes, with its weights.

    Args:
        weights: path or URI, as in `create_model`.
        image_size: int or (height, width); None: the file's.
        num_classes: of the head; None: the file's head, 0: none.
        **settings: `dtype`, `name` and overrides, as in `create_model`.

    Raises: UserError: as `create_model`.
    """
    given = {"image_size": image_size, "num_classes": num_classes}
    settings |= {key: value for key, value in given.items() if value is not None}
    return create_model(None, weights=weights, **settings)
