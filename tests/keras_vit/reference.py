"""The equations of the papers in plain NumPy and float64: no line of Keras computes here.

Layers are only read for their weights. Not a test file itself.
"""

import numpy as np
from scipy.special import erf


def array(weight):
    return np.asarray(weight, "float64")


def layer_norm(x, norm):
    return normalise(x, -1, norm.epsilon) * array(norm.gamma) + array(norm.beta)


def normalise(x, axis, epsilon):
    mean = x.mean(axis, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def dense(x, layer):
    y = x @ array(layer.kernel)
    return y + array(layer.bias) if layer.use_bias else y


def gelu(x, form):
    if form == "erf":
        return x * 0.5 * (1 + erf(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mlp(x, layer):
    return dense(gelu(dense(x, layer.expand), layer.gelu), layer.contract)


def attention(x, layer):
    """Equations 5 to 8, head by head: returns (output, weights `(B, K, T, T)`)."""
    size = x.shape[-1] // layer.num_heads
    q, k, v = np.split(dense(x, layer.qkv), 3, axis=-1)  # (5)
    outputs, weights = [], []
    for head in range(layer.num_heads):
        qh, kh, vh = (m[..., head * size : (head + 1) * size] for m in (q, k, v))
        if layer.qk_norm:
            qh, kh = layer_norm(qh, layer.query_norm), layer_norm(kh, layer.key_norm)
        a = softmax(qh @ kh.swapaxes(-1, -2) / np.sqrt(size))  # (6)
        weights.append(a)
        outputs.append(a @ vh)  # (7)
    concatenated = np.concatenate(outputs, axis=-1)
    return dense(concatenated, layer.output_projection), np.stack(weights, axis=1)  # (8)


def transformer_block(x, block):
    """Equations 2 and 3: returns every step by name, as `TransformerBlock.steps`."""
    a, weights = attention(layer_norm(x, block.attention_norm), block.attention)
    if block.layer_scale is not None:
        a = a * array(block.attention_scale.gamma)
    after = x + a  # (2)
    m = mlp(layer_norm(after, block.mlp_norm), block.mlp)
    if block.layer_scale is not None:
        m = m * array(block.mlp_scale.gamma)
    return {
        "attention_scores": weights,
        "attention": a,
        "after_attention": after,
        "mlp": m,
        "output": after + m,  # (3)
    }


def mixer_block(x, block):
    """Equation 1 of Tolstikhin et al. 2021."""
    x = x + mlp(layer_norm(x, block.token_norm).swapaxes(1, 2), block.token_mixing).swapaxes(1, 2)
    return x + mlp(layer_norm(x, block.channel_norm), block.channel_mixing)


def patches(images, size):
    """Patch by patch, `(B, N, P*P*C)`."""
    height, width = size
    return np.stack(
        [
            images[:, top : top + height, left : left + width].reshape(len(images), -1)
            for top in range(0, images.shape[1], height)
            for left in range(0, images.shape[2], width)
        ],
        axis=1,
    ).astype("float64")


def sincos_2d(rows, columns, size):
    """Position by position, from the formula of Beyer et al. 2022."""
    quarter = size // 4
    table = np.zeros((rows * columns, size))
    for row in range(rows):
        for column in range(columns):
            for i in range(quarter):
                angle = 10000 ** -(i / (quarter - 1))
                table[row * columns + column, i::quarter] = [
                    np.sin(column * angle),
                    np.cos(column * angle),
                    np.sin(row * angle),
                    np.cos(row * angle),
                ]
    return table


def patch_encoder(x, layer):
    """Equation 1."""
    x = dense(x, layer.projection)
    prefix = [np.broadcast_to(array(t), (len(x), *t.shape[1:])) for t in layer.prefix]
    if layer.position_embedding == "sincos2d":
        x = x + sincos_2d(*layer.grid_size, layer.hidden_size)
    sequence = np.concatenate([*prefix, x], axis=1)
    if layer.position_embedding == "learned":
        positions = array(layer.positions)[0]
        num_patches = x.shape[1]
        owned = len(positions) - num_patches
        sequence[:, :owned] += positions[:owned]
        sequence[:, -num_patches:] += positions[owned:]
    return sequence


def attention_pooling(x, layer):
    """The MAP head of Zhai et al. 2022: a learned query, then an MLP with a residual."""
    x = x[:, layer.num_prefix_tokens :]
    probe = np.broadcast_to(array(layer.probe), (len(x), 1, x.shape[-1]))
    dim, heads = x.shape[-1], layer.num_heads
    kernel, bias = array(layer.key_value.kernel), array(layer.key_value.bias)

    def project(inputs, kernel, bias):  # (B, K, T, D/K)
        projected = inputs @ kernel + bias
        return projected.reshape(*projected.shape[:2], heads, dim // heads).swapaxes(1, 2)

    q = project(probe, array(layer.query.kernel), array(layer.query.bias))
    k = project(x, kernel[:, :dim], bias[:dim])
    v = project(x, kernel[:, dim:], bias[dim:])
    a = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v  # (B, K, 1, D/K)
    out = layer.output_projection
    y = a.swapaxes(1, 2).reshape(len(x), 1, dim) @ array(out.kernel) + array(out.bias)
    return (y + mlp(layer_norm(y, layer.norm), layer.mlp))[:, 0]


def std_conv(x, layer):
    """Qiao et al. 2019: standardised kernel; TensorFlow's "SAME" padding."""
    kernel = array(layer.kernel)
    mean = kernel.mean((0, 1, 2))
    kernel = (kernel - mean) / (np.sqrt(((kernel - mean) ** 2).mean((0, 1, 2))) + 1e-5)
    return windows(x, kernel.shape[0], layer.strides[0], 0.0, lambda w: np.tensordot(w, kernel, 3))


def max_pool(x, size, stride):
    return windows(x, size, stride, -np.inf, lambda w: w.max((1, 2)))


def windows(x, size, stride, fill, function):
    """Apply `function` to every `(B, size, size, C)` window of a "SAME" padded map."""
    outputs = [-(-side // stride) for side in x.shape[1:3]]
    total = [
        max(0, (out - 1) * stride + size - side)
        for out, side in zip(outputs, x.shape[1:3], strict=True)
    ]
    pads = [(0, 0), *((pad // 2, pad - pad // 2) for pad in total), (0, 0)]
    x = np.pad(x, pads, constant_values=fill)
    rows = [
        np.stack(
            [
                function(x[:, r * stride : r * stride + size, c * stride : c * stride + size])
                for c in range(outputs[1])
            ],
            axis=1,
        )
        for r in range(outputs[0])
    ]
    return np.stack(rows, axis=1)


def group_norm(x, layer):
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height, width, 32, channels // 32)
    y = normalise(grouped, (1, 2, 4), 1e-6).reshape(x.shape)
    return y * array(layer.gamma) + array(layer.beta)


def resnet_root(x, layer):
    return max_pool(np.maximum(group_norm(std_conv(x, layer.conv_root), layer.gn_root), 0), 3, 2)


def bottleneck_unit(x, layer):
    residual = group_norm(std_conv(x, layer.conv_proj), layer.gn_proj) if layer.project else x
    y = np.maximum(group_norm(std_conv(x, layer.conv1), layer.gn1), 0)
    y = np.maximum(group_norm(std_conv(y, layer.conv2), layer.gn2), 0)
    return np.maximum(residual + group_norm(std_conv(y, layer.conv3), layer.gn3), 0)


def last(values):
    return list(values.values())[-1]


def resnet_stem(model, config, x):
    """The output of each layer of the stem by name."""
    values = {"stem_root": resnet_root(x, model.get_layer("stem_root"))}
    for stage, units in enumerate(config.stem_layers):
        for unit in range(units):
            name = f"stem_block{stage + 1}_unit{unit + 1}"
            x = last(values)
            values[name] = bottleneck_unit(x, model.get_layer(name))
    return values


def encoder(model, config, x):
    """From patches `(B, N, P*P*C)` to every step by name, and the tokens `(B, T, D)`."""
    layer = model.get_layer
    values = {"patches": x, "patch_embedding": dense(x, layer("patch_encoder").projection)}
    x = values["patch_encoder"] = patch_encoder(x, layer("patch_encoder"))
    if config.pre_norm:
        x = values["pre_norm"] = layer_norm(x, layer("pre_norm"))
    for index in range(config.num_layers):
        name = f"block_{index:02d}"
        steps = transformer_block(x, layer(name))
        x = values[name] = steps.pop("output")
        values |= {f"{name}/{step}": value for step, value in steps.items()}
    if not config.norm_after_pooling:
        x = values["encoder_norm"] = layer_norm(x, layer("encoder_norm"))
    return values, x


def pool(model, config, x):
    if config.pooling == "token":
        return x[:, 0]  # (4)
    if config.pooling == "mean":
        return x[:, config.num_prefix_tokens :].mean(1)
    if config.pooling == "token_mean":
        mean = x[:, config.num_prefix_tokens :].mean(1)
        return np.concatenate([x[:, 0], mean], axis=1)
    if config.pooling == "attention":
        return attention_pooling(x, model.get_layer("pool"))
    return x


def head(model, config, x, name="head"):
    if config.norm_after_pooling:
        x = layer_norm(x, model.get_layer("encoder_norm"))
    if config.representation_size is not None:
        x = np.tanh(dense(x, model.get_layer("pre_logits")))
    return dense(x, model.get_layer(name)) if config.num_classes else x


def vision_transformer(model, config, images):
    """The whole model of a `ViTConfig`, weights from `model`: every intermediate by name."""
    x, values = array(images), {}
    if config.stem_layers is not None:
        values = resnet_stem(model, config, x)
        x = last(values)
    steps, x = encoder(model, config, patches(x, config.patch_size))
    values |= steps
    if config.distillation_token:
        first, second = (
            head(model, config, x[:, 0]),
            head(model, config, x[:, 1], "head_distillation"),
        )
        values["output"] = (first + second) / 2
    else:
        values["pool"] = pool(model, config, x)
        values["output"] = head(model, config, values["pool"])
    return values


def mlp_mixer(model, config, images):
    """The logits of a `MixerConfig`."""
    x = dense(
        patches(array(images), config.patch_size), model.get_layer("patch_encoder").projection
    )
    for index in range(config.num_layers):
        x = mixer_block(x, model.get_layer(f"block_{index:02d}"))
    x = layer_norm(x, model.get_layer("encoder_norm")).mean(1)
    return dense(x, model.get_layer("head")) if config.num_classes else x
