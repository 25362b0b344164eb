"""Install a release into new environments, with no compiler in reach, and use each for what it is for."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from service_parts.extras import DISTRIBUTION
from tools.release.errors import output
from tools.release.proton import LIBRARY
from tools.trials import (
    InstalledNode,
    TrialError,
    ran,
    timed,
    try_client,
    try_gateway,
    try_node,
    try_spark,
    variables,
)

_PROBE: Final = (
    "from pathlib import Path; import cproton_ffi; from amqp_streams.proton import compiled;"
    "print(Path(cproton_ffi.__file__).name, b'libssl' in Path(cproton_ffi.__file__).read_bytes(),"
    " compiled.loops is not None)"
)
SBOM_EXTRAS: Final = "cloudevents,compression,console,gateway,kafka,node,tracing"


def install(release: Path, wanted: str, folder: Path, root: Path) -> Path:
    """Install a requirement from the folder of a release and the package index into an environment.

    Only wheels are taken, and there is no compiler on the PATH. Everything is pinned as we test it.
    """
    output([sys.executable, "-m", "venv", str(folder)], variables=os.environ)
    options = ["--quiet", "--only-binary", ":all:", "--find-links", str(release)]
    # PySpark has no wheel, and compiles nothing.
    options += ["--no-binary", "pyspark"] if "spark" in wanted else []
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", *options]
    command += ["--constraint", str(root / "constraints.txt"), wanted]
    output(command, variables=variables(folder))
    return folder


def check_installations(
    release: Path, version: str, work: Path, root: Path, report: Callable[[str], None]
) -> Path:
    """Install and try client, node, gateway and Spark; the environment that the SBOM lists.

    Raises:
        TrialError: an installation does not do what it is for.
        ReleaseError: an installation fails.
    """

    def installed(extras: str, name: str) -> Path:
        wanted = f"{DISTRIBUTION}[{extras}]=={version}" if extras else f"{DISTRIBUTION}=={version}"
        with timed(f"install {wanted}", report):
            return install(release, wanted, work / name, root)

    node = installed("node", "node")
    found = ran(node, "python", "-c", _PROBE).split()
    if found != [LIBRARY, "False", "True"]:
        message = f"the environment does not have the libraries of the release: {found}"
        raise TrialError(message)
    with timed("node: send, restart, receive", report):
        try_node(node, work / "node-data")
    client = installed("", "client")
    with InstalledNode(node, work / "data") as running:
        with timed("client: send and receive", report):
            try_client(client, running.url)
        spark = installed("spark", "spark")
        java = shutil.which("java")
        if java is None:
            report("Spark: not tried, because this machine has no Java")
        else:
            with timed("Spark: read", report):
                try_spark(spark, running.url, java)
    shutil.rmtree(spark)
    everything = installed(SBOM_EXTRAS, "everything")
    with timed("gateway: Broker, HTTP in, AMQP out", report):
        try_gateway(everything, work / "gateway-state")
    return everything
