"""The types of the package, by mypy."""

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


def test_the_stubs_name_what_the_compiled_part_has():
    import ast

    from xdfs import _xdfs

    stubs = pathlib.Path(xdfs.__file__).with_name("_xdfs.pyi")
    for node in ast.parse(stubs.read_text()).body:
        if isinstance(node, ast.ClassDef):
            kind = getattr(_xdfs, node.name)
            named = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            there = {name for name in vars(kind) if not name.startswith("_")}
            assert named - {"__init__"} == there, node.name
