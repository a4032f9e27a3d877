"""A session of `overbank gateway` by PFCP, as a session management (SMF) makes it. Needs scapy 2.8.

    smf.py OWN GATEWAY GNB GNB_TEID TERMINAL

Sets up an association and a session, prints the TEID that the gateway chose, and waits for the end
of its input; then deletes the session and prints its usage.
"""

import select
import socket
import sys

from scapy.contrib.pfcp import *

own, gateway, gnb, gnb_teid, terminal = sys.argv[1:6]
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind((own, 8805))
port.settimeout(5)
sequence = 0


def group(kind, *elements):
    return kind(IE_list=list(elements))


def send(header, message):
    port.sendto(bytes(header / message), (gateway, 8805))


def ask(message, seid=None):
    """Sends a request and returns its answer, which must accept it."""
    global sequence
    sequence += 1
    header = PFCP(seq=sequence, S=0) if seid is None else PFCP(seq=sequence, S=1, seid=seid)
    send(header, message)
    while True:
        answer = PFCP(port.recv(4000))
        if answer.seq == sequence and not answer_request(answer):
            break
    if answer.haslayer(IE_Cause) and answer[IE_Cause].cause != 1:
        sys.exit("refused:\n" + answer.show(dump=True))
    return answer


def answer_request(request):
    """Answers what the gateway asks: heartbeats and session reports."""
    if request.haslayer(PFCPHeartbeatRequest):
        send(PFCP(seq=request.seq, S=0), PFCPHeartbeatResponse(IE_list=[stamp]))
    elif request.haslayer(PFCPSessionReportRequest):
        print("report:", request.summary(), flush=True)
        accepted = PFCPSessionReportResponse(IE_list=[IE_Cause(cause=1)])
        send(PFCP(seq=request.seq, S=1, seid=their_seid), accepted)
    else:
        return False
    return True


node = IE_NodeId(id_type=0, ipv4=own)
stamp = IE_RecoveryTimeStamp(timestamp=3785653512)
ask(PFCPAssociationSetupRequest(IE_list=[node, stamp]))
uplink = group(
    IE_CreatePDR, IE_PDR_Id(id=1), IE_Precedence(precedence=100),
    group(IE_PDI, IE_SourceInterface(interface="Access"), IE_FTEID(CH=1, V4=1)),
    IE_OuterHeaderRemoval(header="GTP-U/UDP/IPv4"), IE_FAR_Id(id=1), IE_QER_Id(id=1),
    IE_URR_Id(id=1))
downlink = group(
    IE_CreatePDR, IE_PDR_Id(id=2), IE_Precedence(precedence=100),
    group(IE_PDI, IE_SourceInterface(interface="Core"),
          IE_UE_IP_Address(V4=1, ipv4=terminal, SD=1)),
    IE_FAR_Id(id=2), IE_QER_Id(id=1), IE_URR_Id(id=1))
to_network = group(
    IE_CreateFAR, IE_FAR_Id(id=1), IE_ApplyAction(FORW=1),
    group(IE_ForwardingParameters, IE_DestinationInterface(interface="Core")))
to_gnb = group(
    IE_CreateFAR, IE_FAR_Id(id=2), IE_ApplyAction(FORW=1),
    group(IE_ForwardingParameters, IE_DestinationInterface(interface="Access"),
          IE_OuterHeaderCreation(GTPUUDPIPV4=1, TEID=int(gnb_teid, 0), ipv4=gnb)))
flow = group(IE_CreateQER, IE_QER_Id(id=1), IE_GateStatus(ul=0, dl=0), IE_QFI(QFI=9))
volume = group(IE_CreateURR, IE_URR_Id(id=1), IE_MeasurementMethod(VOLUM=1),
               IE_ReportingTriggers(volume_threshold=1),
               IE_VolumeThreshold(TOVOL=1, total=1_000_000_000))
answer = ask(group(PFCPSessionEstablishmentRequest, node, IE_FSEID(v4=1, seid=1, ipv4=own),
                   uplink, downlink, to_network, to_gnb, flow, volume), 0)
their_seid = answer[IE_FSEID].seid
print("TEID", hex(answer[IE_FTEID].TEID), flush=True)
while True:
    ready, _, _ = select.select([port, sys.stdin], [], [])
    if port in ready:
        answer_request(PFCP(port.recv(4000)))
    if sys.stdin in ready and not sys.stdin.readline():
        break
usage = ask(PFCPSessionDeletionRequest(), their_seid)[IE_VolumeMeasurement]
print("deleted; bytes up", usage.uplink, "down", usage.downlink, flush=True)
