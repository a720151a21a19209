"""What a model costs, told from its configuration alone: nothing is built."""

from keras_vit.config import MixerConfig, ViTConfig


def count_params(config: ViTConfig | MixerConfig) -> int:
    """Number of weights of the model that `create_model(config)` builds."""
    rows, columns = config.grid_size
    num_patches = rows * columns
    patch_height, patch_width = config.patch_size
    if isinstance(config, MixerConfig):
        features = patch_height * patch_width * config.in_channels
        return _mixer_params(config, num_patches, features)
    stem, channels = _stem_params(config)
    features = patch_height * patch_width * channels
    return stem + _vit_params(config, num_patches, features)


def _dense(inputs: int, outputs: int, bias: bool = True) -> int:
    return (inputs + bias) * outputs


def _mlp(width: int, hidden: int) -> int:
    return _dense(width, hidden) + _dense(hidden, width)


def _vit_params(config: ViTConfig, num_patches: int, features: int) -> int:
    dim, norm = config.hidden_size, 2 * config.hidden_size
    block = 2 * norm + _dense(dim, 3 * dim, config.qkv_bias) + _dense(dim, dim)
    block += _mlp(dim, config.mlp_dim)
    block += 4 * (dim // config.num_heads) * config.qk_norm
    block += 2 * dim * (config.layer_scale is not None)
    total = _dense(features, dim, config.patch_bias) + config.num_prefix_tokens * dim
    if config.position_embedding == "learned":
        total += (num_patches + config.num_position_prefix) * dim
    total += norm * config.pre_norm + config.num_layers * block + norm
    if config.pooling == "attention":
        total += dim + norm + _dense(dim, 3 * dim) + _dense(dim, dim) + _mlp(dim, config.mlp_dim)
    pooled = 2 * dim if config.pooling == "token_mean" else dim
    if config.representation_size:
        total += _dense(pooled, config.representation_size)
    if config.num_classes:
        heads = 1 + config.distillation_token
        total += heads * _dense(config.representation_size or pooled, config.num_classes)
    return total


def _stem_params(config: ViTConfig) -> tuple[int, int]:
    """Weights of the ResNet stem and the channels of its feature map."""
    if config.stem_layers is None:
        return 0, config.in_channels
    width = int(64 * config.stem_width)
    total, channels = 7 * 7 * config.in_channels * width + 2 * width, width
    for stage, units in enumerate(config.stem_layers):
        inner = width * 2**stage
        outer = 4 * inner
        for _ in range(units):
            if channels != outer:
                total += channels * outer + 2 * outer
            total += channels * inner + 9 * inner * inner + inner * outer
            total += 2 * (inner + inner + outer)
            channels = outer
    return total, channels


def _mixer_params(config: MixerConfig, num_patches: int, features: int) -> int:
    dim, norm = config.hidden_size, 2 * config.hidden_size
    block = 2 * norm + _mlp(num_patches, config.tokens_mlp_dim) + _mlp(dim, config.channels_mlp_dim)
    total = _dense(features, dim) + config.num_layers * block + norm
    return total + _dense(dim, config.num_classes) * bool(config.num_classes)
