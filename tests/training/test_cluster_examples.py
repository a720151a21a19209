"""README's two workers run; the jobs of examples/cluster start what keras-vit understands."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from training.cli import parse
from training.distribution import find_cluster
from training.run import Run

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples/cluster"


def test_readmes_two_workers_run(tmp_path, free_ports):
    (script,) = re.findall(r"```bash\n(for task.*?)```", (ROOT / "README.md").read_text(), re.S)
    for port, free in zip(("8888", "8889"), free_ports, strict=True):
        script = script.replace(port, str(free))
    script = script.replace("--epochs 2", "--epochs 2 --model vit_mu4")  # sooner
    script = script.replace("keras-vit", f"{shlex.quote(sys.executable)} -m training")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert len(Run.open(tmp_path / "saved_models/two").read_history()) == 2, done.stderr


@pytest.fixture
def free_ports():
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in (one, other)]


def understood(line: str):
    """The config of the command in a line of a shell."""
    return parse(shlex.split(line.replace("\\\n", "").split("keras-vit", 1)[1]))[1]


def test_the_job_for_slurm():
    path = CLUSTER / "slurm.sbatch"
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    (line,) = re.findall(r"^srun .*?[^\\]$", path.read_text(), re.M | re.S)
    config = understood(line)
    assert (config.strategy, config.cluster, config.resume) == ("multi_worker", None, True)


def test_the_job_for_kubernetes():
    service, job = yaml.safe_load_all((CLUSTER / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    workers, gpus = job["spec"]["completions"], container["resources"]["limits"]["nvidia.com/gpu"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    for task in range(workers):
        line = container["args"][0].replace("$JOB_COMPLETION_INDEX", str(task))
        config = understood(line)
        hosts, index = find_cluster(config, {})
        assert index == task and config.resume and config.batch_size % (workers * gpus) == 0
        names = (job["metadata"]["name"], pod["subdomain"])
        assert hosts == [f"{names[0]}-{n}.{names[1]}:8888" for n in range(workers)]
