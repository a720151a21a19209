"""The learning rate over the steps of a run."""

import keras
from keras import ops

LINEAR_END = 1e-5  # `linear_end` of vit_jax utils.create_learning_rate_schedule


@keras.saving.register_keras_serializable(package="keras_vit.training")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear from 0 to the peak over the warm-up, then down over the rest of the steps.

    vit_jax `utils.create_learning_rate_schedule`, but the first step already learns: step s (from
    0) of the warm-up has peak * (s + 1) / warmup_steps, so the peak is truly reached.

    Args:
        peak: highest learning rate.
        warmup_steps: steps of the warm-up, 0 for none.
        total_steps: steps of the whole run.
        decay: "cosine", half a one to 0 after the last step; "linear", to 1e-5.
    """

    def __init__(self, peak, warmup_steps, total_steps, decay="cosine"):
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.decay = decay

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warmup = (step + 1.0) / max(1, self.warmup_steps)
        progress = (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)
        progress = ops.clip(progress, 0.0, 1.0)
        if self.decay == "linear":
            end = min(LINEAR_END / self.peak, 1.0)
            decay = end + (1.0 - end) * (1.0 - progress)
        else:
            decay = 0.5 * (1.0 + ops.cos(3.141592653589793 * progress))
        return self.peak * ops.where(step < self.warmup_steps, warmup, decay)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "decay": self.decay,
        }
