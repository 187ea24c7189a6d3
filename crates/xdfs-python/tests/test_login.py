"""Logins, trust in servers, and the user's settings: those of the program, and those given here."""

import os
import subprocess

import fsspec
import pytest

import xdfs

PROGRAM = os.environ.get("XDFS_PROGRAM", "")


def key_pair(folder):
    """Makes a key pair as a user does, and returns the file of the secret one, and the public one."""
    environment = {**os.environ, "XDFS_CONFIG_DIR": str(folder)}
    made = subprocess.run([PROGRAM, "keygen"], env=environment, check=True, capture_output=True, text=True)
    return folder / "id_ed25519", made.stdout


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A protected server, with its URL and fingerprint, and the folders of a user and of its files."""
    if not os.path.exists(PROGRAM):
        pytest.skip("the program xdfs isn't built, which is the server")
    folders = [tmp_path / name for name in ("settings", "server", "files", "stranger")]
    settings, server, files, stranger = folders
    for folder in folders:
        folder.mkdir(mode=0o700)
    (server / "server").mkdir(mode=0o700)
    _, public = key_pair(settings)
    (server / "server" / "authorized_keys").write_text(public)
    (files / "sub").mkdir()
    monkeypatch.setenv("XDFS_CONFIG_DIR", str(settings))
    command = [PROGRAM, "serve", "--listen", "127.0.0.1:0", "--root", str(files)]
    environment = {**os.environ, "XDFS_CONFIG_DIR": str(server)}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, **output) as process:
        said = {}
        while "fingerprint" not in said:
            line = process.stdout.readline()
            assert line, "the server has ended"
            word, _, rest = line.strip().partition(" ")
            said[word] = rest
        yield f"xdfs://{said['listening'].removeprefix('on ')}/", said["fingerprint"], settings, stranger
        process.terminate()


def test_a_server_is_known_by_its_key(guarded):
    url, fingerprint, settings, _ = guarded
    with xdfs.Client(url) as client, pytest.raises(xdfs.Fault, match="fingerprint|known"):
        client.list()
    wrong = fingerprint[:-1] + ("A" if fingerprint[-1] != "A" else "E")
    with xdfs.Client(url, pin=wrong) as client, pytest.raises(xdfs.Fault):
        client.list()
    with xdfs.Client(url, pin=fingerprint) as client:
        assert [info.name for info in client.list()] == ["sub"]
        assert client.server_fingerprint == fingerprint and client.user
    with xdfs.Client(url) as client, pytest.raises(xdfs.Fault):
        client.list()
    # It is remembered once it was accepted.
    for options in ({"accept_new": True}, {}, {"known_only": True}):
        with xdfs.Client(url, **options) as client:
            assert client.exists("sub")
    fs, path = fsspec.core.url_to_fs(url + "sub", skip_instance_cache=True)
    assert fs.info(path)["type"] == "directory"
    fs.close()


def test_a_user_is_known_by_a_key(guarded):
    url, fingerprint, settings, stranger = guarded
    secret, _ = key_pair(stranger)
    with xdfs.Client(url, pin=fingerprint, key=secret) as client:
        with pytest.raises(PermissionError) as caught:
            client.list()
        assert isinstance(caught.value, xdfs.LoginFailed)
    own = settings / "id_ed25519"
    moved = own.rename(stranger / "moved")
    with xdfs.Client(url, pin=fingerprint, agent=False) as client, pytest.raises(xdfs.Fault):
        client.list()
    for key in (moved, str(moved)):
        with xdfs.Client(url, pin=fingerprint, key=key) as client:
            client.upload_bytes(b"x", "sub/file", overwrite=True)
    with pytest.raises(xdfs.Fault), xdfs.Client(url, pin=fingerprint, key=stranger / "none") as client:
        client.list()


def test_servers_have_the_names_of_the_settings(guarded):
    url, fingerprint, settings, _ = guarded
    (settings / "config.toml").write_text(f'[remote.lab]\nurl = "{url}sub"\npin = "{fingerprint}"\n')
    with xdfs.Client("lab:") as client:
        client.upload_bytes(b"x", "file")
    with xdfs.Client("lab:/sub") as client:
        assert [info.name for info in client.list()] == ["file"]
        # Trees open sessions of their own, by the same settings.
        client.sync_from("", settings / "back")
    assert (settings / "back" / "file").read_bytes() == b"x"
    with pytest.raises(xdfs.InvalidArgument, match="no server has that name"):
        xdfs.Client("lob:")
