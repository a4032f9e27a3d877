use std::ops::Range;

use etherparse::{PacketBuilder, PacketHeaders, TransportHeader};
use proptest::prelude::*;

use super::checksum::{crc32c, finish, fold, sum};
use super::*;

/// Sums one 16-bit word after the other, as in RFC 1071.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[derive(Clone, Debug)]
struct Headers {
    v6: bool,
    udp: bool,
    tags: usize,
    fin: bool,
    cwr: bool,
    seq: u32,
    ports: (u16, u16),
    payload: Vec<u8>,
}

prop_compose! {
    fn headers(payload_len: Range<usize>)(
        (v6, udp, fin, cwr) in any::<(bool, bool, bool, bool)>(),
        tags in 0..3usize,
        seq in any::<u32>(),
        ports in any::<(u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), payload_len),
    ) -> Headers {
        Headers { v6, udp, tags, fin, cwr, seq, ports, payload }
    }
}

impl Headers {
    /// Returns a whole frame with right checksums, made by etherparse. `index` is that of the
    /// segment.
    fn frame(&self, seq: u32, id: u16, flags: (bool, bool), payload: &[u8]) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut v4 = etherparse::Ipv4Header::new(
            0,
            64,
            if self.udp { etherparse::IpNumber::UDP } else { etherparse::IpNumber::TCP },
            [10, 0, 0, 1],
            [10, 0, 0, 2],
        )
        .unwrap();
        v4.identification = id;
        let v6 = etherparse::Ipv6Header {
            hop_limit: 64,
            source: [0x20; 16],
            destination: [0x21; 16],
            ..Default::default()
        };
        let ip = if self.v6 {
            etherparse::IpHeaders::Ipv6(v6, Default::default())
        } else {
            etherparse::IpHeaders::Ipv4(v4, Default::default())
        };
        let ip = match self.tags {
            0 => link.ip(ip),
            1 => link.single_vlan(7.try_into().unwrap()).ip(ip),
            _ => link.double_vlan(8.try_into().unwrap(), 9.try_into().unwrap()).ip(ip),
        };
        let mut out = Vec::new();
        if self.udp {
            ip.udp(self.ports.0, self.ports.1).write(&mut out, payload).unwrap();
        } else {
            let mut tcp = etherparse::TcpHeader::new(self.ports.0, self.ports.1, seq, 1000);
            tcp.ack = true;
            tcp.acknowledgment_number = 77;
            (tcp.fin, tcp.psh, tcp.cwr) = (flags.0, flags.0, flags.1);
            tcp.set_options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]).unwrap();
            ip.tcp_header(tcp).write(&mut out, payload).unwrap();
        }
        out
    }

    fn whole(&self) -> Vec<u8> {
        self.frame(self.seq, 500, (self.fin, self.cwr), &self.payload)
    }

    /// Returns the offsets of the transport header and its checksum.
    fn checksum(&self) -> (usize, usize) {
        let l4 = 14 + 4 * self.tags + if self.v6 { 40 } else { 20 };
        (l4, if self.udp { 6 } else { 16 })
    }

    /// Returns the frame as a local sender leaves it to hardware.
    fn partial(&self) -> Vec<u8> {
        let mut frame = self.whole();
        let (l4, offset) = self.checksum();
        let h = headers::parse(&frame).unwrap();
        let pseudo = fold(checksum::pseudo(&frame, &h, h.end - h.l4));
        frame[l4 + offset..l4 + offset + 2].copy_from_slice(&pseudo);
        frame
    }

    fn vnet(&self, gso_size: u16) -> VnetHeader {
        let (start, offset) = self.checksum();
        VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: match (self.udp, self.v6) {
                (true, _) => VnetHeader::GSO_UDP_L4,
                (false, true) => VnetHeader::GSO_TCPV6,
                (false, false) => VnetHeader::GSO_TCPV4,
            },
            hdr_len: 0,
            gso_size,
            csum_start: start as u16,
            csum_offset: offset as u16,
        }
    }
}

/// Returns whether etherparse accepts the checksums of IP and of the transport.
fn verified(frame: &[u8]) -> bool {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let payload = packet.payload.slice();
    let net = packet.net.unwrap();
    let transport = packet.transport.unwrap();
    if let Some((ip, _)) = net.ipv4_ref()
        && ip.header_checksum != ip.calc_header_checksum()
    {
        return false;
    }
    match (net.ipv4_ref(), net.ipv6_ref(), &transport) {
        (Some((ip, _)), _, TransportHeader::Tcp(tcp)) => {
            tcp.checksum == tcp.calc_checksum_ipv4(ip, payload).unwrap()
        }
        (Some((ip, _)), _, TransportHeader::Udp(udp)) => {
            udp.checksum == udp.calc_checksum_ipv4(ip, payload).unwrap()
        }
        (_, Some((ip, _)), TransportHeader::Tcp(tcp)) => {
            tcp.checksum == tcp.calc_checksum_ipv6(ip, payload).unwrap()
        }
        (_, Some((ip, _)), TransportHeader::Udp(udp)) => {
            udp.checksum == udp.calc_checksum_ipv6(ip, payload).unwrap()
        }
        _ => panic!("TCP or UDP"),
    }
}

/// Returns the expected segments, each built by etherparse from its part of the payload.
fn naive_segments(shape: &Headers, size: usize) -> Vec<Vec<u8>> {
    let mut chunks: Vec<&[u8]> = shape.payload.chunks(size).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let last = chunks.len() - 1;
    let segment = |(i, chunk): (usize, &&[u8])| {
        let seq = shape.seq.wrapping_add((i * size) as u32);
        let flags = (shape.fin && i == last, shape.cwr && i == 0);
        shape.frame(seq, 500 + i as u16, flags, chunk)
    };
    chunks.iter().enumerate().map(segment).collect()
}

fn cut(frame: &[u8], vnet: &VnetHeader) -> Result<Vec<Vec<u8>>, SegmentError> {
    let mut segmenter = Segmenter::new(frame, vnet)?;
    let (longest, mut out, mut segments) = (segmenter.segment_len_max(), Vec::new(), Vec::new());
    while let Some(range) = segmenter.next_segment(frame, &mut out) {
        assert!(range.len() <= longest);
        segments.push(out[range].to_vec());
    }
    assert_eq!(segmenter.next_segment(frame, &mut out), None);
    Ok(segments)
}

proptest! {
    #[test]
    fn sums_agree(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert_eq!(u16::from_be_bytes(fold(sum(&bytes))), naive_sum(&bytes));
    }

    #[test]
    fn partial_checksums_are_completed_as_etherparse_would(shape in headers(0..300)) {
        let whole = shape.whole();
        prop_assert!(verified(&whole), "the oracle agrees with itself");
        let (start, offset) = shape.checksum();
        let mut told = shape.partial();
        prop_assert!(complete_checksum(&mut told, start, offset));
        prop_assert!(verified(&told));
        // Without being told. The sum may be right by chance, and then nothing is to be done.
        let mut guessed = shape.partial();
        let needed = !verified(&guessed);
        prop_assert_eq!(complete_checksum_if_partial(&mut guessed), needed);
        prop_assert!(verified(&guessed));
        // A second time nothing happens.
        prop_assert!(!complete_checksum_if_partial(&mut guessed));
        prop_assert_eq!(told, guessed);
    }

    #[test]
    fn whole_and_damaged_frames_stay_as_they_are(shape in headers(0..300), bit in any::<usize>()) {
        let mut frame = shape.whole();
        prop_assert!(!complete_checksum_if_partial(&mut frame));
        prop_assert_eq!(&frame, &shape.whole());
        // A bit behind the checksum: damage, not a partial checksum.
        let (start, offset) = shape.checksum();
        let from = start + offset + 2;
        if from < frame.len() {
            let bit = from * 8 + bit % ((frame.len() - from) * 8);
            frame[bit / 8] ^= 1 << (bit % 8);
            let damaged = frame.clone();
            prop_assert!(!complete_checksum_if_partial(&mut frame));
            prop_assert_eq!(frame, damaged);
        }
    }

    #[test]
    fn padding_behind_the_packet_is_not_summed(shape in headers(0..10), padding in 1..30usize) {
        let mut frame = shape.partial();
        let needed = !verified(&frame);
        let len = frame.len();
        frame.extend(vec![0xa5; padding]);
        prop_assert_eq!(complete_checksum_if_partial(&mut frame), needed);
        prop_assert!(verified(&frame[..len]));
    }

    #[test]
    fn fragments_are_left_alone(shape in headers(0..100), offset in 0..0x2000u16) {
        let mut frame = Headers { v6: false, ..shape.clone() }.partial();
        let at = 14 + 4 * shape.tags + 6;
        let more = if offset == 0 { 0x2000 } else { offset };
        frame[at..at + 2].copy_from_slice(&more.to_be_bytes());
        let before = frame.clone();
        prop_assert!(!complete_checksum_if_partial(&mut frame));
        prop_assert_eq!(frame, before);
    }

    #[test]
    fn segments_are_those_of_the_naive_way(shape in headers(0..5000), size in 1..2000u16) {
        let cut = cut(&shape.partial(), &shape.vnet(size)).unwrap();
        let naive = naive_segments(&shape, size.into());
        prop_assert_eq!(cut.len(), naive.len());
        for (ours, theirs) in cut.iter().zip(&naive) {
            prop_assert!(verified(ours));
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        shape in headers(0..100),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        cut_at in any::<usize>(),
        (flags, gso_type, gso_size, start, offset) in any::<(u8, u8, u16, u16, u16)>(),
        random in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut mutated = shape.partial();
        for (at, byte) in changes {
            let at = at % mutated.len();
            mutated[at] = byte;
        }
        mutated.truncate(cut_at % (mutated.len() + 1));
        for frame in [mutated, random] {
            for gso_type in [gso_type, 1, 4, 5] {
                let vnet = VnetHeader {
                    flags, gso_type, hdr_len: 0, gso_size, csum_start: start, csum_offset: offset,
                };
                let _ = cut(&frame, &vnet);
            }
            let _ = payload_len(&frame);
            let _ = crate::flow::flow_hash(&frame);
            let len = frame.len();
            let mut frame = frame;
            let _ = complete_checksum(&mut frame, usize::from(start % 64), usize::from(offset % 64));
            let _ = complete_checksum(&mut frame, start.into(), offset.into());
            complete_checksum_if_partial(&mut frame);
            prop_assert_eq!(frame.len(), len);
            if insert_tag(&mut frame, Tag { tpid: 0x8100, tci: 5 }) {
                prop_assert_eq!(&frame[12..16], &[0x81, 0, 0, 5]);
            }
        }
    }

    #[test]
    fn flows_hash_alike_in_both_directions(shape in headers(4..50)) {
        let frame = shape.frame(1, 1, (false, false), &shape.payload);
        let later = shape.frame(9, 9, (true, false), &shape.payload[1..]);
        prop_assert_eq!(crate::flow::flow_hash(&frame), crate::flow::flow_hash(&later));
        let mut back = frame.clone();
        let l3 = 14 + 4 * shape.tags;
        let (from, len) = if shape.v6 { (l3 + 8, 16) } else { (l3 + 12, 4) };
        back[from..from + 2 * len].rotate_left(len);
        let (l4, _) = shape.checksum();
        back[l4..l4 + 4].rotate_left(2);
        prop_assert_eq!(crate::flow::flow_hash(&frame), crate::flow::flow_hash(&back));
        // One end's port moved to the other end is another flow.
        if shape.ports.0 != shape.ports.1 {
            back[l4..l4 + 4].rotate_left(2);
            prop_assert_ne!(crate::flow::flow_hash(&frame), crate::flow::flow_hash(&back));
        }
    }

    #[test]
    fn a_tag_goes_behind_the_addresses(shape in headers(0..20), tci in any::<u16>()) {
        let frame = Headers { tags: 0, ..shape }.whole();
        let mut room = [&[0; TAG_LEN][..], &frame].concat();
        let done = insert_tag(&mut room, Tag { tpid: 0x88a8, tci });
        prop_assert!(done);
        prop_assert_eq!(&room[..12], &frame[..12]);
        prop_assert_eq!(&room[12..14], &[0x88, 0xa8]);
        prop_assert_eq!(&room[14..16], &tci.to_be_bytes());
        prop_assert_eq!(&room[16..], &frame[12..]);
        prop_assert_eq!(payload_len(&room), payload_len(&frame));
        prop_assert_eq!(payload_len(&frame), frame.len() - 14);
    }
}

#[test]
fn known_sums() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(finish(0xffff, true), [0xff, 0xff], "UDP: never zero");
    assert_eq!(finish(0xffff, false), [0, 0]);
    assert_eq!(finish(0, true), [0xff, 0xff]);
    assert_eq!(sum(&[]), 0);
    assert_eq!(fold(u64::MAX), [0xff, 0xff]);
}

/// Tests an SCTP packet over IPv4 with the checksum left to hardware, announced and detected.
#[test]
fn sctp_gets_its_crc() {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 132, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 1, 2, 3, 4]);
    complete_header_checksum(&mut frame[14..34]);
    let mut told = frame.clone();
    assert!(complete_checksum(&mut told, 34, 8));
    let crc = crc32c(&frame[34..]).to_le_bytes();
    assert_eq!(told[42..46], crc);
    assert!(complete_checksum_if_partial(&mut frame));
    assert_eq!(frame, told);
    assert!(!complete_checksum_if_partial(&mut frame));
}

#[test]
fn invalid_super_frames_are_refused() {
    let shape = Headers {
        v6: false,
        udp: false,
        tags: 0,
        fin: false,
        cwr: false,
        seq: 1,
        ports: (1, 2),
        payload: vec![1; 3000],
    };
    let frame = shape.partial();
    let vnet = shape.vnet(1000);
    let with = |change: fn(&mut VnetHeader)| {
        let mut vnet = vnet;
        change(&mut vnet);
        cut(&frame, &vnet).map(|segments| segments.len())
    };
    assert_eq!(with(|_| {}), Ok(3));
    assert_eq!(with(|v| v.gso_type |= VnetHeader::GSO_ECN), Ok(3));
    assert_eq!(with(|v| v.gso_size = 0), Err(SegmentError::Size));
    assert_eq!(with(|v| v.gso_type = 3), Err(SegmentError::Kind));
    assert_eq!(with(|v| v.gso_type = 4), Err(SegmentError::Headers));
    assert_eq!(with(|v| v.gso_type = 5), Err(SegmentError::Headers));
    assert_eq!(cut(&frame[..40], &vnet), Err(SegmentError::Headers));
    // A frame of another length than the one that was read is not cut.
    let mut segmenter = Segmenter::new(&frame, &vnet).unwrap();
    assert_eq!(segmenter.next_segment(&frame[..99], &mut Vec::new()), None);
}

/// Tests a super-frame of more than 64 KiB, whose length field is 0.
#[test]
fn super_frames_beyond_64_kib_are_cut() {
    let shape = Headers {
        v6: false,
        udp: false,
        tags: 1,
        fin: true,
        cwr: false,
        seq: u32::MAX - 70_000,
        ports: (1, 2),
        payload: vec![7; 1000],
    };
    let mut frame = shape.partial();
    frame.extend(vec![7; 199_000]);
    frame[14 + 4 + 2..14 + 4 + 4].fill(0);
    let segments = cut(&frame, &shape.vnet(1448)).unwrap();
    assert_eq!(segments.len(), 200_000usize.div_ceil(1448));
    assert!(segments.iter().all(|segment| verified(segment)));
}
