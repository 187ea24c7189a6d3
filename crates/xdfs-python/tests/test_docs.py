"""The examples of the guide, as typed, and those of docstrings."""

import doctest
import os
import pathlib
import re

import pytest

import xdfs

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)
    assert len(blocks) >= 6
    names: dict = {}
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), names)
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "hello 11" and out[1] == r"b'bytes\n'"
    assert any(re.fullmatch(r"20000000 crc64nvme:[0-9a-f]{16}", line) for line in out)
    assert "{'/parts/1': b'one', '/parts/2': b'two'}" in out and "[b'on', b'tw']" in out
    assert out[-1] == "not-found /missing"


def test_examples_of_docstrings_run():
    ran = doctest.testmod(xdfs)
    assert ran.attempted >= 2 and not ran.failed


def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    folder = pathlib.Path(__file__).parents[1] / "examples"
    notebook = nbformat.read(folder / "tune.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}})
    os.environ.setdefault("IPYTHONDIR", str(tmp_path))
    client.execute()
    pictures = [
        output["data"]["image/png"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 1 and len(pictures[0]) > 5000
