"""The types of the package, by mypy."""

import os
import pathlib
import subprocess
import sys

import xdfs

PROGRAM = """
import xdfs

def copy(url: str) -> int:
    with xdfs.Client(url, insecure=True) as client:
        result: xdfs.TransferResult = client.upload("a", "b", progress=lambda event: None)
        entries: list[str] = [info.name for info in client.list()]
        transfer = client.begin.read("a")
        data: bytes = transfer.wait()
    return result.bytes + len(entries) + len(data)

async def fetch(client: xdfs.AsyncClient) -> bytes:
    return await client.read("a") + await client.begin.read("b")
"""


def test_the_package_and_a_program_have_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    package = pathlib.Path(xdfs.__file__).parent
    files = [str(program), *map(str, package.glob("*.py"))]
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", str(tmp_path)]
    checked = subprocess.run([*command, *files], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_stubs_are_those_of_the_compiled_part(tmp_path):
    site = str(pathlib.Path(xdfs.__file__).parents[1])
    command = [sys.executable, "-m", "mypy.stubtest", "xdfs._xdfs"]
    environment = {**os.environ, "MYPYPATH": site, "PYTHONPATH": site}
    checked = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
