"""What the command refuses before a model is loaded."""

import socket
import sys
from pathlib import Path

import pytest

from faircontext.cli import main
from faircontext.serve.options import ServeOptions


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "0.0.0.0"), "invalid host 0.0.0.0: other machines could ask without a token; give --token FILE"),
        (("--host", "::"), "invalid host ::: other machines could ask without a token"),
        (("--host", "example.org"), "invalid host example.org: other machines could ask"),
        (("--token", "none.txt"), "none.txt: no such file or directory"),
        (("--token", "short.txt"), "invalid token in short.txt: must be one word of at least 16 characters"),
        (("--token", "words.txt"), "invalid token in words.txt: must be one word of at least 16 characters"),
        (("--token", "odd.txt"), "invalid token in odd.txt: must be of ASCII letters, digits and signs"),
        (("--label-sets", "pets.txt"), "invalid label set 'pets.txt': must be NAME=FILE, for example pets=pets.txt"),
        (("--label-sets", "a=pets.txt", "a=pets.txt"), "invalid label set 'a=pets.txt': the name a is taken"),
        (("--label-sets", "a=none.txt"), "none.txt: no such file or directory"),
        (("--method", "fcl,tda"), "invalid method 'tda': its answers depend on the images before, and each request is"),
        (("--port", "70000"), "invalid port 70000: must be between 0 and 65,535"),
        (("--replicas", "0"), "replicas=0 is not possible; it must be a number of at least 1"),
        (("--queue", "0"), "queue=0 is not possible; it must be a number of at least 1"),
        (("--timeout", "0"), "timeout=0.0 is not possible"),
        (("--timeout", "1e6"), "invalid timeout 1e+06: must be at most 86,400 seconds, a day"),
        (("--upload-timeout", "1e6"), "invalid upload_timeout 1e+06: must be at most 86,400 seconds, a day"),
        (("--hosts", "http://photos.example.org"), "invalid hosts 'http://photos.example.org': must be the name of a"),
        (("--hosts", "example.org/photos"), "invalid hosts 'example.org/photos': must be the name of a host alone"),
        (("--hosts", "*.example.org"), "invalid hosts '*.example.org': must be the name of a host alone"),
        (("--allow-origin", "*"), "invalid allow_origin '*': must be scheme and host in small letters, such as https:"),
        (("--allow-origin", "https://a.org/"), "invalid allow_origin 'https://a.org/': must be scheme and host in"),
        (("--allow-origin", "photos.example.org"), "invalid allow_origin 'photos.example.org': must be scheme and"),
        (("--root-path", "photos"), "invalid root_path 'photos': must be a path such as /photos"),
        (("--root-path", "/photos/"), "invalid root_path '/photos/': must be a path such as /photos"),
        (("--token", "control.txt"), "invalid token in control.txt: must have no control characters"),
        (("--max-pixels", "0"), "max_pixels=0 is not possible"),
        (("--port", "TAKEN"), "127.0.0.1:TAKEN: cannot listen there: address already in use; choose another --port"),
        (("--host", "192.0.2.1", "--insecure", "--port", "0"), "192.0.2.1:0: cannot listen there: "),
        (("--host", "none.invalid", "--insecure", "--port", "0"), "none.invalid:0: cannot listen there: "),
    ],
)
def test_it_is_one_line(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pets.txt").write_text("cat\ndog\n")
    Path("short.txt").write_text("short")
    Path("words.txt").write_text("several words of a sentence")
    Path("control.txt").write_text("a-word-of-signs-and-\x07-a-bell")
    Path("odd.txt").write_text("wörter mit umlauten")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", *(word.replace("TAKEN", port) for word in words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"faircontext: {message.replace('TAKEN', port)}")
    assert captured.err.count("\n") == 1
    if "--insecure" in words:
        assert captured.err.endswith("; choose another --host\n")


@pytest.mark.parametrize("host", ["::1", "[::1]", "localhost", "LOCALHOST", "127.0.0.2"])
def test_the_loopback_needs_no_token(host: str) -> None:
    options = ServeOptions(host=host, hosts=("Photos.example.org", "[2001:db8::1]", "192.0.2.1"))
    assert options.is_local
    options.check()
    assert "[" not in options.address


@pytest.mark.skipif(sys.platform == "win32", reason="files have no modes")
def test_a_token_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-word-of-twenty-six-signs")
    options = ServeOptions(token=file)
    file.chmod(0o600)
    assert options.token_warning() is None
    file.chmod(0o644)
    assert options.token_warning() == f"warning: other users of this machine can read {file}: chmod 600 {file}"


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("faircontext.cli.classify.find_spec", lambda name: None if name == "uvicorn" else object())
    assert main(["serve"]) == 2
    line = "faircontext: serve needs uvicorn, which is not installed: pip install 'faircontext[serve]'\n"
    assert capsys.readouterr().err == line


def test_ray_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["serve", "--engine", "ray", "--port", "0"]) == 2
    line = "faircontext: --engine ray needs Ray Serve: pip install 'faircontext[serve,ray]'\n"
    assert capsys.readouterr().err == line


def test_help_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    assert "--label-sets" in capsys.readouterr().out
