"""Composite: what every layer made of other layers shares."""

import keras


class Composite(keras.layers.Layer):
    """A layer made of layers that stays frozen when it is loaded from a file.

    Keras hands `trainable` on to sublayers only when it is assigned, not when a frozen layer is
    made from its configuration; without this its sublayers would train again. `build` of a
    subclass ends with `super().build(input_shape)`.
    """

    def build(self, input_shape):
        if not self.trainable:
            self.trainable = True  # an assignment that changes nothing is skipped
            self.trainable = False
