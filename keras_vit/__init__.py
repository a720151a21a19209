"""Vision Transformers for Keras 3.

Reading order: `keras_vit/model.py`, then one layer, `keras_vit/layers/block.py`.
"""

from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.cost import count_params
from keras_vit.model import create_model, intermediates
from keras_vit.variants import find_config, list_models

__version__ = "0.1.0"

__all__ = [
    "MixerConfig",
    "UserError",
    "ViTConfig",
    "count_params",
    "create_model",
    "find_config",
    "intermediates",
    "list_models",
]
