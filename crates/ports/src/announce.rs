//! Shows the stations on a link that an address is here: gratuitous ARP (RFC 5227), or an
//! unsolicited neighbour advertisement (RFC 4861, section 7.2.6).

use crate::sys::interface::{Control, index_of};
use crate::sys::socket::PacketSocket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Shows all stations on an interface's link that an address is at the interface.
///
/// # Errors
/// There is no such interface, or the process may not send (`CAP_NET_RAW`).
pub fn announce(interface: &str, address: IpAddr) -> io::Result<()> {
    let index = index_of(interface)?;
    let (_, mac) = Control::new()?.hardware(index)?;
    let socket = PacketSocket::new()?;
    socket.bind(index, 0)?;
    match address {
        IpAddr::V4(address) => socket.send(&arp(mac, address)),
        IpAddr::V6(address) => socket.send(&advertisement(mac, address)),
    }
}

/// Returns the number of an interface.
///
/// # Errors
/// There is none of this name.
pub fn interface_number(name: &str) -> io::Result<u32> {
    index_of(name)
}

fn put<const N: usize>(frame: &mut [u8; N], parts: &[(usize, &[u8])]) {
    for &(at, part) in parts {
        frame[at..at + part.len()].copy_from_slice(part);
    }
}

fn arp(mac: [u8; 6], address: Ipv4Addr) -> [u8; 60] {
    // EtherType; Ethernet, IPv4, lengths of their addresses, a request.
    const HEAD: [u8; 10] = [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1];
    let (mut frame, ip) = ([0; 60], address.octets());
    put(&mut frame, &[(0, &[0xff; 6]), (6, &mac), (12, &HEAD), (22, &mac), (28, &ip), (38, &ip)]);
    frame
}

fn advertisement(mac: [u8; 6], address: Ipv6Addr) -> [u8; 86] {
    const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    // EtherType, version, length 32, ICMPv6, hop limit.
    const HEAD: [u8; 10] = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 32, 58, 255];
    // Advertisement, no sum yet, override.
    const ICMP: [u8; 8] = [136, 0, 0, 0, 0x20, 0, 0, 0];
    let (mut frame, ip) = ([0; 86], address.octets());
    put(&mut frame, &[(0, &[0x33, 0x33, 0, 0, 0, 1]), (6, &mac), (12, &HEAD), (22, &ip)]);
    put(&mut frame, &[(38, &ALL.octets()), (54, &ICMP), (62, &ip), (78, &[2, 1]), (80, &mac)]);
    // Pseudo-header: addresses, length, protocol; then the message.
    let words =
        frame[22..].chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum = words.sum::<u32>() + 32 + 58;
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    put(&mut frame, &[(56, &sum.to_be_bytes())]);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn both_frames_are_what_others_read() {
        let frame = arp(MAC, Ipv4Addr::new(10, 0, 0, 5));
        let sliced = SlicedPacket::from_ethernet(&frame).expect("ARP");
        let Some(NetSlice::Arp(arp)) = sliced.net else { panic!("{sliced:?}") };
        assert_eq!(
            (arp.sender_hw_addr(), arp.sender_protocol_addr()),
            (&MAC[..], &[10, 0, 0, 5][..])
        );
        assert_eq!(arp.target_protocol_addr(), [10, 0, 0, 5]);

        let address: Ipv6Addr = "2001:db8::5".parse().expect("an address");
        let frame = advertisement(MAC, address);
        let sliced = SlicedPacket::from_ethernet(&frame).expect("IPv6");
        let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("{sliced:?}") };
        assert_eq!((ip.header().source_addr(), ip.header().hop_limit()), (address, 255));
        let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("{sliced:?}") };
        let (from, to) = (ip.header().source(), ip.header().destination());
        assert!(icmp.is_checksum_valid(from, to));
        assert_eq!(icmp.payload()[..16], address.octets());
    }
}
