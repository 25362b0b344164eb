"""`python -m fuzz.conformance`: schemathesis against a gateway with its log node.

Every operation of the OpenAPI document is called with generated input. No answer is a fault of the server,
and each has a documented status, media type and schema. Ends with 1 if one has not.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from examples.gateway import GatewayProcess

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
DOCUMENTS: Final = (
    "openapi/v3/api/v1",
    "openapi/v3/apis/eventing.knative.dev/v1",
    "openapi/v3/apis/messaging.knative.dev/v1",
    "openapi/v3/apis/apiextensions.k8s.io/v1",
    "openapi.json",
)
REQUEST_S: Final = 30
CONFIGURATION: Final = """
[parameters]
"query.timeoutSeconds" = "1"
"""
"""A watch lasts as long as this parameter says, an hour by default."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.conformance", description=__doc__)
    parser.add_argument(
        "documents", nargs="*", default=DOCUMENTS, metavar="DOCUMENT", help=", ".join(DOCUMENTS)
    )
    parser.add_argument("--examples", type=int, default=30, help="for each operation (30)")
    parser.add_argument("--seed", type=int, help="the same seed makes the same requests")
    parser.add_argument("--phases", default="examples,coverage,fuzzing")
    given = parser.parse_args(arguments)
    command = shutil.which("schemathesis", path=str(Path(sys.executable).parent)) or shutil.which(
        "schemathesis"
    )
    if command is None:
        parser.error("schemathesis is not installed: pip install '.[fuzz]'")
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}: --seed {seed} makes the same requests again", flush=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="fuzz-conformance-") as folder:
        configuration = Path(folder) / "schemathesis.toml"
        configuration.write_text(CONFIGURATION)
        with GatewayProcess(Path(folder)) as gateway:
            for document in given.documents:
                print(f"{document}:", flush=True)
                done = subprocess.run(
                    [
                        command,
                        "--config-file",
                        str(configuration),
                        "run",
                        f"{gateway.base_url}/{document}",
                        "--url",
                        gateway.base_url,
                        "--checks",
                        ",".join(CHECKS),
                        "--phases",
                        given.phases,
                        "--max-examples",
                        str(given.examples),
                        "--seed",
                        str(seed),
                        "--request-timeout",
                        str(REQUEST_S),
                        "--continue-on-failure",
                        "--warnings",
                        "off",
                        "--no-color",
                        "--suppress-health-check",
                        "all",
                    ],
                    cwd=folder,
                    check=False,
                )
                if done.returncode:
                    failed.append(document)
            words = gateway.words
    if "Traceback" in words:
        print(words[words.index("Traceback") :][:8000])
        failed.append("the gateway's log")
    print(f"failed: {', '.join(failed)}" if failed else "every answer is documented")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
