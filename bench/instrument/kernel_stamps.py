"""The moment at which the kernel received a packet, which Linux writes beside the data (SO_TIMESTAMPNS).

Facts of the operating system, used by the load client and by the reference server that judges it: neither
takes them from the other.
"""

import math
import selectors
import socket
import struct
from collections.abc import Sequence

# Python names the constant on few systems; only Linux (the one with epoll) stamps in nanoseconds.
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35) if hasattr(selectors, "EpollSelector") else None
STAMP = struct.Struct("@ll")  # seconds and nanoseconds of the wall clock
ANCILLARY_BYTES = 64  # room for one stamp beside the data of `recvmsg`


def request(sock: socket.socket) -> bool:
    """Have the kernel stamp what arrives at `sock`; a listening socket hands this on to its connections.

    Returns False where the system has no such stamps.
    """
    if SO_TIMESTAMPNS:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return bool(SO_TIMESTAMPNS)


def wall_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """The stamp in the ancillary data of one `recvmsg`, s on the wall clock; NaN where there is none."""
    if not ancillary:
        return math.nan
    seconds, nanoseconds = STAMP.unpack_from(ancillary[0][2])
    return seconds + nanoseconds * 1e-9
