"""recompute: trade time for memory in the backward pass, with the same numbers."""

from collections import Counter

import keras
from keras import ops

SEED_STATE = "seed_generator_state"


def recompute(layer, function, *inputs):
    """`function(*inputs)`, whose intermediate values are not kept but computed again when needed.

    Chen et al. 2016. Unlike `keras.remat` alone the second pass draws the same random numbers as
    the first: a dropout mask that differs between them would give a wrong gradient.

    Args:
        layer: whose weights and seeds `function` may use.
        function: of tensors, to one tensor or a structure of them; called twice.
        inputs: tensors.
    """
    seeds = [v for v in layer.non_trainable_variables if v.path.endswith(SEED_STATE)]
    states = [(seed, seed.value * 1) for seed in seeds]  # copies, as the seeds move on below
    drawn = Counter()

    def pure(*values):
        with SeedScope(states) as scope:
            result = function(*values)
        drawn.update(scope.drawn - drawn)  # of one pass: the second draws as often
        return result

    result = keras.remat(pure)(*inputs)
    for seed in seeds:
        seed.assign(seed + ops.convert_to_tensor([0, drawn[id(seed)]], dtype=seed.dtype))
    return result


class SeedScope(keras.StatelessScope):
    """Inside, seeds have the states given and only here move on; all else is as outside."""

    def __init__(self, states):
        super().__init__(states)
        self.drawn = Counter()

    def add_update(self, update):
        super().add_update(update)
        self.drawn[id(update[0])] += 1

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:  # JAX: that of the training step
            return self.original_scope.get_current_value(variable)
        return value
