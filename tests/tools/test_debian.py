"""The Debian package: its version, its units and settings. `make deb` builds it."""

import gzip
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.debian import (
    CONFIGURATIONS,
    EXTRAS,
    PROGRAMS,
    ROOT,
    SOURCES,
    debian_version,
    files,
    forget_origins,
    pip_options,
)

UNITS = {program: (SOURCES / f"{program}.service").read_text(encoding="utf-8") for program in PROGRAMS}
SCRIPTS = ("postinst", "prerm", "postrm")


def setting(unit: str, name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", UNITS[unit], re.MULTILINE)
    return str(value)


def newer(first: str, second: str) -> bool:
    """Whether dpkg takes the first version for the newer one."""
    if shutil.which("dpkg") is None:
        pytest.skip("dpkg is not installed")
    compared = subprocess.run(["dpkg", "--compare-versions", first, "gt", second], check=False)
    return compared.returncode == 0


def test_the_version_of_a_release_is_newer_than_builds_before_it_and_older_than_builds_after_it() -> None:
    def version(text: str, *, released: bool, tagged: bool) -> str:
        return debian_version(
            text, commit="0123456789", date="20261128120000", released=released, tagged=tagged
        )

    before = version("1.2.0", released=False, tagged=False)
    release = version("1.2.0", released=True, tagged=True)
    after = version("1.2.0", released=True, tagged=False)
    candidate = version("1.2.0rc1", released=True, tagged=True)
    assert (before, release, after) == (
        "1.2.0~git20261128120000.0123456-1",
        "1.2.0-1",
        "1.2.0+git20261128120000.0123456-1",
    )
    assert candidate == "1.2.0~rc1-1"
    assert newer(release, before)
    assert newer(after, release)
    assert newer(release, candidate)
    assert newer(version("1.3.0", released=False, tagged=False), after)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_units_start_the_programs_with_settings_that_are_installed(program: str) -> None:
    words = setting(program, "ExecStart").split()
    assert words[:2] == [f"/usr/bin/{program}", "serve"]
    assert Path(words[words.index("--config") + 1].removeprefix("/")) in CONFIGURATIONS.values()
    assert setting(program, "Type") == "notify"
    assert setting(program, "User") == setting(program, "StateDirectory") == program
    assert setting(program, "ProtectSystem") == "strict"
    assert setting(program, "NoNewPrivileges") == "yes"
    assert int(setting(program, "LimitNOFILE")) >= 65536


@pytest.mark.parametrize(("name", "target"), CONFIGURATIONS.items())
def test_the_settings_are_valid_and_for_this_machine_only(name: str, target: Path, tmp_path: Path) -> None:
    text = (SOURCES / name).read_text(encoding="utf-8")
    program = "knative-gateway" if "gateway" in str(target) else "amqp-streams"
    assert f"/{target}" in UNITS[program]
    assert set(re.findall(r'^[a-z_]*listen = \[?"([^:]*):', text, re.MULTILINE)) == {"127.0.0.1"}
    assert f'"/var/lib/{program}/' in text, "the folder that the service may write"
    file = tmp_path / name
    file.write_text(text.replace("/var/lib", str(tmp_path)), encoding="utf-8")
    command = [str(Path(sys.executable).parent / program), "serve", "--config", str(file), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_systemd_accepts_the_units(program: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / f"{program}.service"
    unit.write_text(UNITS[program].replace(f"/usr/bin/{program}", "/bin/true"), encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd cannot be asked here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
    broken = unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=very")
    unit.write_text(broken, encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "protect system" in done.stderr, "the check would not notice a fault"


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_valid_and_delete_nothing(name: str) -> None:
    script = SOURCES / name
    subprocess.run(["sh", "-n", str(script)], check=True)
    text = script.read_text(encoding="utf-8")
    assert "set -e" in text
    assert not re.search(r"(?:^|\s)(?:rm|rmdir|deluser|delgroup|userdel)\s", text, re.MULTILINE)


def test_pip_installs_the_wheel_that_was_built_and_not_a_later_one_of_its_name(tmp_path: Path) -> None:
    def wheel(folder: Path, name: str, version: str, *extras: str) -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}-{version}-py3-none-any.whl"
        lines = ["Metadata-Version: 2.1", f"Name: {name.replace('_', '-')}", f"Version: {version}"]
        lines += [f"Provides-Extra: {extra}" for extra in extras]
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{info}/METADATA", "\n".join(lines) + "\n")
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        return path

    built = wheel(tmp_path / "built", "amqp_event_streams", "1.0", *EXTRAS.split(","))
    proton = wheel(tmp_path / "built", "python_qpid_proton", "0.40.0")
    for name in ("amqp_event_streams", "python_qpid_proton"):
        wheel(tmp_path / "index", name, "99.0", *EXTRAS.split(","))
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("")
    options = pip_options(built, proton, constraints)
    packages = tmp_path / "packages"
    # The folder stands for an index on which another publisher has later versions.
    command = ["install", *options, "--no-index", "--find-links", str(tmp_path / "index")]
    command += ["--target", str(packages), "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, timeout=120)
    versions = ["amqp_event_streams-1.0.dist-info", "python_qpid_proton-0.40.0.dist-info"]
    assert sorted(path.name for path in packages.glob("*.dist-info")) == versions
    forget_origins(packages)
    for info in packages.iterdir():
        assert not (info / "direct_url.json").exists()
        assert "direct_url" not in (info / "RECORD").read_text()
        assert "METADATA" in (info / "RECORD").read_text()


def test_the_files_are_those_of_the_commit(tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    shutil.copytree(SOURCES, source / SOURCES.relative_to(ROOT))
    (source / "CHANGELOG.md").write_text("of the commit")
    for name in (*CONFIGURATIONS, *(f"{program}.service" for program in PROGRAMS)):
        (source / SOURCES.relative_to(ROOT) / name).write_text("of the commit")
    files(tree, source, "1.0-1", 0)
    units = [Path("lib/systemd/system") / f"{program}.service" for program in PROGRAMS]
    copied = [*CONFIGURATIONS.values(), *units]
    assert {(tree / path).read_text() for path in copied} == {"of the commit"}
    changes = gzip.decompress((tree / "usr/share/doc/amqp-streams/changelog.gz").read_bytes())
    assert changes == b"of the commit"
