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
    stem = sum(k * k * i * o + 2 * o for _, k, i, o in stem_convolutions(config))
    features = patch_height * patch_width * _stem_channels(config)
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


def stem_convolutions(config: ViTConfig):
    """Each convolution of the ResNet stem: (rows, columns) of its output, kernel, inputs, outputs.

    The last one's outputs are the channels of the feature map. Each has a normalisation.
    """
    if config.stem_layers is None:
        return
    width = int(64 * config.stem_width)
    size = tuple(-(-side // 2) for side in config.image_size)
    yield size, 7, config.in_channels, width
    size, channels = _half(size), width  # a pooling
    for stage, units in enumerate(config.stem_layers):
        inner = width * 2**stage
        outer = 4 * inner
        for unit in range(units):
            yield size, 1, channels, inner
            if stage > 0 and unit == 0:
                size = _half(size)
            if unit == 0:
                yield size, 1, channels, outer  # beside the others
            yield size, 3, inner, inner
            yield size, 1, inner, outer
            channels = outer


def _half(size: tuple[int, int]) -> tuple[int, int]:
    return -(-size[0] // 2), -(-size[1] // 2)


def _stem_channels(config: ViTConfig) -> int:
    """Channels of what the patches are cut from."""
    return [config.in_channels, *(outputs for *_, outputs in stem_convolutions(config))][-1]


def _mixer_params(config: MixerConfig, num_patches: int, features: int) -> int:
    dim, norm = config.hidden_size, 2 * config.hidden_size
    block = 2 * norm + _mlp(num_patches, config.tokens_mlp_dim) + _mlp(dim, config.channels_mlp_dim)
    total = _dense(features, dim) + config.num_layers * block + norm
    return total + _dense(dim, config.num_classes) * bool(config.num_classes)


def count_flops(config: ViTConfig | MixerConfig, training: bool = False) -> int:
    """Floating-point operations of one image through the model, 2 for each multiply-add.

    Of matrix products and convolutions; all else is small beside them, and left out as is usual.
    `training` is also a forward pass, without the patches that `patch_dropout` leaves out.
    """
    rows, columns = config.grid_size
    num_patches = rows * columns
    patch_height, patch_width = config.patch_size
    if isinstance(config, MixerConfig):
        features = patch_height * patch_width * config.in_channels
        return 2 * _mixer_products(config, num_patches, features)
    stem = sum(h * w * k * k * i * o for (h, w), k, i, o in stem_convolutions(config))
    features = patch_height * patch_width * _stem_channels(config)
    kept = kept_patches(config) if training else num_patches
    embedding = num_patches * features * config.hidden_size
    return 2 * (stem + embedding + _vit_products(config, kept))


def kept_patches(config: ViTConfig) -> int:
    """How many of an image's patches `PatchDropout` keeps in training."""
    rows, columns = config.grid_size
    return max(1, int(rows * columns * (1.0 - config.patch_dropout)))


def _vit_products(config: ViTConfig, num_patches: int) -> int:
    """Multiply-adds after the embedding."""
    dim, tokens = config.hidden_size, config.num_prefix_tokens + num_patches
    block = tokens * (4 * dim * dim + 2 * dim * config.mlp_dim) + 2 * tokens * tokens * dim
    total = config.num_layers * block
    if config.pooling == "attention":
        total += 2 * dim * dim + 2 * dim * config.mlp_dim  # of its one query
        total += num_patches * (2 * dim * dim + 2 * dim)
    pooled = 2 * dim if config.pooling == "token_mean" else dim
    width = config.representation_size or pooled
    head = (1 + config.distillation_token) * width * config.num_classes
    if config.representation_size:
        head += pooled * width
    return total + head * (tokens if config.pooling == "none" else 1)


def _mixer_products(config: MixerConfig, num_patches: int, features: int) -> int:
    dim = config.hidden_size
    block = 2 * num_patches * dim * (config.tokens_mlp_dim + config.channels_mlp_dim)
    embedding = num_patches * features * dim
    return embedding + config.num_layers * block + dim * config.num_classes
