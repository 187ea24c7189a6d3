"""Lays the package out as pip would: CRATE DEPS SITE VERSION."""

import pathlib
import shutil
import sys
import tomllib

crate, deps, site = map(pathlib.Path, sys.argv[1:4])
version = sys.argv[4]
shutil.rmtree(site, ignore_errors=True)
package = site / "xdfs"
shutil.copytree(crate / "python" / "xdfs", package, ignore=shutil.ignore_patterns("__pycache__"))
names = ("libxdfs_python.so", "libxdfs_python.dylib", "xdfs_python.dll")
(library,) = (deps / name for name in names if (deps / name).exists())
shutil.copy(library, package / ("_xdfs.pyd" if library.suffix == ".dll" else "_xdfs.abi3.so"))
project = tomllib.loads((crate / "pyproject.toml").read_text())["project"]
info = site / f"xdfs-{version}.dist-info"
info.mkdir()
(info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: xdfs\nVersion: {version}\n")
lines = []
for group, entries in project["entry-points"].items():
    lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
(info / "entry_points.txt").write_text("\n".join(lines) + "\n")
