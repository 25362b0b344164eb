"""login URL with Qpid Proton's BlockingConnection. See ../README.md."""

import os
import sys

from proton import ProtonException, SSLDomain
from proton.utils import BlockingConnection


def domain() -> SSLDomain:
    """TLS with the authority, and our certificate if there is one."""
    made = SSLDomain(SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(os.environ["LOGIN_CA"])
    made.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if os.environ.get("LOGIN_CERT"):
        made.set_credentials(os.environ["LOGIN_CERT"], os.environ["LOGIN_KEY"], None)
    return made


def main() -> None:
    """Print `in`, or `refused` and why."""
    url = sys.argv[2].replace("127.0.0.1", "localhost")
    user, password = os.environ.get("LOGIN_USER") or None, os.environ.get("LOGIN_PASSWORD") or None
    try:
        connection = BlockingConnection(
            url,
            timeout=10,
            ssl_domain=domain() if url.startswith("amqps") else None,
            user=user,
            password=password,
            allowed_mechs=os.environ["LOGIN_MECHANISM"],
            reconnect=False,
        )
    except ProtonException as error:
        print(f"refused: {error}")
        return
    print("in")
    connection.close()


if __name__ == "__main__":
    main()
