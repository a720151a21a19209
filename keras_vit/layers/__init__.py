"""The layers, one idea a file. Each takes plain keywords and works alone in any Keras model."""

from keras_vit.layers.attention import MultiHeadSelfAttention
from keras_vit.layers.block import TransformerBlock
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mixer_block import MixerBlock
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_dropout import PatchDropout
from keras_vit.layers.patch_encoder import PatchEncoder, sincos_2d
from keras_vit.layers.patches import Patches
from keras_vit.layers.pooling import (
    AttentionPooling,
    MeanPooling,
    TokenMeanPooling,
    TokenPooling,
)
from keras_vit.layers.resnet_stem import BottleneckUnit, ResNetRoot, StdConv2D

__all__ = [
    "MLP",
    "AttentionPooling",
    "BottleneckUnit",
    "DropPath",
    "LayerScale",
    "MeanPooling",
    "MixerBlock",
    "MultiHeadSelfAttention",
    "PatchDropout",
    "PatchEncoder",
    "Patches",
    "ResNetRoot",
    "StdConv2D",
    "TokenMeanPooling",
    "TokenPooling",
    "TransformerBlock",
    "sincos_2d",
]
