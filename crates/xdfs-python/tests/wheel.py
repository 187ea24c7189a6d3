"""Builds the wheel as a user does, and installs it where nothing else is.

    python tests/wheel.py [--profile dev] [--python python3.12 --python python3.13]

pip builds it in a new virtual environment, in release mode unless another profile of cargo is
named. It is installed in other ones, of this interpreter and of those that are named, where the
first lines of the guide run, fsspec finds the file system by its entry points, and mypy checks the
stubs against the compiled part.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

CRATE = pathlib.Path(__file__).parents[1]
ROOT = CRATE.parents[1]


def run(*command, **options):
    subprocess.run([str(word) for word in command], check=True, **options)


def environment(folder, interpreter=sys.executable):
    """The interpreter of a new environment."""
    run(interpreter, "-m", "venv", folder)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def build(folder, profile):
    """The wheel of the crate, by pip alone."""
    python = environment(folder / "builds")
    settings = {**os.environ, "MATURIN_PEP517_ARGS": f"--profile {profile}"}
    wheels = folder / "wheels"
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, CRATE, env=settings)
    (wheel,) = wheels.iterdir()
    return wheel


def look_into(wheel):
    """Checks what an index and type checkers look for."""
    cargo = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.+)"$', cargo, re.M)[1]
    assert re.fullmatch(rf"xdfs-{version}-cp311-abi3-\w+\.whl", wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (of_wheel,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(of_wheel).decode()
        entries = archive.read(of_wheel.replace("METADATA", "entry_points.txt")).decode()
    package = {f"xdfs/{file.name}" for file in (CRATE / "python/xdfs").iterdir() if file.is_file()}
    assert package <= set(names), package - set(names)
    assert "xdfs/py.typed" in names and "xdfs/_xdfs.pyi" in names
    assert any(re.fullmatch(r"xdfs/_xdfs\..*(so|pyd)", name) for name in names), names
    assert not [name for name in names if name.endswith((".rs", ".pyc"))]
    for line in (
        f"Version: {version}",
        "Requires-Python: >=3.11",
        "License-Expression: Apache-2.0 OR MIT",
        "Provides-Extra: fsspec",
        "Classifier: Typing :: Typed",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3.11",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
    ):
        assert line in metadata.splitlines(), (line, metadata)
    assert "xdfs=xdfs.fsspec:XdfsFileSystem" in entries.replace(" ", ""), entries


def first_lines():
    """The ten lines of the guide."""
    guide = (ROOT / "docs/python.md").read_text()
    return re.search(r"^```python\n(.*?)^```", guide, re.M | re.S)[1]


def use(folder, wheel, interpreter):
    """Installs the wheel for an interpreter, and uses it."""
    python = environment(folder, interpreter)
    install = [python, "-m", "pip", "install", "-q"]
    run(*install, wheel)
    elsewhere = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": ""}}
    ended = subprocess.run(
        [python, "-c", first_lines() + "server.close()\n"],
        check=True,
        capture_output=True,
        text=True,
        **elsewhere,
    )
    assert ended.stdout == "hello 11\nb'bytes\\n'\n", ended.stdout
    # Without fsspec the package works, as has been seen; with it, what it asks for is enough.
    run(*install, f"{wheel}[fsspec]", "mypy")
    code = (
        "import fsspec, xdfs\n"
        "with xdfs.Server() as server:\n"
        "    with fsspec.open(server.url + 'a', 'wb', insecure=True) as file:\n"
        "        file.write(b'x')\n"
        "    with fsspec.open(server.url + 'a', insecure=True) as file:\n"
        "        assert file.read() == b'x'\n"
        "assert fsspec.get_filesystem_class('ssh+xdfs').__name__ == 'SshXdfsFileSystem'\n"
    )
    run(python, "-c", code, **elsewhere)
    run(python, "-m", "mypy.stubtest", "xdfs._xdfs", **elsewhere)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--profile", default="release")
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xdfs-wheel-") as folder:
        wheel = build(pathlib.Path(folder), args.profile)
        look_into(wheel)
        for number, interpreter in enumerate([sys.executable, *args.python]):
            use(pathlib.Path(folder) / f"uses{number}", wheel, interpreter)
        size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB, installs and works")


if __name__ == "__main__":
    sys.exit(main())
