"""A wheel of python-qpid-proton, which its authors publish as source only.

It is built without OpenSSL and Cyrus SASL: this project uses Python's `ssl` and its own SASL, and a bundled
OpenSSL would need a release for each of its security fixes. The build tag says so. It uses the stable ABI,
which its authors compile for but do not declare, so that one wheel serves Python 3.11 and later.
"""

import os
import re
import sys
from pathlib import Path
from typing import Final

from tools.release.archives import contents, write_wheel
from tools.release.building import ABI_TAG, check_library, reproducible_variables, wheel_tags
from tools.release.errors import output

VERSION: Final = "0.40.0"
SDIST_SHA256: Final = "7680d607cf6e9684f97bf5b2ba16cda7d8512aab9e4ff78f98d44a4644fc819a"
BUILD_TAG: Final = "1notls"
LIBRARY: Final = "cproton_ffi.abi3.so"
_INFO: Final = f"python_qpid_proton-{VERSION}.dist-info"
_NOTICE: Final = f"""\
This wheel is a build of Apache Qpid Proton {VERSION}, https://qpid.apache.org/proton/
Copyright The Apache Software Foundation, Apache License 2.0 (LICENSE in this folder).

The amqp-event-streams project built it from the unchanged source archive python_qpid_proton-{VERSION}.tar.gz
(SHA-256 {SDIST_SHA256}).
It is not a release of the Apache Software Foundation.

It is built without OpenSSL and without Cyrus SASL: `proton.SSL` and SASL mechanisms other than ANONYMOUS,
PLAIN and EXTERNAL are not available to programs that use Proton directly. If you need them, install from
source: pip install --no-binary python-qpid-proton python-qpid-proton=={VERSION}
"""


def build_proton(folder: Path, work: Path, *, license_text: bytes, epoch: int) -> Path:
    """Build the wheel into `folder`. `license_text`: the Apache License, which the source archive lacks.

    Raises:
        ReleaseError: the archive is not the one that is known, or the build fails.
    """
    work.mkdir(parents=True, exist_ok=True)
    wanted = work / "wanted.txt"
    wanted.write_text(f"python-qpid-proton=={VERSION} --hash=sha256:{SDIST_SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes", "--no-binary=python-qpid-proton"]
    # pkg-config that finds nothing: then the build uses neither OpenSSL nor Cyrus SASL.
    variables = {**os.environ, **reproducible_variables(epoch, work), "PKG_CONFIG_LIBDIR": os.devnull}
    variables.pop("PKG_CONFIG_PATH", None)
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(work)]
    output([*command, "--requirement", str(wanted)], variables=variables)
    [wheel] = work.glob("python_qpid_proton-*.whl")
    files = contents(wheel)
    check_library(files, LIBRARY)
    licenses = {"LICENSE": license_text, "NOTICE": _NOTICE.encode()}
    added = {f"{_INFO}/licenses/{name}": text for name, text in licenses.items()}
    metadata = files[f"{_INFO}/METADATA"].decode()
    lines = "".join(f"License-File: {name}\n" for name in licenses)
    described = re.sub(r"(?m)^(?=Requires-Dist:|Provides-Extra:|\n)", lines, metadata, count=1)
    changed = {**files, **added, f"{_INFO}/METADATA": described.encode()}
    return write_wheel(changed, folder, tags=wheel_tags(ABI_TAG, wheel), build=BUILD_TAG, epoch=epoch)
