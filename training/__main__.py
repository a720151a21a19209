"""`python -m training <command>`, the same as `keras-vit <command>`."""

from training.cli import run

run()
