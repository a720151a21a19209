"""Pretrained weights in and out: google (.npz), timm, huggingface, torchvision and Keras.

Reading order: `opening.py` (what a file is), one layout, `timm.py`, then `loading.py`.
"""

from keras_vit.weights.layout import WeightsWarning
from keras_vit.weights.loading import LoadReport, load_weights
from keras_vit.weights.opening import LAYOUTS, Weights, open_weights
from keras_vit.weights.resample import METHODS
from keras_vit.weights.saving import FORMATS, save_weights

__all__ = [
    "FORMATS",
    "LAYOUTS",
    "METHODS",
    "LoadReport",
    "Weights",
    "WeightsWarning",
    "load_weights",
    "open_weights",
    "save_weights",
]
