"""Libraries of others that read and write by way of fsspec."""

import os
import pathlib
import subprocess
import sys

import fsspec
import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def at(server):
    """Makes URLs, and has the options for them."""
    options = {"insecure": True}

    def url(path):
        return f"xdfs://127.0.0.1:{server.port}/{path}"

    url.options = options
    return url


def table(rows=1000):
    numbers = np.arange(rows)
    return pd.DataFrame({"number": numbers, "half": numbers / 2, "name": numbers.astype(str)})


def test_pandas_reads_and_writes_csv_and_parquet(at):
    frame = table()
    frame.to_csv(at("table.csv"), index=False, storage_options=at.options)
    back = pd.read_csv(at("table.csv"), dtype={"name": str}, storage_options=at.options)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
    frame.to_parquet(at("table.parquet"), storage_options=at.options)
    back = pd.read_parquet(at("table.parquet"), columns=["half"], storage_options=at.options)
    pd.testing.assert_frame_equal(back, frame[["half"]])


def test_a_dataset_of_pyarrow(fs):
    import pyarrow as pa
    import pyarrow.dataset as ds

    rows = pa.table({"part": [number % 5 for number in range(1000)], "value": range(1000)})
    ds.write_dataset(rows, "/data", format="parquet", filesystem=fs, partitioning=["part"])
    data = ds.dataset("/data", filesystem=fs, partitioning=["part"])
    assert len(data.files) == 5
    found = data.to_table(filter=ds.field("part") == 3)
    assert sorted(found["value"].to_pylist()) == list(range(3, 1000, 5))


def test_a_frame_of_dask(at):
    import dask
    import dask.dataframe as dd

    with dask.config.set(scheduler="threads"):
        frame = dd.from_pandas(table(10_000), npartitions=8)
        frame.to_parquet(at("frame"), storage_options=at.options)
        back = dd.read_parquet(at("frame"), storage_options=at.options)
        assert back.number.sum().compute() == sum(range(10_000))
        frame.to_csv(at("csv/*.csv"), index=False, storage_options=at.options)
        back = dd.read_csv(at("csv/*.csv"), storage_options=at.options)
        assert len(back) == 10_000


def test_a_store_of_zarr_and_xarray(server, root):
    import xarray as xr
    import zarr
    from zarr.storage import FsspecStore

    fs = fsspec.filesystem(
        "xdfs",
        host="127.0.0.1",
        port=server.port,
        insecure=True,
        asynchronous=True,
        skip_instance_cache=True,
    )
    store = FsspecStore(fs, path="/array.zarr")
    data = np.arange(2000 * 64, dtype="i4").reshape(2000, 64)
    array = zarr.create_array(store, shape=data.shape, chunks=(1, 64), dtype=data.dtype)
    array[:] = data
    chunks = [name for _, _, names in os.walk(root / "array.zarr") for name in names]
    assert len(chunks) >= 2000
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[:], data)
    store = FsspecStore(fs, path="/set.zarr")
    frame = xr.Dataset({"a": (("x", "y"), data[:100])})
    frame.chunk({"x": 10}).to_zarr(store, mode="w", consolidated=False)
    back = xr.open_zarr(store, consolidated=False).load()
    xr.testing.assert_equal(back, frame)


def test_simplecache(at, root, tmp_path):
    (root / "file").write_bytes(b"content")
    places = {"xdfs": at.options, "simplecache": {"cache_storage": str(tmp_path / "cache")}}
    for _ in range(2):
        with fsspec.open(f"simplecache::{at('file')}", **places) as file:
            assert file.read() == b"content"
    (root / "file").unlink()
    with fsspec.open(f"simplecache::{at('file')}", **places) as file:
        assert file.read() == b"content"


LOADER = pathlib.Path(__file__).parents[1] / "examples" / "data_loader.py"


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_data_loader(server, root, kind):
    """A share of the 50,000 samples of 100 kB that the example reads by default."""

    def load(*args):
        command = [sys.executable, str(LOADER), "--size", "10000", *args]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout

    url = f"xdfs://127.0.0.1:{server.port}/samples"
    load("--make", "1000", str(root / "samples"))
    read = ["--options", '{"insecure": true}', "--kind", kind, "--workers", "3", "--batch", "30", url]
    assert load(*read).startswith(f"1,000 samples of 10,000 bytes through 3 {kind}: ")
    with open(root / "samples", "r+b") as file:
        file.seek(7_777_777)
        file.write(b"!")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        load(*read)
    assert "sample 777 is another one" in caught.value.stderr
