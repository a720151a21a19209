import json

import pytest
import tensorflow as tf

from keras_vit import UserError
from training.config import TrainConfig
from training.data.pipeline import Part
from training.distribution import distribute, find_cluster, make_strategy, part_of, tf_config

WORKERS = ["a:1", "b:2", "c:3"]
MULTI = {"strategy": "multi_worker", "output": "run"}


def config(**settings) -> TrainConfig:
    return TrainConfig(**MULTI, **settings)


def test_flags_come_before_tf_config_and_that_before_slurm():
    environment = {"TF_CONFIG": json.dumps(tf_config(WORKERS, 2)), "SLURM_PROCID": "1"}
    assert find_cluster(config(cluster="x:1, y:2", task=1), environment) == (["x:1", "y:2"], 1)
    assert find_cluster(config(), environment) == (WORKERS, 2)


def test_a_chief_of_tf_config_is_the_first():
    cluster = {"chief": ["a:1"], "worker": ["b:2", "c:3"]}
    for task, index in [(("chief", 0), 0), (("worker", 0), 1), (("worker", 1), 2)]:
        text = json.dumps({"cluster": cluster, "task": {"type": task[0], "index": task[1]}})
        assert find_cluster(config(), {"TF_CONFIG": text}) == (WORKERS, index)


@pytest.mark.parametrize(
    ("nodes", "tasks", "expected"),
    [
        ("n[01-02]", "2(x2)", ["n01:8888", "n01:8889", "n02:8888", "n02:8889"]),
        ("n[9-10],m", "1(x2),2", ["n9:8888", "n10:8888", "m:8888", "m:8889"]),
        ("gpu-a[007,099-101]", "1(x4)", [f"gpu-a{n}:8888" for n in ("007", "099", "100", "101")]),
    ],
)
def test_slurm_gives_a_worker_for_each_task_in_its_order(nodes, tasks, expected):
    environment = {
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_PROCID": "3",
    }
    assert find_cluster(config(), environment) == (expected, 3)


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        ({}, {}, "needs --cluster HOST:PORT"),
        ({"cluster": "a:1,b:2"}, {}, "task=None must say which of the 2 workers"),
        ({"cluster": "a:1,b:2", "task": 2}, {}, "task=2 must say .*: 0 to 1"),
        ({}, {"TF_CONFIG": "{"}, "TF_CONFIG must be like"),
        ({}, {"TF_CONFIG": "[1]"}, "TF_CONFIG must be like"),
        ({}, {"TF_CONFIG": json.dumps(tf_config(WORKERS, 7))}, "worker 7 is none of the cluster"),
        (
            {},
            {"TF_CONFIG": json.dumps({"cluster": {"ps": []}, "task": {"type": "ps", "index": 0}})},
            "task type 'ps' takes no part",
        ),
        ({}, {"SLURM_PROCID": "0"}, "SLURM_STEP_NODELIST is not set: start the workers with srun"),
    ],
)
def test_a_cluster_that_is_not_whole_is_named(settings, environment, message):
    with pytest.raises(UserError, match=message):
        find_cluster(config(**settings), environment)


def test_strategies_of_one_machine():
    assert make_strategy(TrainConfig()) is tf.distribute.get_strategy()
    strategy = make_strategy(TrainConfig(strategy="mirrored", devices=2))
    assert strategy.num_replicas_in_sync == 2
    assert part_of(strategy) == Part(0, 1)
    with pytest.raises(UserError, match="devices=99: TensorFlow has already started"):
        make_strategy(TrainConfig(strategy="mirrored", devices=99))


def test_a_batch_is_dealt_out_in_order():
    strategy = make_strategy(TrainConfig(strategy="mirrored", devices=4))
    dataset = tf.data.Dataset.range(24).batch(8)
    for number, batch in enumerate(distribute(strategy, dataset, 8)):
        parts = [part.numpy().tolist() for part in strategy.experimental_local_results(batch)]
        assert sum(parts, []) == list(range(8 * number, 8 * number + 8))
        assert [len(part) for part in parts] == [2, 2, 2, 2]
