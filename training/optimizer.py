"""AdamW and SGD with a learning rate and a weight decay of its own for each variable."""

import re

import keras

# Besides biases and norms these are never decayed (timm `no_weight_decay`).
UNDECAYED = {
    "bias",
    "gamma",
    "beta",
    "class_token",
    "distillation_token",
    "register_tokens",
    "position_embedding",
}


class PerVariable:
    """Multiplies the learning rate and decays the weights of each variable by its own figure.

    Args:
        rates: factor of the learning rate for each trainable variable, in the model's order.
        decays: decoupled weight decay for each, times its learning rate (Loshchilov & Hutter 2019).
    """

    def __init__(self, rates, decays, **kwargs):
        super().__init__(**kwargs)
        self.rates = list(rates)
        self.decays = list(decays)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        learning_rate = learning_rate * self.rates[index]
        if self.decays[index]:
            self.assign_sub(variable, variable * self.decays[index] * learning_rate)
        super().update_step(gradient, variable, learning_rate)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        # `Trainer` sums over the replicas before it, so that the clip acts on the sum.
        return list(grads_and_vars)

    def get_config(self):
        config = super().get_config()
        del config["weight_decay"]  # `decays` stands for it
        return {**config, "rates": self.rates, "decays": self.decays}


@keras.saving.register_keras_serializable(package="keras_vit.training")
class AdamW(PerVariable, keras.optimizers.Adam):
    """Adam (Kingma & Ba 2015) with `PerVariable`'s rates and decays."""


@keras.saving.register_keras_serializable(package="keras_vit.training")
class SGD(PerVariable, keras.optimizers.SGD):
    """Gradient descent with momentum, with `PerVariable`'s rates and decays."""


def make_optimizer(config, model, schedule):
    """The optimizer of a run.

    Args:
        config: `TrainConfig`: optimizer, weight_decay, layer_decay, clip_norm, ema.
        model: its frozen layers already set.
        schedule: the learning rate.
    """
    variables = model.trainable_variables
    common = {
        "learning_rate": schedule,
        "rates": layer_rates(variables, config.layer_decay),
        "decays": [config.weight_decay if is_decayed(v) else 0.0 for v in variables],
        "global_clipnorm": config.clip_norm or None,
        "use_ema": bool(config.ema),
        "ema_momentum": config.ema or 0.99,
    }
    if config.optimizer == "sgd":
        return SGD(momentum=0.9, **common)
    return AdamW(beta_1=0.9, beta_2=0.999, epsilon=1e-8, **common)


def is_decayed(variable) -> bool:
    return len(variable.shape) > 1 and variable.name not in UNDECAYED


def layer_rates(variables, layer_decay: float) -> list[float]:
    """layer_decay ** (number of groups above): the head 1, each block below it less.

    timm's groups: embedding and stem, each block, the head; the last LayerNorm goes with the last
    block (`timm.optim.param_groups_layer_decay`).
    """
    depths = [re.match(r"block_(\d+)/", variable.path) for variable in variables]
    num_blocks = 1 + max((int(match[1]) for match in depths if match), default=-1)

    def group(variable, match) -> int:
        if match:
            return int(match[1]) + 1
        name = variable.path.split("/")[0]
        if name.startswith(("stem", "patch_encoder", "pre_norm")):
            return 0
        return num_blocks if name == "encoder_norm" else num_blocks + 1

    return [
        layer_decay ** (num_blocks + 1 - group(variable, match))
        for variable, match in zip(variables, depths, strict=True)
    ]
