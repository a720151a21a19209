"""The notebooks run from top to bottom, in a kernel of their own."""

from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_fine_tuning_dinov2_on_a_folder(shared, photos, tmp_path, monkeypatch):
    monkeypatch.setenv("PHOTOS", str(photos))
    monkeypatch.setenv("WEIGHTS", str(shared / "weights/dinov2_vits14_backbone_fp16.safetensors"))
    monkeypatch.setenv("IMAGE_SIZE", "56")
    monkeypatch.setenv("EPOCHS", "2")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    notebook = nbformat.read(EXAMPLES / "finetune_dinov2.ipynb", as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs")  # kept clean
    client = NotebookClient(notebook, resources={"metadata": {"path": tmp_path}})
    client.execute()
    printed = {
        cell.id: "".join(output.get("text", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    }
    assert "huggingface - Hugging Face ViT, DeiT, Dinov2" in printed["cell-3"]
    assert "grid 37x37 to 4x4, bicubic" in printed["cell-7"]
    assert (tmp_path / "my_vit.keras").is_file()
    assert float(printed["cell-13"].split(":")[1]) == 0.0
    assert np.isfinite(float(printed["cell-11"].split("fine-tuned ")[1].rstrip("%\n")))
