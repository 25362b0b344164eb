"""The places and the installer of the products that `make bench` compares with."""

from pathlib import Path

import pytest

from bench.products import install, places


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for products of this test."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path))
    return tmp_path


def test_a_product_is_where_the_variable_says(folder: Path) -> None:
    (folder / "kafka").mkdir()
    assert places.home("kafka") == folder / "kafka"
    assert places.why_missing("kafka") == ""


def test_a_product_that_is_not_there_says_how_to_install_it() -> None:
    assert places.home("kafka") is None
    assert places.why_missing("kafka") == "not installed: make peers"


def test_the_first_product_of_a_new_clone_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make kafka` and `make cluster` ended with a traceback: the folder did not exist."""
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "build" / "peers"))
    monkeypatch.setattr(install, "STEPS", {"kafka": lambda part: (part / "jar").touch()})
    assert install.installed("kafka")
    assert (tmp_path / "build" / "peers" / "kafka" / "jar").exists()


def test_a_half_made_product_is_not_there(folder: Path) -> None:
    (folder / "kafka.part").mkdir()
    assert places.home("kafka") is None


def test_an_installation_moves_the_product_to_its_place_at_the_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def step(part: Path) -> None:
        assert places.home("kafka") is None
        (part / "jar").touch()
        seen.append(part)

    monkeypatch.setattr(install, "STEPS", {"kafka": step})
    assert install.main([]) == 0
    assert install.main([]) == 0
    assert seen == [folder / "kafka.part"], "what is there is not installed again"
    assert (folder / "kafka" / "jar").exists()


def test_a_product_that_fails_is_named_with_its_reason_and_the_others_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(part: Path) -> None:
        (part / "kept").touch()
        raise install.InstallError("needs the command mvn: apt-get install maven")

    def works(part: Path) -> None:
        (part / "it").touch()

    monkeypatch.setattr(install, "STEPS", {"kafka": fails, "artemis": works})
    assert install.main([]) == 1
    assert "kafka: needs the command mvn" in capsys.readouterr().err
    assert places.why_missing("kafka") == "needs the command mvn: apt-get install maven"
    assert places.home("artemis") is not None

    def resumes(part: Path) -> None:
        assert (part / "kept").exists()

    monkeypatch.setattr(install, "STEPS", {"kafka": resumes})
    assert install.main([]) == 0
    assert places.why_missing("kafka") == ""


def test_an_unknown_product_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        install.main(["--only", "kafak"])
    assert stopped.value.code == 2
    assert "unknown product 'kafak'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\n",
        "deb http://mirror.test/debian bookworm main\n",
        "# deb http://old.test/debian x\ndeb [signed-by=/k.gpg] http://mirror.test/debian bookworm main\n",
    ],
)
def test_the_archive_of_debian_packages_is_that_of_the_machine(text: str) -> None:
    assert install.mirror(["", text]) == "http://mirror.test/debian"


def test_without_a_source_of_packages_the_error_says_so() -> None:
    with pytest.raises(install.InstallError, match="no source of Debian packages"):
        install.mirror([])


def test_a_root_of_its_own_mounts_where_others_do_not_see_it() -> None:
    command = install.private_root(Path("/r"), ["rabbitmq-server", "-x"])
    assert command[:2] == ["unshare", "--mount"]
    assert command[-3:] == ["/r", "rabbitmq-server", "-x"]
