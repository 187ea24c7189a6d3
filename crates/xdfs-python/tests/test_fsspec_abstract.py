"""The abstract tests of fsspec itself, all of them."""

import posixpath

import fsspec
import fsspec.tests.abstract as abstract
import pytest

import xdfs


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    @classmethod
    def fs(cls):
        with xdfs.Server() as server:
            fs = fsspec.filesystem("xdfs", host="127.0.0.1", port=server.port, insecure=True)
            yield fs
            fs.close()

    @pytest.fixture
    def fs_path(self):
        return "/tests"

    @pytest.fixture
    def fs_join(self):
        return posixpath.join


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass
