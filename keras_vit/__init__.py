"""Vision Transformers for Keras 3.

Reading order: `keras_vit/model.py`, then one layer, `keras_vit/layers/block.py`.
"""

from keras_vit.at_size import at_size
from keras_vit.config import MixerConfig, UserError, ViTConfig
from keras_vit.config_of import config_of
from keras_vit.cost import count_flops, count_params
from keras_vit.create import create_model, from_weights
from keras_vit.model import intermediates
from keras_vit.variants import find_config, list_models
from keras_vit.weights import LoadReport, load_weights, open_weights, save_weights

__version__ = "0.1.0"

__all__ = [
    "LoadReport",
    "MixerConfig",
    "UserError",
    "ViTConfig",
    "at_size",
    "count_flops",
    "count_params",
    "create_model",
    "config_of",
    "find_config",
    "from_weights",
    "intermediates",
    "list_models",
    "load_weights",
    "open_weights",
    "save_weights",
]
