"""A base station and a terminal: what is sent by interface `ue0` goes into a GTP-U tunnel.

    gnb.py OWN GATEWAY TEID OWN_TEID TERMINAL
"""

import fcntl
import os
import select
import socket
import struct
import subprocess
import sys

own, gateway, teid, own_teid, terminal = sys.argv[1:6]
teid, own_teid = int(teid, 0), int(own_teid, 0)
tun = os.open("/dev/net/tun", os.O_RDWR)
TUNSETIFF, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"ue0", TUN_WITHOUT_HEADER))
subprocess.run(["ip", "address", "add", terminal + "/32", "dev", "ue0"], check=True)
subprocess.run(["ip", "link", "set", "ue0", "mtu", "1400", "up"], check=True)
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind((own, 2152))
# A PDU Session Container with QFI 9: optional fields, one extension header, none after it.
CONTAINER = bytes([0, 0, 0, 0x85, 1, 0x10, 9, 0])


def packet_of(message):
    """The packet in a G-PDU, behind its extension headers."""
    flags, kind, _, to = struct.unpack("!BBHI", message[:8])
    if kind != 255 or to != own_teid:
        print("another message:", message.hex(), flush=True)
        return None
    if not flags & 7:
        return message[8:]
    at, following = 12, message[11] if flags & 4 else 0
    while following:
        at += 4 * message[at]
        following = message[at - 1]
    return message[at:]


print("ue0 is up", flush=True)
while True:
    ready, _, _ = select.select([tun, port], [], [])
    if tun in ready:
        packet = os.read(tun, 2000)
        # IPv6 of the interface itself is no packet of the terminal.
        if packet[0] >> 4 == 4:
            head = struct.pack("!BBHI", 0x34, 255, len(CONTAINER) + len(packet), teid)
            port.sendto(head + CONTAINER + packet, (gateway, 2152))
    if port in ready:
        packet = packet_of(port.recv(2000))
        if packet:
            os.write(tun, packet)
