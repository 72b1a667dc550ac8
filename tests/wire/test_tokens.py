"""One file of a token serves server and clients, whoever wrote it, and no error shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from royale_client.config import ClientConfig
from royale_client.transport import ServerAddress
from royale_client.wire.errors import ConfigError
from royale_client.wire.tokens import MAX_TOKEN_LENGTH
from royale_server.preconditions import read_token
from tests.server.test_config import config

SECRET = "s3cret-Token+/=_42"
READ_ALIKE = {
    "alone": SECRET.encode(),
    "line feed": f"{SECRET}\n".encode(),
    "carriage return and line feed": f"{SECRET}\r\n".encode(),
    "mark of UTF-8 in front": b"\xef\xbb\xbf" + f"{SECRET}\r\n".encode(),
    "spaces around": f"  {SECRET} \n".encode(),
    "further lines": f"{SECRET}\nthe token of the lab, é\n".encode(),
}
REFUSED_ALIKE = {
    "nothing": b"",
    "an empty first line": f"\n{SECRET}\n".encode(),
    "a space inside": f"{SECRET} {SECRET}".encode(),
    "letters outside ASCII": f"{SECRET}é".encode(),
    "a control character": f"{SECRET}\x00".encode(),
    "UTF-16": SECRET.encode("utf-16"),
    "bytes that are no text": b"\xff" + SECRET.encode(),
    "more than a line of a request": SECRET.encode() * MAX_TOKEN_LENGTH,
}


@pytest.mark.parametrize("name", READ_ALIKE)
def test_server_and_client_read_the_same_token_out_of_a_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(READ_ALIKE[name])
    assert read_token(config(token_file=file), {}) == SECRET
    assert ClientConfig(token_file=file).address().token == SECRET


@pytest.mark.parametrize("name", REFUSED_ALIKE)
def test_server_and_client_refuse_the_same_files_without_showing_them(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(REFUSED_ALIKE[name])
    with pytest.raises(ConfigError) as at_server:
        read_token(config(token_file=file), {})
    with pytest.raises(ConfigError) as at_client:
        ClientConfig(token_file=file).address()
    assert str(at_client.value) == str(at_server.value)
    assert str(file) in str(at_client.value)
    assert SECRET not in str(at_client.value)


@pytest.mark.parametrize(
    "token", [f"{SECRET}\r", f"{SECRET}\r\nOrigin: http://example.com", f" {SECRET}", f"{SECRET}é"]
)
def test_a_token_that_no_header_can_carry_never_leaves_the_client(
    monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    with pytest.raises(ConfigError, match="visible ASCII") as caught:
        ServerAddress(url="ws://h:1", token=token)
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("ROYALE_TOKEN", token)
    with pytest.raises(ConfigError, match="ROYALE_TOKEN") as caught:
        ClientConfig().address()
    assert SECRET not in str(caught.value)


def test_the_length_of_a_token_is_bounded() -> None:
    assert ServerAddress(url="ws://h:1", token="x" * MAX_TOKEN_LENGTH).token is not None
    with pytest.raises(ConfigError, match="characters, expected 4096"):
        ServerAddress(url="ws://h:1", token="x" * (MAX_TOKEN_LENGTH + 1))
