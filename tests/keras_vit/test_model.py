"""create_model and intermediates: the paper's equations, saving, training, precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import keras_vit
from keras_vit import MixerConfig, UserError, ViTConfig, create_model, intermediates
from tests.check_layer import randomise
from tests.keras_vit import reference

TINY = dict(
    hidden_size=24,
    mlp_dim=32,
    num_heads=3,
    num_layers=2,
    patch_size=(4, 2),
    image_size=(8, 12),
    num_classes=5,
)
STEM = dict(TINY, image_size=(32, 48), stem_width=0.5)
MIXER = dict(
    hidden_size=24,
    num_layers=2,
    tokens_mlp_dim=7,
    channels_mlp_dim=20,
    patch_size=(4, 2),
    image_size=(8, 12),
    num_classes=5,
)
CONFIGS = {
    "original": ViTConfig(**TINY),
    "gap": ViTConfig(**TINY, pooling="mean", class_token=False),
    "token_mean": ViTConfig(**TINY, pooling="token_mean", num_register_tokens=2),
    "erf_epsilon": ViTConfig(**TINY, gelu="erf", norm_epsilon=0.3),
    "registers": ViTConfig(**TINY, num_register_tokens=3, pooling="mean"),
    "registers_class_positions": ViTConfig(
        **TINY, num_register_tokens=3, position_tokens="class", layer_scale=0.5
    ),
    "registers_patch_positions": ViTConfig(
        **TINY, num_register_tokens=2, position_tokens="patches", qk_norm=True, gelu="erf"
    ),
    "distillation": ViTConfig(**TINY, distillation_token=True, num_register_tokens=1),
    "distillation_late_norm": ViTConfig(**TINY, distillation_token=True, norm_after_pooling=True),
    "distillation_features": ViTConfig(**{**TINY, "num_classes": 0}, distillation_token=True),
    "map": ViTConfig(**TINY, pooling="attention"),
    "map_late_norm_no_class": ViTConfig(
        **TINY, pooling="attention", class_token=False, norm_after_pooling=True
    ),
    "sincos": ViTConfig(**TINY, position_embedding="sincos2d", num_register_tokens=1),
    "no_positions": ViTConfig(**TINY, position_embedding="none"),
    "clip": ViTConfig(**TINY, pre_norm=True, qkv_bias=False, patch_bias=False),
    "prelogits": ViTConfig(**TINY, representation_size=10),
    "fc_norm": ViTConfig(**TINY, pooling="mean", norm_after_pooling=True),
    "unpooled": ViTConfig(**TINY, pooling="none", representation_size=10),
    "no_head": ViTConfig(**{**TINY, "num_classes": None}),
    "no_head_prelogits": ViTConfig(**{**TINY, "num_classes": 0}, representation_size=10),
    "tokens": ViTConfig(**{**TINY, "num_classes": 0}, pooling="none"),
    "gray": ViTConfig(**TINY, in_channels=1),
    "five_channels": ViTConfig(**TINY, in_channels=5),
    "stem": ViTConfig(**STEM, stem_layers=()),
    "hybrid": ViTConfig(
        **{**STEM, "patch_size": 1, "image_size": (40, 56)}, stem_layers=(1, 2), in_channels=1
    ),
    "rates": ViTConfig(
        **TINY, dropout=0.1, attention_dropout=0.1, drop_path=0.2, patch_dropout=0.5
    ),
    "mixer": MixerConfig(**MIXER),
    "mixer_erf": MixerConfig(**MIXER, gelu="erf", norm_epsilon=0.3, drop_path=0.2),
    "mixer_features": MixerConfig(**{**MIXER, "num_classes": 0}, in_channels=1),
}
ALL = pytest.mark.parametrize("name", CONFIGS)
VITS = pytest.mark.parametrize(
    "name", [name for name, config in CONFIGS.items() if isinstance(config, ViTConfig)]
)


@pytest.fixture(scope="module")
def models():
    """Each model once, with every weight moved off its initial value."""
    keras.utils.set_random_seed(0)
    return {name: randomise(create_model(config)) for name, config in CONFIGS.items()}


def images_for(config, batch=3):
    shape = (batch, *config.image_size, config.in_channels)
    return np.random.default_rng(1).uniform(-1, 1, shape).astype("float32")


@VITS
def test_every_value_is_that_of_the_equations(models, name):
    config, model = CONFIGS[name], models[name]
    images = images_for(config)
    values = {k: v.numpy() for k, v in intermediates(model)(images).items()}
    expected = reference.vision_transformer(model, config, images)
    output = expected.pop("output")
    np.testing.assert_allclose(model(images), output, rtol=1e-5, atol=1e-5)
    if config.pooling == "none":
        del expected["pool"]
    for key, value in expected.items():
        np.testing.assert_allclose(values[key], value, rtol=1e-5, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", ["mixer", "mixer_erf", "mixer_features"])
def test_mixer_is_that_of_its_equations(models, name):
    config, model = CONFIGS[name], models[name]
    images = images_for(config)
    expected = reference.mlp_mixer(model, config, images)
    np.testing.assert_allclose(model(images), expected, rtol=1e-5, atol=1e-5)


@ALL
def test_shapes_and_names(models, name):
    config, model = CONFIGS[name], models[name]
    assert model.input_shape == (None, *config.image_size, config.in_channels)
    assert model.inputs[0].name == "image"
    rows, columns = config.grid_size
    tokens = rows * columns + getattr(config, "num_prefix_tokens", 0)
    width = getattr(config, "representation_size", None) or config.hidden_size
    pooled = () if getattr(config, "pooling", "mean") != "none" else (tokens,)
    assert model.output_shape == (None, *pooled, config.num_classes or width)
    assert model(images_for(config)).shape == (3, *model.output_shape[1:])
    names = {layer.name for layer in model.layers}
    assert {"image", "patches", "patch_encoder", "block_00", "block_01", "encoder_norm"} <= names
    assert ("head" in names) == bool(config.num_classes)
    assert ("pool" in names) == (pooled == ())
    assert ("pre_logits" in names) == bool(getattr(config, "representation_size", None))


@pytest.mark.parametrize(
    "name",
    [
        "original",
        "gap",
        "registers_patch_positions",
        "registers_class_positions",
        "distillation_late_norm",
        "map",
        "sincos",
        "clip",
        "prelogits",
        "no_head",
        "unpooled",
        "hybrid",
        "rates",
        "mixer_erf",
    ],
)
def test_saved_and_loaded_it_is_the_same_model(models, name, tmp_path):
    model, images = models[name], images_for(CONFIGS[name])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", safe_mode=True)
    np.testing.assert_array_equal(model(images), loaded(images))
    assert loaded.to_json() == model.to_json()


# Softmax does not see what adds the same to all keys, nor LayerNorm what adds the same to all
# channels of a token.
NO_GRADIENT = ("attention/key/bias", "key_norm/beta", "token_mixing/contract/bias")


@ALL
def test_gradients_reach_every_weight(models, name):
    model, config = models[name], CONFIGS[name]
    rng = np.random.default_rng(2)
    with tf.GradientTape() as tape:
        outputs = model(images_for(config), training=True)
        loss = tf.reduce_sum(outputs * rng.normal(size=outputs.shape).astype("float32"))
    gradients = tape.gradient(loss, model.trainable_variables)
    still = [
        variable.path
        for variable, gradient in zip(model.trainable_variables, gradients, strict=True)
        if gradient is None or not np.abs(gradient).max() > 1e-7
    ]
    assert [path for path in still if not path.endswith(NO_GRADIENT)] == []


@ALL
def test_a_batch_of_one_is_the_same(models, name):
    model, images = models[name], images_for(CONFIGS[name])
    np.testing.assert_allclose(model(images)[:1], model(images[:1]), rtol=1e-5, atol=1e-5)


def test_fresh_logits_are_zero():
    model = create_model(CONFIGS["original"])
    np.testing.assert_array_equal(model(images_for(CONFIGS["original"])), 0)


def fitted(seed, **overrides):
    keras.utils.set_random_seed(seed)
    config = CONFIGS["rates"]
    model = create_model(config, **overrides)
    model.compile(keras.optimizers.Adam(1e-3), "mse", run_eagerly=True)
    images = images_for(config, 4)
    history = model.fit(images, np.ones((4, 5)), epochs=2, batch_size=4, verbose=0).history
    return history["loss"], model.get_weights()


def test_the_same_seed_gives_the_same_training_and_another_one_another():
    (loss, weights), (again, weights_again), (other, _) = fitted(7), fitted(7), fitted(8)
    assert loss == again
    for one, two in zip(weights, weights_again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert loss != other


@pytest.mark.parametrize("name", ["original", "mixer"])
def test_a_tiny_model_overfits_one_batch_of_real_digits(name):
    digits, labels = load_digits(return_X_y=True)
    images = (digits[:32].reshape(-1, 8, 8, 1) / 8 - 1).astype("float32")
    model = create_model(
        CONFIGS[name], num_layers=1, image_size=8, patch_size=2, in_channels=1, num_classes=10
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(5e-3), loss)
    history = model.fit(images, labels[:32], batch_size=32, epochs=80, verbose=0).history["loss"]
    assert history[0] == pytest.approx(np.log(10), abs=1e-3)  # the head starts at zero
    assert history[-1] < 0.05


def test_frozen_layers_stay_frozen_in_a_file(tmp_path):
    model = create_model(CONFIGS["distillation"], layer_scale=0.1, qk_norm=True)
    everything = len(model.trainable_variables)
    for name in ("patch_encoder", "block_00", "encoder_norm"):
        model.get_layer(name).trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    paths = [variable.path for variable in loaded.trainable_variables]
    assert paths == [variable.path for variable in model.trainable_variables]
    assert 0 < len(paths) < everything
    loaded.compile("sgd", "mse", run_eagerly=True)
    before = loaded.get_layer("block_00").get_weights()
    images = images_for(CONFIGS["distillation"])
    loaded.fit(images, np.ones((3, 5)), verbose=0)
    for one, two in zip(before, loaded.get_layer("block_00").get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    for layer in loaded.layers:
        layer.trainable = True
    assert len(loaded.trainable_variables) == everything


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("original", "float16"),
        ("original", "bfloat16"),
        ("distillation", "mixed_bfloat16"),
        ("map", "mixed_float16"),
        ("hybrid", "mixed_float16"),
        ("mixer", "mixed_bfloat16"),
    ],
)
def test_half_precision_gives_float32_logits_near_the_true_ones(models, name, policy):
    config, images = CONFIGS[name], images_for(CONFIGS[name])
    model = create_model(config, dtype=policy)
    model.set_weights(models[name].get_weights())
    logits = model(images)
    assert logits.dtype == "float32"
    tolerance = 0.1 if "bfloat16" in policy else 0.02
    true = models[name](images)
    np.testing.assert_allclose(logits, true, atol=tolerance * np.abs(true).max())
    half = policy.removeprefix("mixed_")
    assert intermediates(model)(images)["block_01"].dtype == half


@pytest.mark.parametrize("name", ["distillation", "map", "mixer"])
def test_the_global_policy_counts_too(name):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = create_model(CONFIGS[name])
        assert model.output.dtype == "float32"
        assert model.get_layer("block_00").compute_dtype == "float16"
        features = create_model(CONFIGS[name], num_classes=0)
        assert features.output.dtype == "float16"
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("rates", "mixed_float16"),
        ("distillation", "mixed_bfloat16"),
        ("map", "mixed_float16"),
        ("hybrid", "mixed_bfloat16"),
        ("mixer", "mixed_float16"),
    ],
)
def test_half_precision_trains(name, policy):
    config = CONFIGS[name]
    model = randomise(create_model(config, dtype=policy))
    before = model.get_weights()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, run_eagerly=True)
    # Loss scaling starts so high that the first steps may be left out.
    history = model.fit(images_for(config, 4), np.arange(4), epochs=3, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    still = [
        weight.path
        for weight, old in zip(model.weights, before, strict=True)
        if np.array_equal(weight, old)
    ]
    assert [path for path in still if not path.endswith(NO_GRADIENT)] == []
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("name", ["original", "map", "mixer", "hybrid"])
def test_half_precision_survives_huge_pixels(models, name):
    config = CONFIGS[name]
    model = create_model(config, dtype="mixed_float16")
    model.set_weights(models[name].get_weights())
    assert np.isfinite(model(500 * images_for(config))).all()


def test_half_precision_survives_a_file(tmp_path):
    config = CONFIGS["distillation"]
    model = randomise(create_model(config, dtype="mixed_bfloat16"))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("block_00").attention.qkv.compute_dtype == "bfloat16"
    np.testing.assert_array_equal(model(images_for(config)), loaded(images_for(config)))


def dropout_rates(model):
    """Path of each layer that draws at random -> its rate."""
    return {
        f"{layer.name}/{part.name}" if part is not layer else layer.name: part.rate
        for layer in model.layers
        for part in layer._flatten_layers()
        if getattr(part, "rate", 0) > 0
    }


def test_dropout_acts_where_the_original_does():
    rates = dropout_rates(create_model(CONFIGS["original"], dropout=0.25))
    assert set(rates.values()) == {0.25}
    counts = {name: sum(key.startswith(name) for key in rates) for name in ("embedding", "block_")}
    # After the positions; in each block after the attention, GELU and the second layer.
    assert counts == {"embedding": 1, "block_": 6} and len(rates) == 7
    rates = dropout_rates(create_model(CONFIGS["original"], attention_dropout=0.5))
    assert rates == {"block_00/attention_dropout": 0.5, "block_01/attention_dropout": 0.5}


def test_drop_path_grows_linearly_with_depth():
    for config, names in (
        (CONFIGS["original"], ("attention_drop_path", "mlp_drop_path")),
        (CONFIGS["mixer"], ("token_drop_path", "channel_drop_path")),
    ):
        model = create_model(config, num_layers=5, drop_path=0.2)
        for name in names:
            rates = [getattr(model.get_layer(f"block_{i:02d}"), name).rate for i in range(5)]
            np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])


def test_patch_dropout_works_in_fit_and_leaves_predict_alone(models):
    config = ViTConfig(**TINY, patch_dropout=0.5, num_register_tokens=1)
    model = randomise(create_model(config))
    images = images_for(config)
    plain = create_model(config, patch_dropout=0.0)
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(model.predict(images, verbose=0), plain(images), atol=1e-6)
    assert not np.allclose(model(images, training=True), plain(images, training=True), atol=1e-3)
    model.compile("sgd", "mse")
    model.fit(images, np.ones((3, 5)), verbose=0)


def test_without_positions_the_order_of_patches_does_not_matter(models):
    config, model = CONFIGS["no_positions"], models["no_positions"]
    images = images_for(config)
    height, width = config.patch_size
    shuffled = images.reshape(3, 2, height, 6, width, 3)[:, ::-1][:, :, :, [3, 1, 5, 0, 2, 4]]
    shuffled = shuffled.reshape(images.shape)
    assert not np.allclose(images, shuffled)
    np.testing.assert_allclose(model(images), model(shuffled), atol=1e-5)


class TestIntermediates:
    def test_attention_rows_sum_to_one_and_have_their_shape(self, models):
        config = CONFIGS["registers"]
        values = intermediates(models["registers"])(images_for(config))
        tokens = 12 + 4
        for index in range(2):
            scores = values[f"block_{index:02d}/attention_scores"]
            assert scores.shape == (3, 3, tokens, tokens) and scores.dtype == "float32"
            np.testing.assert_allclose(np.sum(scores, axis=-1), 1, atol=1e-5)
            assert np.min(scores) >= 0

    def test_names(self, models):
        names = list(intermediates(models["original"]).output)
        steps = ("attention_scores", "attention", "after_attention", "mlp")
        block = ["block_00", *(f"block_00/{step}" for step in steps)]
        assert names == [
            "patches",
            "patch_encoder",
            "patch_embedding",
            "embedding_dropout",
            *block,
            *(name.replace("00", "01") for name in block),
            "encoder_norm",
            "pool",
            "head",
        ]

    @pytest.mark.parametrize("name", ["distillation", "map", "hybrid", "mixer"])
    def test_of_a_loaded_model_twice(self, models, name, tmp_path):
        model, images = models[name], images_for(CONFIGS[name])
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        intermediates(loaded)
        values, expected = intermediates(loaded)(images), intermediates(model)(images)
        assert values.keys() == expected.keys()
        for key in expected:
            np.testing.assert_array_equal(values[key], expected[key], err_msg=key)
        np.testing.assert_array_equal(loaded(images), model(images))

    def test_shares_the_weights_and_leaves_the_model_as_it_was(self, models, tmp_path):
        model = models["original"]
        before = model.get_config()
        values = intermediates(model)
        assert {id(weight) for weight in values.weights} == {id(weight) for weight in model.weights}
        assert model.get_config() == before

    def test_predict_works(self, models):
        images = images_for(CONFIGS["original"])
        values = intermediates(models["original"]).predict(images, verbose=0)
        np.testing.assert_allclose(values["head"], models["original"](images), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["distillation", "map", "sincos", "registers_patch_positions", "clip", "hybrid", "mixer"],
)
def test_no_tensor_has_more_than_four_dimensions(models, name):
    """The LiteRT GPU delegate takes no more. Only Keras's GroupNormalization goes higher."""
    model, config = models[name], CONFIGS[name]
    signature = tf.TensorSpec((None, *config.image_size, config.in_channels), tf.float32)
    function = tf.function(lambda images: model(images, training=False), [signature])
    operations = function.get_concrete_function().graph.get_operations()
    high = [
        f"{operation.name}: {tensor.shape}"
        for operation in operations
        for tensor in operation.outputs
        if tensor.shape.rank is None or tensor.shape.rank > 4
        if "/gn" not in operation.name
    ]
    assert high == []


def test_names_of_the_model_and_its_overrides():
    assert create_model("vit_mu4", image_size=8).name == "vit_mu4"
    assert create_model("ViT-mu/4", image_size=8).name == "vit_mu_4"
    assert create_model(CONFIGS["original"]).name == "vitconfig"
    model = create_model("vit_mu4", image_size=(8, 12), num_classes=3, name="mine", in_channels=1)
    assert (model.name, model.input_shape, model.output_shape) == (
        "mine",
        (None, 8, 12, 1),
        (None, 3),
    )


def test_a_config_may_be_overridden_and_is_checked_again():
    with pytest.raises(UserError, match="num_heads=5 must divide hidden_size=24"):
        create_model(CONFIGS["original"], num_heads=5)
    with pytest.raises(UserError, match="no setting of MixerConfig; did you mean 'num_layers'"):
        create_model(CONFIGS["mixer"], num_layer=3)


def test_the_face_of_the_library():
    assert keras_vit.UserError.__mro__[1] is ValueError
    for name in keras_vit.__all__:
        assert getattr(keras_vit, name) is not None
