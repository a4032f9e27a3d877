"""GTP-U frames with scapy, one a line.

    scapy_gtpu.py write SEED COUNT    writes frames: hex, a tab, what is in them
    scapy_gtpu.py read                reads frames from standard input as hex; writes what is in them
"""

import random
import sys

from scapy.contrib.gtp import (
    GTP_U_Header, GTPEchoResponse, GTPErrorIndication, GTPHeader, GTPPDUSessionContainer,
    IE_GSNAddress, IE_Recovery, IE_TEIDI,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

DOWN = ("PPI", "dlSendTime", "dlQFISeqNum")
UP = ("dlSendTimeRpt", "dlRecvTime", "ulSendTime", "dlDelayRslt", "ulDelayRslt", "UlQFISeqNum",
      "N3N9DelayRslt")


def text(outer, teid, seq, npdu, session, body):
    shown = lambda value: "-" if value is None else str(value)
    return " ".join(map(str, [*outer, teid, shown(seq), shown(npdu), session, *body]))


def session_text(kind, qfi, rqi, values):
    shown = ["-" if value is None else str(value) for value in values]
    return ",".join([kind, str(qfi), str(int(rqi)), *shown])


def addresses(rng, v6):
    if v6:
        # Without runs of zeros, an address has one form.
        group = lambda: "%x" % rng.randrange(0x1000, 0x10000)
        return [":".join(["2001"] + [group() for _ in range(7)]) for _ in range(2)]
    return ["10.%d.%d.%d" % tuple(rng.randrange(1, 255) for _ in range(3)) for _ in range(2)]


def network(rng):
    v6 = rng.random() < 0.5
    src, dst = addresses(rng, v6)
    return (IPv6 if v6 else IP)(src=src, dst=dst), (src, dst)


def container(rng):
    """A container and what is in it."""
    number = lambda bits: rng.randrange(1 << bits)
    maybe = lambda bits: number(bits) if rng.random() < 0.4 else None
    qfi = number(6)
    if rng.random() < 0.5:
        rqi, values = rng.random() < 0.5, [maybe(3), maybe(64), maybe(24)]
        flags = dict(zip(("PPP", "QMP", "SNP"), (int(v is not None) for v in values)))
        fields = {k: v for k, v in zip(DOWN, values) if v is not None}
        layer = GTPPDUSessionContainer(type=0, QFI=qfi, RQI=int(rqi), **flags, **fields)
        return layer, session_text("down", qfi, rqi, values)
    times = [number(64) for _ in range(3)] if rng.random() < 0.4 else [None] * 3
    values = times + [maybe(32), maybe(32), maybe(24), maybe(32)]
    names = ("QMP", "dlDelayInd", "ulDelayInd", "SNP", "N3N9DelayInd")
    flags = dict(zip(names, (int(v is not None) for v in values[2:])))
    fields = {k: v for k, v in zip(UP, values) if v is not None}
    layer = GTPPDUSessionContainer(type=1, QFI=qfi, **flags, **fields)
    return layer, session_text("up", qfi, False, values)


def write(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        ip, outer = network(rng)
        link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        if rng.random() < 0.3:
            link = link / Dot1Q(vlan=rng.randrange(1, 4095), prio=rng.randrange(8))
        kind = rng.choice(["g-pdu"] * 6 + ["echo-request", "echo-response", "error", "end"])
        teid = rng.randrange(1 << 32) if kind in ("g-pdu", "end") else 0
        seq = rng.randrange(1 << 16) if kind not in ("g-pdu", "end") or rng.random() < 0.3 else None
        npdu = rng.randrange(1 << 8) if kind == "g-pdu" and rng.random() < 0.2 else None
        header, session = {"teid": teid}, "-"
        if seq is not None:
            header.update(S=1, seq=seq)
        if npdu is not None:
            header.update(PN=1, npdu=npdu)
        if kind == "g-pdu":
            header.update(gtp_type=255)
            inner_ip, inner = network(rng)
            layers = inner_ip / UDP(sport=5000, dport=53) / rng.randbytes(rng.randrange(100))
            if rng.random() < 0.7:
                header.update(E=1, next_ex=0x85)
                layer, session = container(rng)
                layers = layer / layers
            body = (kind, *inner)
        elif kind == "echo-request":
            header.update(gtp_type=1)
            layers, body = None, (kind,)
        elif kind == "echo-response":
            header.update(gtp_type=2)
            counter = rng.randrange(256)
            layers = GTPEchoResponse(IE_list=[IE_Recovery(restart_counter=counter)])
            body = (kind, counter)
        elif kind == "error":
            header.update(gtp_type=26)
            v6 = rng.random() < 0.5
            peer, gone = addresses(rng, v6)[0], rng.randrange(1 << 32)
            address = {"length": 16, "ipv6_address": peer} if v6 else {
                "length": 4, "ipv4_address": peer}
            layers = GTPErrorIndication(IE_list=[IE_TEIDI(TEIDI=gone), IE_GSNAddress(**address)])
            body = (kind, gone, peer)
        else:
            header.update(gtp_type=254)
            layers, body = None, (kind,)
        frame = link / ip / UDP(sport=rng.randrange(1024, 65536), dport=2152)
        frame = frame / GTP_U_Header(**header)
        if layers is not None:
            frame = frame / layers
        print(bytes(frame).hex(), text(outer, teid, seq, npdu, session, body), sep="\t")


def read():
    for line in sys.stdin:
        frame = Ether(bytes.fromhex(line))
        udp = frame[UDP]
        ip, header = udp.underlayer, udp.payload
        assert isinstance(header, GTPHeader), frame.summary()
        layer, session = header.payload, "-"
        if header.E:
            if isinstance(layer, GTPPDUSessionContainer):
                kind, names = ("up", UP) if layer.type else ("down", DOWN)
                values = [getattr(layer, name) for name in names]
                session = session_text(kind, layer.QFI, not layer.type and layer.RQI, values)
                layer = layer.payload
        if header.gtp_type == 255:
            body = ("g-pdu", layer.src, layer.dst)
        elif header.gtp_type == 1:
            body = ("echo-request",)
        elif header.gtp_type == 2:
            body = ("echo-response", layer.IE_list[0].restart_counter)
        elif header.gtp_type == 26:
            teid, address = layer.IE_list
            peer = address.ipv4_address if address.length == 4 else address.ipv6_address
            body = ("error", teid.TEIDI, peer)
        else:
            body = ("end",)
        assert header.length == len(header) - 8
        seq = header.seq if header.S else None
        npdu = header.npdu if header.PN else None
        print(text((ip.src, ip.dst), header.teid, seq, npdu, session, body))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(int(sys.argv[2]), int(sys.argv[3]))
    else:
        read()
