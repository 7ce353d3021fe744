"""Sets up the network of the jail: no device, a private loopback device, or a loopback device on which the server's
proxy listens.

Runs inside the jail's network namespace, in the process that becomes the jail. Standard library only.
"""

from __future__ import annotations

import fcntl
import socket
import struct

PROXY = ("127.0.0.1", 3128)
"""The address of the proxy inside the jail, on the usual proxy port."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1
BACKLOG = 64


def loopback_up() -> None:
    """Bring the loopback device up. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def listener() -> socket.socket:
    """Create the socket for the proxy. It belongs to this network namespace no matter which process accepts on it.
    Raises OSError."""
    return socket.create_server(PROXY, backlog=BACKLOG)


def variables() -> dict[str, str]:
    """Return the environment variables by which libraries and tools find the proxy."""
    url = f"http://{PROXY[0]}:{PROXY[1]}"
    own = "localhost,127.0.0.1,::1"
    variables = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": own}
    return variables | {name.lower(): value for name, value in variables.items()}
