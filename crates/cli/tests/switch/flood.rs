//! A flood at a running gateway: five times as much garbage as packets of a session, both ways.
//!
//! The packets' loss is read from counters. Where the machine is too slow for the rate, frames are
//! missed before the gateway sees them: then the flood is tried again at a lower rate.

use crate::gateway::{HEADER, Site};
use crate::process::{Running, must, totals_of};
use std::fs;

/// Rounds, of one valid frame and five others in each direction.
const ROUNDS: u64 = 2_000;
const GARBAGE: u64 = 5;

/// Sends the frames of `ROUNDS`, in batches of ten with a pause between them, from the namespace of
/// one of the ports.
const SENDER: &str = r#"
import os,socket,struct,sys,time
side,gateway,rounds,pause=sys.argv[1],bytes.fromhex(sys.argv[2].replace(':','')),int(sys.argv[3]),float(sys.argv[4])
s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW);s.bind(('eth0',0))
link=gateway+b'\2\0\0\0\0\x13\x08\0'
def ip(src,dst,body,proto=17,frag=0x4000):
    h=struct.pack('!BBHHHBBH4s4s',69,0,20+len(body),0,frag,64,proto,0,socket.inet_aton(src),socket.inet_aton(dst))
    c=sum(struct.unpack('!10H',h));c=(c&65535)+(c>>16);c=~((c&65535)+(c>>16))&65535
    return h[:10]+struct.pack('!H',c)+h[12:]+body
def udp(a,b,body): return struct.pack('!4H',a,b,8+len(body),0)+body
def gtp(flags,kind,teid,body): return struct.pack('!BBHI',flags,kind,len(body),teid)+body
def n3(peer,body): return link+ip('10.79.1.%d'%peer,'10.79.1.9',udp(2152,2152,body))
inner=ip('10.45.0.2','10.79.2.77',udp(5000,5001,b'valid'))
spoofed=ip('10.45.0.3','10.79.2.77',udp(5000,5001,b'spoof'))
n6=lambda dst,**k: link+ip('10.79.2.1',dst,udp(5001,5000,b'valid'),**k)
for i in range(rounds):
    teid=(i*2654435761)%2**32|1<<20
    if side=='n3':
        frames=[n3(1,gtp(48,255,1,inner)),n3(i%200+20,gtp(48,255,teid,inner)),n3(1,gtp(50,1,0,b'\0\1\0\0')),
          n3(1,gtp(52,255,1,b'\0\0\0\x85\0'+inner)),n3(1,gtp(48,255,1,spoofed)),
          n3(1,gtp(50,26,0,b'\0\0\0\0'+struct.pack('!BIBH4B',16,0x2001,133,4,10,79,1,1)))]
    else:
        dead='10.45.%d.%d'%(i%200+1,i%250+1)
        frames=[n6('10.45.0.2')]+[n6(dead)]*2+[n6('10.46.0.2'),n6('10.45.0.2')[:30],n6('10.45.0.2')[:12]+b'\x81\0'+bytes(40)]
    for frame in frames: s.send(frame)
    if i%10==9: time.sleep(pause)
"#;

/// Runs a flood with this pause after each ten rounds; returns the totals.
fn flood(site: &Site, pause: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let sessions = folder.path().join("s.csv");
    let line = "1,10.79.1.9,1,10.79.1.1,0x2001,9,10.45.0.2";
    fs::write(&sessions, format!("{HEADER}\n{line}\n")).expect("written");
    let mut command = site.gateway("afpacket");
    for (host, port) in [(1, "n3"), (2, "n6")] {
        let mac = site.net.must(host, "cat /sys/class/net/eth0/address");
        command.args(["--next-hop", &format!("{port}=default@{}", mac.trim())]);
    }
    let running = Running::start(command.arg("--sessions").arg(&sessions));
    let script = folder.path().join("flood.py");
    fs::write(&script, SENDER).expect("written");
    let senders = [(1, "n3"), (2, "n6")].map(|(host, side)| {
        let mac = site.net.must(4, &format!("cat /sys/class/net/p{host}/address"));
        let (space, script) = (site.net.space(host), script.display());
        let mac = mac.trim();
        let command =
            format!("ip netns exec {space} python3 {script} {side} {mac} {ROUNDS} {pause}");
        std::thread::spawn(move || must(&command))
    });
    for sender in senders {
        sender.join().expect("all is sent");
    }
    totals_of("overbank-gateway/1", &running.end("TERM"))
}

#[test]
fn five_times_as_much_garbage_loses_no_packet() {
    let Some(site) = Site::new("gf") else { return };
    // No router solicitations among the frames.
    for host in [1, 2, 4] {
        let off = ["all", "default"].map(|of| format!("net.ipv6.conf.{of}.disable_ipv6=1"));
        site.net.must(host, &format!("sysctl -qw {} {}", off[0], off[1]));
    }
    let missed = |totals: &serde_json::Value| {
        let ports = totals["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["missed"].as_u64().expect("a number")).sum::<u64>()
    };
    let mut totals = serde_json::Value::Null;
    for pause in ["0.005", "0.02", "0.1"] {
        totals = flood(&site, pause);
        if missed(&totals) == 0 {
            break;
        }
    }
    assert_eq!(missed(&totals), 0, "too slow for 600 frames a second: {totals:#}");
    let total = |name: &str| totals["total"][name].as_u64().expect("a number");
    assert_eq!((total("uplink"), total("downlink")), (ROUNDS, ROUNDS), "{totals:#}");
    for (port, sent) in [(0, total("downlink")), (1, total("uplink"))] {
        let port = &totals["ports"][port];
        let n = |name: &str| port[name].as_u64().expect("a number");
        // Others are of the kernels: ARP, and its answers to what it does not know.
        assert!(n("received") >= ROUNDS * (1 + GARBAGE), "{port:#}");
        assert!(n("sent") >= sent && port["not_sent"] == serde_json::json!({}), "{port:#}");
    }
    let dropped = |port: usize, reason: &str| {
        totals["ports"][port]["dropped"][reason].as_u64().unwrap_or_default()
    };
    for (port, reason, count) in [
        (0, "unknown_teid", 1),
        (0, "empty_extension", 1),
        (0, "spoofed_source", 1),
        (0, "error_indication", 1),
        (1, "unknown_ue", 2),
        (1, "vlan", 1),
        (1, "broken_ip", 1),
    ] {
        assert_eq!(dropped(port, reason), count * ROUNDS, "{reason}: {totals:#}");
    }
    assert!(dropped(1, "not_ue") >= ROUNDS, "{totals:#}");
    assert_eq!(dropped(0, "echo_limited") + total("echo_answered"), ROUNDS, "{totals:#}");
    // What is answered is bounded: 100 a second, and half as much at once.
    let seconds = totals["uptime_ms"].as_u64().expect("a number") / 1000 + 2;
    assert!(total("echo_answered") <= 100 * seconds, "{totals:#}");
    assert!(total("error_indications") <= 100 * seconds, "{totals:#}");
}
