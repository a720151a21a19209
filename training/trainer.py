"""One step of training, with the same numbers on any number of replicas and of slices."""

import functools

import keras
import tensorflow as tf
from keras import ops

from training.multi_worker import ReplicatedModel

SEED_STATE = "seed_generator_state"
SEED_STRIDE = 1_000_003  # between the seeds of two replicas


class Trainer(ReplicatedModel):
    """A functional model, `Trainer(inputs, outputs)`, whose steps equal those on one device.

    The gradient is the mean over the global batch, summed over the replicas before the optimizer
    sees it, so that clipping and loss scaling act on the whole (Keras clips each replica's own).
    Its optimizer is one of `training.optimizer`, which does not sum again. Losses are means of
    their batch (Keras's default). Create and compile it in `strategy.scope()`.

    accumulate: slices that each replica computes its part of the batch in, one after the other:
        the memory of one slice, the gradient of all.
    choose: of (images, function), gives `function(model, images)` of the model for images of this
        size; None: always of this model.
    distillation: a `training.distillation.Distillation`, with models of its `with_heads`, or None.
    steps_done: int64 variable, steps of the run so far.
    bad_step: int64 variable, the first step (from 0) whose loss was not finite; -1 for none.
    wish, agreed: float32 variables: this worker's wish to stop (1.0), and after a step how many
        workers wished it: all of them learn it in the same step.
    steps_to_replay: steps of the first epoch that a checkpoint already holds; `fit` passes over
        them without data.
    replayed: whether the last step was such a one.
    waited: float64 variable, seconds that steps waited for their batches, validation's too; None
        if not `timed`: TensorFlow refuses its clock among deterministic operations.
    """

    def prepare(self, accumulate: int = 1, choose=None, distillation=None, timed: bool = True):
        """Set what a functional constructor does not take; returns itself."""
        self.accumulate = accumulate
        self.choose = choose or (lambda images, function: function(self, images))
        self.distillation = distillation
        self.steps_to_replay, self.replayed = 0, False
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.steps_done, self.bad_step, self.wish, self.agreed = (
            tf.Variable(value, trainable=False, dtype=dtype, aggregation=first)
            for value, dtype in [(0, "int64"), (-1, "int64"), (0.0, "float32"), (0.0, "float32")]
        )
        wait = tf.Variable(0.0, trainable=False, dtype="float64", aggregation=first)
        self.waited = wait if timed else None
        return self

    def start_at(self, step: int, replayed: int):
        """The next `fit` begins after `step` steps of the run, the last `replayed` in its epoch."""
        self.steps_done.assign(step)
        self.bad_step.assign(-1)
        self.wish.assign(0.0)
        self.agreed.assign(0.0)
        self.steps_to_replay = replayed

    def spread_seeds(self):
        """Give each replica its own dropout masks: Keras would draw the same ones on all."""
        seeds = [v.value for v in self.non_trainable_variables if v.path.endswith(SEED_STATE)]

        def shift():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            for seed in seeds:
                offset = tf.cast(tf.stack([index, 0]) * SEED_STRIDE, seed.dtype)
                seed.assign(seed + offset)

        if seeds and self.distribute_strategy.num_replicas_in_sync > 1:
            self.distribute_strategy.run(tf.function(shift))

    @functools.cached_property
    def gather_metrics(self):
        """A function to each metric's variables as every replica has them, `(replicas, ...)`."""

        def own():
            context = tf.distribute.get_replica_context()
            return [context.all_gather(v.value[tf.newaxis], 0) for v in self.metrics_variables]

        @tf.function
        def gather():
            return [self._local(value) for value in self.distribute_strategy.run(own)]

        return gather

    def assign_metrics(self, values):
        """Give each replica its own of `gather_metrics`' values."""

        def own():
            index = tf.distribute.get_replica_context().replica_id_in_sync_group
            for variable, value in zip(self.metrics_variables, values, strict=True):
                variable.assign(tf.gather(value, index))

        self.distribute_strategy.run(tf.function(own))

    def make_train_function(self, force=False):
        if self.train_function is not None and not force:
            return
        super().make_train_function(force)
        train, passed = self.train_function, {}

        def train_or_replay(iterator):
            self.replayed = self.steps_to_replay > 0
            if not self.replayed:
                return train(iterator)
            self.steps_to_replay -= self.steps_per_execution
            if not passed:
                passed.update(self.get_metrics_result())
            return dict(passed)

        self.train_function = train_or_replay

    def fetch(self, get):
        if self.waited is None:
            return get()
        start = tf.timestamp()  # steps of one graph follow each other, as they change variables
        with tf.control_dependencies([start]):
            batch = get()
        with tf.control_dependencies(tf.nest.flatten(batch, expand_composites=True)):
            self.waited.assign_add(tf.timestamp() - start)
        return batch

    def _symbolic_build(self, iterator=None, data_batch=None):
        images, *rest = data_batch  # these may be of another size than the model's own
        own = tf.zeros((images.shape[0], *self.input_shape[1:]), images.dtype)
        super()._symbolic_build(data_batch=(own, *rest))

    def train_step(self, data):
        loss, gradients = self._gradients(data)
        context = tf.distribute.get_replica_context()
        loss, wishes, *gradients = context.all_reduce("SUM", [loss, self.wish + 0.0, *gradients])
        bad = ~tf.math.is_finite(loss) & (self.bad_step < 0)
        self.bad_step.assign(tf.where(bad, self.steps_done, self.bad_step))
        self.agreed.assign(wishes)
        self.steps_done.assign_add(1)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self.get_metrics_result()

    def test_step(self, data):
        """Counts each example by its weight: those of weight 0 only fill the last batch.

        So do metrics that `compile` got as `weighted_metrics`.
        """
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        outputs = self(x, training=False)
        loss = self._mean_loss(x, y, outputs, weights, training=False)
        size = tf.cast(tf.shape(outputs)[0], loss.dtype)
        count = size if weights is None else tf.reduce_sum(tf.cast(weights, loss.dtype))
        self._loss_tracker.update_state(
            tf.math.divide_no_nan(loss * size, count), sample_weight=count
        )
        return self.compute_metrics(x, y, outputs, sample_weight=weights)

    def _gradients(self, data):
        """This replica's share of the loss and of its gradients; sums over replicas are means."""
        if self.accumulate == 1:
            return self._slice_gradients(data)
        size = tf.nest.flatten(data)[0].shape[0] // self.accumulate
        zeros = [tf.zeros(variable.shape, "float32") for variable in self.trainable_variables]

        def add(index, loss, sums):
            part = tf.nest.map_structure(lambda v: v[index * size : (index + 1) * size], data)
            more, gradients = self._slice_gradients(part)
            sums = [total + gradient for total, gradient in zip(sums, gradients, strict=True)]
            return index + 1, loss + more, sums

        _, loss, gradients = tf.while_loop(
            lambda index, *_: index < self.accumulate,
            add,
            [tf.constant(0), tf.constant(0.0), zeros],
            parallel_iterations=1,  # else the slices share no memory
        )
        return loss, gradients

    def _slice_gradients(self, data):
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        taught = self.distillation.teach(x) if self.distillation else None

        def compute(model, images):
            with tf.GradientTape() as tape:
                answers = model(images, training=True)
                outputs, mean = self._outputs_and_loss(answers, images, y, weights, taught)
                parts = self.accumulate * self.distribute_strategy.num_replicas_in_sync
                loss = mean / tf.cast(parts, mean.dtype)
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, self.trainable_variables)
            return outputs, mean, loss, [ops.convert_to_tensor(g) for g in gradients]

        outputs, mean, loss, gradients = self.choose(x, compute)
        self._loss_tracker.update_state(mean, sample_weight=tf.shape(outputs)[0])
        self.compute_metrics(x, y, outputs)
        return loss, gradients

    def _outputs_and_loss(self, answers, x, y, weights, taught):
        if taught is None:
            return answers, self._mean_loss(x, y, answers, weights, training=True)
        outputs, of_labels, of_teacher = answers
        base = self._mean_loss(x, y, of_labels, weights, training=True)
        return outputs, self.distillation.loss(base, of_teacher, taught, weights)

    def _mean_loss(self, x, y, outputs, weights, training):
        """Mean over the examples at hand: Keras has divided it by the number of replicas."""
        loss = self.compute_loss(x, y, outputs, weights, training=training)
        return loss * tf.cast(self.distribute_strategy.num_replicas_in_sync, loss.dtype)
