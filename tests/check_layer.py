"""The promise that every layer of ours makes; `check_layer` runs it over one way to set a layer.

Not a test file itself: `tests/keras_vit/layers/test_every_layer.py` runs it over every registered
layer, so a new layer is checked as soon as it exists.
"""

import inspect

import keras
import numpy as np

POLICIES = {
    "float32": ("float32", "float32"),
    "mixed_bfloat16": ("float32", "bfloat16"),
    "mixed_float16": ("float32", "float16"),
}


def check_layer(layer_class, settings, input_shape, folder):
    """Assert the whole promise. `input_shape` has a batch of 2 or more."""
    check_config(layer_class, settings)
    check_shapes(layer_class, settings, input_shape)
    for policy in POLICIES:
        check_policy(layer_class, settings, input_shape, policy)
    check_batch_of_one(layer_class, settings, input_shape)
    check_saving(layer_class, settings, input_shape, folder)
    check_frozen(layer_class, settings, input_shape)


def randomise(layer, seed=0, scale=0.1):
    """Move every weight off its initial value: a zero kernel would hide what lies behind it."""
    rng = np.random.default_rng(seed)
    layer.set_weights([w + scale * rng.normal(size=w.shape) for w in layer.get_weights()])
    return layer


def images_like(shape, seed=1, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype("float32")


def own_arguments(layer_class):
    """Name and default of each argument of the constructor, without `self`."""
    parameters = list(inspect.signature(layer_class.__init__).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}


def check_config(layer_class, settings):
    """`get_config` holds exactly the constructor's arguments, with the values given."""
    config = layer_class(**settings, name="a_name").get_config()
    arguments = own_arguments(layer_class).keys()
    assert arguments <= config.keys()
    assert config.keys() - keras.layers.Layer().get_config().keys() <= arguments
    for name, value in settings.items():
        assert config[name] == value, name
    assert layer_class.from_config(config).get_config() == config


def check_shapes(layer_class, settings, input_shape):
    """`compute_output_shape` and the symbolic output say what comes out."""
    layer = layer_class(**settings)
    output = layer(np.zeros(input_shape, "float32"))
    assert tuple(layer.compute_output_shape(input_shape)) == tuple(output.shape)
    symbolic = layer_class(**settings)(keras.Input(input_shape[1:]))
    assert tuple(symbolic.shape) == (None, *output.shape[1:])


def check_policy(layer_class, settings, input_shape, policy):
    """Weights and results have the policy's types, in every sublayer, and stay finite."""
    variable_dtype, compute_dtype = POLICIES[policy]
    layer = layer_class(**settings, dtype=policy)
    output = layer(images_like(input_shape, scale=100.0))
    for sublayer in layer._flatten_layers():
        assert sublayer.dtype_policy.name == policy, sublayer.name
    assert {weight.dtype for weight in layer.weights} <= {variable_dtype}
    assert keras.backend.standardize_dtype(output.dtype) == compute_dtype
    assert keras.ops.all(keras.ops.isfinite(output)), policy
    symbolic = layer_class(**settings, dtype=policy)(keras.Input(input_shape[1:]))
    assert symbolic.dtype == compute_dtype


def check_batch_of_one(layer_class, settings, input_shape):
    """An image's result doesn't depend on its neighbours, and a batch of one works."""
    layer = layer_class(**settings)
    layer.build(input_shape)
    randomise(layer)
    images = images_like(input_shape)
    both, one = layer(images, **eval_mode(layer)), layer(images[:1], **eval_mode(layer))
    np.testing.assert_allclose(both[:1], one, rtol=1e-5, atol=1e-5)


def eval_mode(layer):
    return {"training": False} if "training" in inspect.signature(layer.call).parameters else {}


def check_saving(layer_class, settings, input_shape, folder):
    """A model with the layer comes back from a `.keras` file, safe mode, with equal results."""
    image = keras.Input(input_shape[1:])
    model = randomise(keras.Model(image, layer_class(**settings, name="it")(image)))
    path = folder / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path, safe_mode=True)
    assert type(loaded.get_layer("it")) is layer_class
    images = images_like(input_shape)
    np.testing.assert_array_equal(model(images), loaded(images))


def check_frozen(layer_class, settings, input_shape):
    """A layer made with `trainable=False`, as a file does, has nothing that trains."""
    image = keras.Input(input_shape[1:])
    layer = layer_class(**settings, trainable=False)
    model = keras.Model(image, layer(image))
    assert model.trainable_variables == []
    layer.trainable = True
    assert len(model.trainable_variables) == len(layer.weights)
