//! Captures built by hand, byte by byte, from the formats' descriptions; hostile bytes; round
//! trips; and `pcap-file` as a second opinion where it reads a capture at all.

use std::fs;
use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use overbank_ports::capture::{CAPTURED_LEN_MAX, Part};
use overbank_ports::{
    Capture, CaptureError, CaptureSet, FrameStore, Limits, LinkType, WriteError, read_ethernet,
};
use proptest::prelude::*;

/// Writes integers in the byte order of choice.
struct Bytes {
    big: bool,
    out: Vec<u8>,
}

impl Bytes {
    fn new(big: bool) -> Bytes {
        Bytes { big, out: Vec::new() }
    }
    fn u16(mut self, v: u16) -> Self {
        self.out.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }
    fn u32(mut self, v: u32) -> Self {
        self.out.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.out.extend(if self.big { v.to_be_bytes() } else { v.to_le_bytes() });
        self
    }
    fn raw(mut self, v: &[u8]) -> Self {
        self.out.extend(v);
        self
    }
    fn pad(mut self) -> Self {
        self.out.resize(self.out.len().next_multiple_of(4), 0xee);
        self
    }
    fn block(self, block_type: u32, body: Bytes) -> Self {
        let body = body.pad().out;
        let len = body.len() as u32 + 12;
        self.u32(block_type).u32(len).raw(&body).u32(len)
    }
    fn body(&self) -> Bytes {
        Bytes::new(self.big)
    }
    fn section(self) -> Self {
        let body = self.body().u32(0x1a2b_3c4d).u16(1).u16(0).u64(u64::MAX);
        self.block(0x0a0d_0d0a, body)
    }
    /// Options: (code, value).
    fn interface(self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = self.body().u16(link).u16(0).u32(snaplen);
        for (code, value) in options {
            body = body.u16(*code).u16(value.len() as u16).raw(value).pad();
        }
        self.block(1, body.u32(0))
    }
    fn enhanced(self, interface: u32, ticks: u64, orig: u32, data: &[u8]) -> Self {
        let body = self.body().u32(interface).u32((ticks >> 32) as u32).u32(ticks as u32);
        let body = body.u32(data.len() as u32).u32(orig).raw(data).pad();
        // A comment that is not UTF-8, and the end of the options.
        let body = body.u16(1).u16(3).raw(&[0xff, 0xfe, 0xfd]).pad().u32(0);
        self.block(6, body)
    }
}

fn pcap_header(big: bool, nanoseconds: bool, snaplen: u32, link: u32) -> Bytes {
    let magic = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    Bytes::new(big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(snaplen).u32(link)
}

/// (time, interface, link type, original length, data) of each packet.
type Packets = Vec<(u64, u32, u16, u32, Vec<u8>)>;

fn read(bytes: &[u8]) -> Result<Packets, CaptureError> {
    let mut capture = Capture::from_reader(Cursor::new(bytes.to_vec()), "test.pcap")?;
    let mut all = Vec::new();
    while let Some(p) = capture.next_packet()? {
        all.push((p.timestamp_ns, p.interface, p.link_type.0, p.orig_len, p.data.to_vec()));
    }
    Ok(all)
}

fn message(bytes: &[u8]) -> String {
    let message = read(bytes).unwrap_err().to_string();
    assert!(!message.contains('\n'));
    message
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for big in [false, true] {
        for nanoseconds in [false, true] {
            let bytes = pcap_header(big, nanoseconds, 96, 1)
                // Cut by the snap length, and longer than the snap length: both occur.
                .u32(1_700_000_000)
                .u32(123_456)
                .u32(96)
                .u32(1514)
                .raw(&[1; 96])
                .u32(1_700_000_001)
                .u32(999_999)
                .u32(0)
                .u32(0)
                .u32(u32::MAX)
                .u32(7)
                .u32(100_000)
                .u32(100_000)
                .raw(&[2; 100_000])
                .out;
            let unit = if nanoseconds { 1 } else { 1000 };
            let expected = vec![
                (1_700_000_000_000_000_000 + 123_456 * unit, 0, 1, 1514, vec![1; 96]),
                (1_700_000_001_000_000_000 + 999_999 * unit, 0, 1, 0, vec![]),
                (u64::from(u32::MAX) * 1_000_000_000 + 7 * unit, 0, 1, 100_000, vec![2; 100_000]),
            ];
            assert_eq!(read(&bytes).unwrap(), expected);
            assert_eq!(read(&gzip(&bytes)).unwrap(), expected);
            // Two gzip members are one capture.
            let (a, b) = bytes.split_at(1000);
            assert_eq!(read(&[gzip(a), gzip(b)].concat()).unwrap(), expected);
        }
    }
}

#[test]
fn link_type_word_may_tell_about_the_check_sequence() {
    let bytes = pcap_header(false, false, 65535, 0x2400_0001).u32(0).u32(0).u32(1).u32(1).raw(&[9]);
    assert_eq!(read(&bytes.out).unwrap(), [(0, 0, 1, 1, vec![9])]);
}

#[test]
fn pcapng_with_several_interfaces_and_sections() {
    for big in [false, true] {
        let offset = if big { (-5i64).to_be_bytes() } else { (-5i64).to_le_bytes() };
        let bytes = Bytes::new(big).section();
        let private = bytes.body().raw(&[1; 100]);
        let simple = bytes.body().u32(10).raw(&[3, 4, 5, 6]);
        let obsolete =
            bytes.body().u16(1).u16(77).u32(0).u32(2_000_000).u32(3).u32(9).raw(&[7, 8, 9]);
        let bytes = bytes
            .interface(1, 4, &[(2, b"lan0")])
            .block(0x4000_0bad, private)
            .interface(1, 0, &[(9, &[9]), (1, b"\xff not utf-8"), (14, &offset)])
            .enhanced(1, 10_000_000_001, 60, &[0xaa; 60])
            .enhanced(0, 1_500_000, 61, &[0xbb; 61])
            .block(3, simple)
            .interface(276, 0, &[(9, &[0x80 | 1])])
            .block(2, obsolete)
            .enhanced(2, 3, 1, &[1])
            .out;
        // The interfaces of a section are its own.
        let other = Bytes::new(!big).section().interface(1, 0, &[(9, &[9])]);
        let other = other.enhanced(0, 7, 1, &[2]).out;
        let all = [bytes, other].concat();
        let expected = vec![
            (5_000_000_001, 1, 1, 60, vec![0xaa; 60]),
            (1_500_000_000, 0, 1, 61, vec![0xbb; 61]),
            (0, 0, 1, 10, vec![3, 4, 5, 6]),
            // 2 000 000 ns less five seconds is before 1970.
            (0, 1, 1, 9, vec![7, 8, 9]),
            (1_500_000_000, 2, 276, 1, vec![1]),
            (7, 0, 1, 1, vec![2]),
        ];
        assert_eq!(read(&all).unwrap(), expected);
        assert_eq!(read(&gzip(&all)).unwrap(), expected);

        let store = Capture::from_reader(Cursor::new(all), "x").unwrap();
        let store = store.into_ethernet(&Limits::default()).unwrap();
        let frames: Vec<_> =
            store.iter().map(|f| (f.timestamp_ns, f.interface, f.data.to_vec())).collect();
        let ethernet: Vec<_> = expected
            .into_iter()
            .filter(|p| p.2 == 1)
            .map(|(time, interface, _, _, data)| (time, interface, data))
            .collect();
        assert_eq!(frames, ethernet);
        assert_eq!((store.skipped(), store.cut_short()), (1, 2));
    }
}

#[test]
fn every_cut_is_an_error_or_a_whole_capture() {
    let pcap = pcap_header(true, false, 65535, 1)
        .u32(1)
        .u32(2)
        .u32(20)
        .u32(20)
        .raw(&[5; 20])
        .u32(3)
        .u32(4)
        .u32(7)
        .u32(7)
        .raw(&[6; 7])
        .out;
    let ng = Bytes::new(false).section().interface(1, 0, &[]);
    let whole_ng = [28, ng.out.len(), ng.out.len() + 64];
    let ng = ng.enhanced(0, 1, 17, &[1; 17]).enhanced(0, 2, 17, &[2; 17]).out;
    for (bytes, whole, packets) in [(pcap, [24, 60, 83], 2), (ng, whole_ng, 2)] {
        assert_eq!(read(&bytes).unwrap().len(), packets);
        for cut in 1..bytes.len() {
            match read(&bytes[..cut]) {
                Ok(_) => assert!(whole.contains(&cut), "cut at {cut}"),
                Err(CaptureError::Truncated { at, got, need, .. }) => {
                    assert!(!whole.contains(&cut) && got < need && at + got == cut as u64);
                }
                Err(CaptureError::NotACapture { .. }) if cut < 4 => {}
                Err(e) => panic!("cut at {cut}: {e}"),
            }
        }
        // A gzip stream that ends early is truncated wherever it ends.
        let zipped = gzip(&bytes);
        for cut in 19..zipped.len() {
            let error = read(&zipped[..cut]).unwrap_err();
            assert!(matches!(error, CaptureError::Truncated { .. }), "{cut}: {error}");
        }
    }
}

#[test]
fn messages_name_the_problem_and_its_place() {
    let header = || pcap_header(false, false, 65535, 1);
    let packet = |b: Bytes| b.u32(0).u32(0).u32(4).u32(4).raw(b"abcd");
    assert_eq!(
        message(&packet(packet(header())).u32(0).u32(0).u32(60).u32(60).raw(&[0; 10]).out),
        "test.pcap: truncated capture: packet 3 at byte 64 has 26 of 76 bytes"
    );
    assert_eq!(
        message(&header().u32(0).u32(0).u32(262_145).u32(1).out),
        "test.pcap: broken capture: packet 1 at byte 24: a captured length of 262145 bytes, \
         expected at most 262144"
    );
    assert_eq!(
        message(b"GIF89a"),
        "test.pcap: not a capture: it starts with 47 49 46 38, expected pcap or pcapng, plain or \
         gzipped"
    );
    assert_eq!(
        message(&gzip(b"")),
        "test.pcap: the file is empty, expected a pcap or pcapng capture"
    );
    let section = || Bytes::new(true).section();
    assert_eq!(
        message(&section().enhanced(0, 0, 0, &[]).out),
        "test.pcap: broken capture: packet 1 at byte 28: interface 0, expected one of the 0 \
         described so far"
    );
    assert_eq!(
        message(&section().u32(99).u32(13).out),
        "test.pcap: broken capture: a block before the first packet at byte 28: a length of 13 \
         bytes, expected a multiple of 4 that is at least 12"
    );
    assert_eq!(
        message(&section().u32(99).u32(12).u32(16).out),
        "test.pcap: broken capture: a block before the first packet at byte 28: two lengths, 12 \
         and 16, expected the same twice"
    );
    // A length that nothing backs is not believed.
    assert_eq!(
        message(&section().u32(99).u32(0xffff_fffc).u32(0).out),
        "test.pcap: truncated capture: a block before the first packet at byte 28 has 12 of \
         4294967292 bytes"
    );
    assert_eq!(
        message(&section().u32(6).u32(0x7fff_fffc).out),
        "test.pcap: broken capture: packet 1 at byte 28: a length of 2147483644 bytes, expected \
         at most 1048576"
    );
    let lies = section().interface(1, 0, &[]);
    let body = lies.body().u32(0).u32(0).u32(0).u32(5).u32(5).raw(&[1, 2, 3, 4]);
    assert!(
        message(&lies.block(6, body).out)
            .ends_with("5 captured bytes, expected at most the 4 there")
    );
    let lies = section();
    let body = lies.body().u16(1).u16(0).u32(0).u16(9).u16(400).u32(0);
    assert!(
        message(&lies.block(1, body).out)
            .ends_with("option 9 of 400 bytes, expected at most the 4 left")
    );
    let mut zipped = gzip(&vec![0x5a; 100_000]);
    let mut bytes = header().out;
    bytes.extend(vec![0; 100_000]);
    zipped.truncate(10);
    zipped.extend([0xff; 40]);
    assert!(message(&zipped).starts_with("test.pcap: cannot read the capture at byte 0: "));
}

#[test]
fn errors_of_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        match read_ethernet(&path, &Limits { memory_bytes_max: 10_000 }) {
            Ok(store) => Ok(store.len()),
            Err(e) => Err(e.to_string().replace(&format!("{}/", dir.path().display()), "")),
        }
    };
    let missing = read_ethernet(dir.path().join("none"), &Limits::default()).err().unwrap();
    assert!(matches!(missing, CaptureError::Open { .. }));
    assert!(missing.to_string().contains("none: cannot open the capture: No such file"));
    let is_dir = read_ethernet(dir.path(), &Limits::default()).err().unwrap();
    assert!(is_dir.to_string().contains("Is a directory"), "{is_dir}");

    let empty = "a: the file is empty, expected a pcap or pcapng capture";
    assert_eq!(read("a", b"").unwrap_err(), empty);
    assert_eq!(
        read("b", &pcap_header(true, true, 0, 1).out).unwrap_err(),
        "b: the capture holds no packets"
    );
    let cooked = Bytes::new(false).section().interface(113, 0, &[]).interface(101, 0, &[]);
    let cooked = cooked.enhanced(0, 0, 1, &[1]).enhanced(1, 0, 1, &[1]).enhanced(1, 0, 1, &[1]);
    assert_eq!(
        read("c", &cooked.out).unwrap_err(),
        "c: no Ethernet frames among the 3 packets of the capture, only raw IP (101), Linux \
         cooked v1 (113)"
    );
    let mut many = pcap_header(true, true, 0, 1);
    for _ in 0..100 {
        many = many.u32(0).u32(0).u32(64).u32(64).raw(&[1; 64]);
    }
    assert_eq!(read("d.gz", &gzip(&many.out)), Ok(100));
    for _ in 0..100 {
        many = many.u32(0).u32(0).u32(64).u32(64).raw(&[1; 64]);
    }
    let error = read("e", &many.out).unwrap_err();
    assert!(error.contains("does not fit into the 10000 bytes of memory"), "{error}");
}

#[test]
fn captures_of_real_programs() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
    for name in ["lan.pcapng", "lan.pcap.gz"] {
        let store = read_ethernet(format!("{fixtures}/{name}"), &Limits::default()).unwrap();
        assert!(store.len() > 100 && store.skipped() == 0);
        let times: Vec<_> = store.iter().map(|f| f.timestamp_ns).collect();
        // Within one capture of minutes, after 2020.
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(*first > 1_577_836_800_000_000_000 && last - first < 600_000_000_000);
        println!("{name}: {} frames, {} cut short", store.len(), store.cut_short());
    }
}

#[test]
fn written_captures_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a/b");
    let mut set = CaptureSet::create(&out, &[7, 2, 3, 2]).unwrap();
    set.write(2, 1_700_000_000_123_456_789, &[1; 60]).unwrap();
    set.write(7, u64::MAX, &[2; 70_000]).unwrap();
    set.write(2, 5, &[]).unwrap();
    assert!(matches!(set.write(4, 0, &[]), Err(WriteError::UnknownPort { port: 4 })));
    let long = vec![0; CAPTURED_LEN_MAX as usize + 1];
    assert!(matches!(set.write(7, 0, &long), Err(WriteError::FrameTooLong { port: 7, .. })));
    assert!(!out.join("port-2.pcap").exists());
    let done = set.finish().unwrap();
    let counts: Vec<_> = done.iter().map(|d| (d.0, d.2)).collect();
    assert_eq!(counts, [(2, 2), (3, 0), (7, 1)]);
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["port-2.pcap", "port-3.pcap", "port-7.pcap"]);
    assert_eq!(
        read(&fs::read(&done[0].1).unwrap()).unwrap(),
        [(1_700_000_000_123_456_789, 0, 1, 60, vec![1; 60]), (5, 0, 1, 0, vec![])]
    );
    assert_eq!(read(&fs::read(&done[1].1).unwrap()).unwrap(), []);
    assert_eq!(read(&fs::read(&done[2].1).unwrap()).unwrap()[0].4, vec![2; 70_000]);
}

#[test]
fn nothing_is_left_without_finish() {
    let dir = tempfile::tempdir().unwrap();
    let left = || fs::read_dir(dir.path()).unwrap().count();
    let mut set = CaptureSet::create(dir.path().join("a/b/c"), &[1, 2]).unwrap();
    set.write(1, 0, &[1; 100]).unwrap();
    assert_eq!(left(), 1);
    drop(set);
    assert_eq!(left(), 0);

    // What stood there before stays.
    fs::write(dir.path().join("port-1.pcap"), "old").unwrap();
    let mut set = CaptureSet::create(dir.path(), &[1]).unwrap();
    set.write(1, 0, &[1; 100]).unwrap();
    drop(set);
    assert_eq!(left(), 1);
    assert_eq!(fs::read(dir.path().join("port-1.pcap")).unwrap(), b"old");
    let file = dir.path().join("port-1.pcap");
    for bad in [file.clone(), file.join("below")] {
        let error = CaptureSet::create(&bad, &[1]).err().unwrap().to_string();
        assert!(
            error.starts_with(&format!(
                "{}: cannot write captures to this directory: ",
                bad.display()
            ))
        );
    }
    // A directory in the way of a final name: refused at once, and nothing takes its place.
    fs::create_dir_all(dir.path().join("port-9.pcap/x")).unwrap();
    let error = CaptureSet::create(dir.path(), &[8, 9]).err().unwrap().to_string();
    assert!(
        error.contains("cannot write captures to this directory: port-9.pcap is there"),
        "{error}"
    );
    assert_eq!(left(), 2);
    // It comes while we write: the error names it, the temporary file goes.
    let set = CaptureSet::create(dir.path(), &[10]).unwrap();
    fs::create_dir_all(dir.path().join("port-10.pcap/x")).unwrap();
    let error = set.finish().unwrap_err().to_string();
    assert!(error.contains("port-10.pcap: cannot write the capture: "), "{error}");
    assert_eq!(left(), 3);
}

/// A name that cannot be had takes those given before it back.
#[test]
fn all_files_get_their_names_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("port-1.pcap"), "old").unwrap();
    let mut set = CaptureSet::create(&out, &[1, 2, 3]).unwrap();
    set.write(1, 0, &[1; 100]).unwrap();
    set.write(2, 0, &[1; 100]).unwrap();
    fs::create_dir_all(out.join("port-3.pcap/x")).unwrap();
    let error = set.finish().unwrap_err().to_string();
    assert!(error.contains("port-3.pcap: cannot write the capture: "), "{error}");
    let names = || {
        let entries = fs::read_dir(&out).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["port-1.pcap", "port-3.pcap"]);
    assert_eq!(fs::read(out.join("port-1.pcap")).unwrap(), b"old");

    fs::remove_dir_all(out.join("port-3.pcap")).unwrap();
    CaptureSet::create(&out, &[1, 3]).unwrap().finish().unwrap();
    assert_eq!(names(), ["port-1.pcap", "port-3.pcap"], "nothing of the old file is left");
    assert_eq!(fs::read(out.join("port-1.pcap")).unwrap().len(), 24);
}

/// There may be more ports than a process may have files open.
#[test]
#[cfg(target_os = "linux")]
fn a_set_holds_no_file_open() {
    let dir = tempfile::tempdir().unwrap();
    let ports: Vec<u32> = (0..300).collect();
    let mut set = CaptureSet::create(dir.path(), &ports).unwrap();
    for time in 0..200 {
        for &port in &ports[..3] {
            set.write(port, time, &[port as u8; 1500]).unwrap();
        }
    }
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    assert_eq!(open.filter(|path| path.starts_with(dir.path())).count(), 0);
    let done = set.finish().unwrap();
    assert_eq!(done.len(), 300);
    for (port, path, frames) in done {
        let found = read(&fs::read(path).unwrap()).unwrap();
        assert_eq!(found.len() as u64, frames);
        assert!(found.iter().all(|packet| packet.4 == [port as u8; 1500]));
    }
}

/// A user of `port-1.pcap` does not know the name `.port-1.aBcDeF.tmp`.
#[test]
#[cfg(target_os = "linux")]
fn errors_do_not_name_temporary_files() {
    // A directory in which not even root can create a file.
    let error = CaptureSet::create("/proc", &[1]).err().unwrap().to_string();
    assert!(error.starts_with("/proc: cannot write captures to this directory: "), "{error}");
    assert!(!error.contains("tmp") && error.contains("os error"), "{error}");
}

/// A pipe gives what it has, the first byte alone if need be.
#[test]
fn a_reader_may_give_a_byte_at_a_time() {
    struct Slow(Cursor<Vec<u8>>);
    impl std::io::Read for Slow {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let most = buf.len().min(1);
            self.0.read(&mut buf[..most])
        }
    }
    let plain = pcap_header(true, true, 0, 1).u32(0).u32(0).u32(64).u32(64).raw(&[1; 64]).out;
    let pcapng = Bytes::new(false).section().interface(1, 0, &[]).enhanced(0, 0, 3, &[1; 3]).out;
    for bytes in [gzip(&plain), plain, gzip(&pcapng), pcapng] {
        let expected = read(&bytes).unwrap();
        let capture = Capture::from_reader(Slow(Cursor::new(bytes)), "a pipe").unwrap();
        assert_eq!(capture.into_ethernet(&Limits::default()).unwrap().len(), expected.len());
    }
}

#[test]
fn first_bad_byte_order_magic() {
    let mut bytes = Bytes::new(true).section().out;
    bytes[8] = 0;
    assert!(matches!(
        read(&bytes).unwrap_err(),
        CaptureError::Malformed { part: Part::Header, at: 0, .. }
    ));
}

/// A well-formed capture of a few packets, in a format of choice.
fn any_capture() -> impl Strategy<Value = Vec<u8>> {
    let packets = prop::collection::vec(
        (any::<u64>(), 0u32..3, prop::collection::vec(any::<u8>(), 0..100)),
        0..6,
    );
    (packets, any::<bool>(), 0..4u8).prop_map(|(packets, big, kind)| {
        let mut out = match kind {
            0 | 1 => pcap_header(big, kind == 1, 65535, 1),
            _ => Bytes::new(big).section().interface(1, 0, &[(9, &[9]), (2, b"eth0")]).interface(
                113,
                80,
                &[],
            ),
        };
        for (time, interface, data) in packets {
            let len = data.len() as u32;
            out = match (kind, interface) {
                (0 | 1, _) => out
                    .u32((time >> 40) as u32)
                    .u32(time as u32 % 1_000_000)
                    .u32(len)
                    .u32(len)
                    .raw(&data),
                (_, 2) => {
                    let body = out.body().u32(len).raw(&data);
                    out.block(3, body)
                }
                _ => out.enhanced(interface, time, len, &data),
            };
        }
        if kind == 3 { gzip(&out.out) } else { out.out }
    })
}

/// Reads all and checks that what comes out is not more than what is there.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(mut capture) = Capture::from_reader(Cursor::new(bytes.to_vec()), "x") {
        let mut total = 0;
        while let Ok(Some(packet)) = capture.next_packet() {
            total += packet.data.len();
            prop_assert!(packet.data.len() <= CAPTURED_LEN_MAX as usize);
        }
        // Deflate expands by 1032 at most.
        prop_assert!(total <= bytes.len() * 1032);
    }
    let limits = Limits { memory_bytes_max: 4096 };
    if let Ok(capture) = Capture::from_reader(Cursor::new(bytes.to_vec()), "x")
        && let Ok(store) = capture.into_ethernet(&limits)
    {
        prop_assert!(store.memory_bytes() <= 4096);
        let bytes: usize = store.iter().map(|f| f.data.len()).sum();
        prop_assert!(bytes <= 4096);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn random_bytes(start in 0usize..8, tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let starts: [&[u8]; 8] = [
            &[],
            &[0xa1, 0xb2, 0xc3, 0xd4],
            &[0x4d, 0x3c, 0xb2, 0xa1],
            &[0x0a, 0x0d, 0x0d, 0x0a],
            &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0],
            &[0x1f, 0x8b],
            &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0],
        ];
        survives(&[starts[start], &tail].concat())?;
    }

    #[test]
    fn mutated_captures(
        bytes in any_capture(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = bytes;
        prop_assert!(read(&bytes).is_ok());
        for (index, byte, kind) in changes {
            let i = index.index(bytes.len());
            match kind {
                0 => bytes[i] = byte,
                1 => bytes[i] ^= 1 << (byte % 8),
                2 => bytes[i] = 0xff,
                _ => { bytes.insert(i, byte); }
            }
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        survives(&bytes)?;
    }

    #[test]
    fn agrees_with_pcap_file(
        packets in prop::collection::vec(
            (any::<u32>(), 0..1_000_000u32, prop::collection::vec(any::<u8>(), 0..200)), 1..20),
        big in any::<bool>(),
        nanoseconds in any::<bool>(),
    ) {
        let mut bytes = pcap_header(big, nanoseconds, 65535, 1);
        for (seconds, fraction, data) in &packets {
            let len = data.len() as u32;
            bytes = bytes.u32(*seconds).u32(*fraction).u32(len).u32(len).raw(data);
        }
        let mut oracle = pcap_file::pcap::PcapReader::new(&bytes.out[..]).unwrap();
        let mut expected = Vec::new();
        while let Some(packet) = oracle.next_packet() {
            let p = packet.unwrap();
            expected.push((p.timestamp.as_nanos() as u64, 0, 1, p.orig_len, p.data.to_vec()));
        }
        prop_assert_eq!(read(&bytes.out).unwrap(), expected);
    }

    #[test]
    fn store_and_writer_round_trip(
        frames in prop::collection::vec(
            (0u64..1 << 61, 0u32..4, prop::collection::vec(any::<u8>(), 0..300)), 1..30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut set = CaptureSet::create(dir.path(), &[0, 1, 2, 3]).unwrap();
        let mut store = FrameStore::new();
        for (time, port, data) in &frames {
            store.push(data, *port, *time).unwrap();
        }
        for frame in store.iter() {
            set.write(frame.interface, frame.timestamp_ns, frame.data).unwrap();
        }
        for (port, path, count) in set.finish().unwrap() {
            let expected: Packets = frames
                .iter()
                .filter(|f| f.1 == port)
                .map(|(time, _, data)| (*time, 0, LinkType::ETHERNET.0, data.len() as u32, data.clone()))
                .collect();
            prop_assert_eq!(count as usize, expected.len());
            prop_assert_eq!(read(&fs::read(path).unwrap()).unwrap(), expected);
        }
    }
}
