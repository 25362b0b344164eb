"""Secrets come from files and commands, and no message contains them."""

from pathlib import Path

import pytest

from service_parts.command_line.contexts.secrets import secret
from service_parts.errors import SettingError


def test_a_secret_is_the_first_line_of_a_file_or_of_what_a_command_prints(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("s3cret\nmore\n")
    assert secret({"password_file": str(tmp_path / "file")}, "password") == "s3cret"
    assert secret({"token_command": "printf '%s\\n' 'a b'"}, "token") == "a b"
    assert secret({"password_file": str(tmp_path / "file")}, "token") is None


def test_no_shell_runs_the_command(tmp_path: Path) -> None:
    assert secret({"password_command": f"echo x; touch {tmp_path / 'made'}"}, "password") == (
        f"x; touch {tmp_path / 'made'}"
    )
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"password_file": "no-such-file"}, "cannot be read from no-such-file: No such file or directory"),
        (
            {"password_command": "no-such-program x"},
            "'no-such-program x' for the password of the context cannot",
        ),
        ({"password_command": "false"}, "'false' for the password of the context ended with 1"),
        ({"password_command": "true"}, "the command 'true' has no password: its first line is empty"),
        ({"password_command": "'"}, "is not valid: No closing quotation"),
    ],
)
def test_a_secret_that_cannot_be_read_is_reported(settings: dict[str, str | bool], sentence: str) -> None:
    with pytest.raises(SettingError) as raised:
        secret(settings, "password")
    assert sentence in str(raised.value)


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="is not UTF-8"):
        secret({"token_file": str(tmp_path / "file")}, "token")
