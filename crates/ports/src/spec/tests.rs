use super::*;
use proptest::prelude::*;

fn parsed(text: &str) -> PortSpec {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn refused(text: &str) -> String {
    let error = text.parse::<PortSpec>().expect_err(text).to_string();
    assert!(!error.contains('\n'), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
    error
}

#[test]
fn the_examples_mean_what_they_say() {
    let spec = parsed("afpacket:veth1,ring=v3,ring-mib=32,promiscuous=no");
    let options = AfPacketOptions { ring: RingKind::V3, ring_mib: 32, promiscuous: false };
    assert_eq!(spec.kind, PortKind::AfPacket { interface: "veth1".into(), options });
    assert_eq!((spec.faults, spec.dump), (None, None));

    let PortKind::AfXdp { options, .. } = parsed("afxdp:veth1,mode=copy,frames=512").kind else {
        panic!()
    };
    assert_eq!((options.mode, options.frames), (afxdp::CopyMode::Copy, 512));

    let options = TapOptions { offload: false, mtu: Some(9000) };
    let interface = "tap0".to_owned();
    assert_eq!(parsed("tap:tap0,offload=off,mtu=9000").kind, PortKind::Tap { interface, options });

    let both =
        PcapOptions { input: Some("a.pcap".into()), output: Some("b.pcap".into()), pace: true };
    assert_eq!(parsed("pcap:in=a.pcap,out=b.pcap,pace=yes").kind, PortKind::Pcap(both.clone()));
    assert_eq!(parsed("pcap:a.pcap,pace=on,out=b.pcap").kind, PortKind::Pcap(both));

    let options = MemoryOptions { flows: 1000, limit: Some(7), ..MemoryOptions::default() };
    assert_eq!(parsed("memory:flows=1000,size=64,limit=7").kind, PortKind::Memory(options));
    assert_eq!(parsed("memory").kind, PortKind::Memory(MemoryOptions::default()));

    let spec = parsed("tap:t,loss=0.01,corrupt=1e-3,fault-seed=9,fault-on=both,dump=x.pcap");
    let faults = FaultOptions {
        loss: 0.01,
        corrupt: 0.001,
        seed: 9,
        on: FaultOn::Both,
        ..FaultOptions::default()
    };
    assert_eq!((spec.faults, spec.dump), (Some(faults), Some("x.pcap".into())));
    assert_eq!(parsed("tap:t,loss=0").faults, None);
}

#[test]
fn errors_are_one_line() {
    for (text, part) in [
        ("", "afpacket, afxdp, tap, pcap, memory"),
        ("veth1", "expected KIND:ARGUMENT"),
        ("eth:veth1", "expected KIND:ARGUMENT"),
        ("afpacket:", "expected the name of an interface"),
        ("afpacket:ring=v2", "expected the name of an interface"),
        ("afpacket:a/b", "expected an interface name"),
        ("afpacket:a-name-that-is-too-long", "expected an interface name"),
        ("tap:..", "expected an interface name"),
        ("tap:a\nb", "`a\\nb`, expected an interface name"),
        ("afpacket:veth1,ring=v1", "ring=v1, expected one of v2, v3"),
        ("afpacket:veth1,ring-mib=0", "ring-mib=0, expected a number from 1 to 1024"),
        ("afpacket:veth1,mtu=9", "unknown option `mtu`, expected one of ring, ring-mib"),
        ("afpacket:veth1,ring=v2,ring=v2", "given twice"),
        ("afpacket:veth1,ring", "expected option=value"),
        ("afpacket:veth1,,", "expected option=value"),
        ("afpacket:veth1,dump=", "has no value"),
        ("afxdp:veth1,mode=fast", "mode: "),
        ("afxdp:veth1,mode=\u{1}", "`\\u{1}`, expected one of auto, copy"),
        ("afxdp:veth1,frames=1000", "a power of two"),
        ("pcap:", "expected a capture"),
        ("pcap:a,in=b", "two captures"),
        ("pcap:a,out=a", "the same file"),
        ("memory:1000", "such as flows=1000"),
        ("memory:flows=3,file=a", "exclude"),
        ("memory:size=41", "from 42 to 9018"),
        ("tap:t,loss=1.5", "loss=1.5, expected a number from 0 to 1"),
        ("tap:t,loss=NaN", "expected a number"),
        ("tap:t,fault-on=up", "one of in, out, both"),
    ] {
        let error = refused(text);
        assert!(error.contains(part), "{text:?}: {error}");
        assert!(error.starts_with("port `"), "{error}");
    }
}

#[test]
fn opening_refuses_invalid_options() {
    let open_error = |text: &str, queues| match open(&parsed(text), queues) {
        Ok(_) => panic!("{text} opened"),
        Err(error) => error.to_string(),
    };
    assert!(open_error("memory:", 0).contains("0 queues, expected 1 to 64"));
    assert!(open_error("memory:", 65).contains("65 queues"));
    let error = open_error("pcap:/nowhere/a.pcap", 1);
    assert!(error.contains("cannot open the capture"), "{error}");
    let error = open_error("memory:,dump=/nowhere/a.pcap", 1);
    assert!(error.contains("/nowhere/a.pcap"), "{error}");
    let error = open_error("afpacket:nowhere0", 1);
    assert_eq!(error, "afpacket:nowhere0: no such network interface");
}

#[test]
fn every_kind_opens_with_wrappers_around_it() {
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("seen.pcap");
    let text = format!("memory:flows=10,limit=100,loss=0.5,fault-seed=3,dump={}", dump.display());
    let mut port = open(&parsed(&text), 2).unwrap();
    let mut seen = 0;
    for queue in &mut port.take_queues() {
        while !queue.receive.is_finished() {
            seen += queue.receive.receive().unwrap().len() as u64;
        }
    }
    let info = port.info();
    assert_eq!(info.name, "memory:flows=10");
    assert!(info.detail.contains("faults in 100 frames"), "{}", info.detail);
    assert!((20..80).contains(&seen), "{seen}");
    let dumped = crate::read_ethernet(&dump, &crate::Limits::default()).unwrap();
    assert_eq!(dumped.len() as u64, seen, "the tap sees what is left after the faults");
}

fn path() -> impl Strategy<Value = PathBuf> {
    "[a-z/._ -]{1,12}".prop_map(PathBuf::from)
}

prop_compose! {
    fn kinds()(
        which in 0..5,
        interface in "[a-z][a-z0-9._-]{0,14}",
        (a, b, c) in (any::<bool>(), any::<bool>(), any::<bool>()),
        small in 1..=1024u32,
        (one, two) in (path(), path()),
        size in 42..=9018usize,
        limit in proptest::option::of(any::<u64>()),
        mtu in proptest::option::of(68..=65_000u32),
    ) -> PortKind {
        match which {
            0 => {
                let ring = if a { RingKind::V2 } else { RingKind::V3 };
                let options = AfPacketOptions { ring, ring_mib: small, promiscuous: b };
                PortKind::AfPacket { interface, options }
            }
            1 => {
                let options = AfXdpOptions {
                    mode: if a { afxdp::CopyMode::ZeroCopy } else { afxdp::CopyMode::Copy },
                    xdp: if b { afxdp::XdpMode::Native } else { afxdp::XdpMode::Generic },
                    frames: (small.next_power_of_two() * 256).min(65_536),
                    promiscuous: c,
                    ..AfXdpOptions::default()
                };
                PortKind::AfXdp { interface, options }
            }
            2 => PortKind::Tap { interface, options: TapOptions { offload: a, mtu } },
            3 => {
                let output = (b || !a || one == two).then(|| two.join("out"));
                let input = (a || output.is_none()).then_some(one);
                PortKind::Pcap(PcapOptions { input, output, pace: c })
            }
            _ => {
                let file = a.then_some(one);
                let flows = if a { 0 } else { small };
                PortKind::Memory(MemoryOptions { flows, size, file, limit, keep: 3 })
            }
        }
    }
}

proptest! {
    #[test]
    fn printed_specs_parse_to_the_same(
        kind in kinds(),
        faults in proptest::option::of((0.0..=1.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0, any::<u64>(), 0..3usize)),
        dump in proptest::option::of(path()),
    ) {
        let faults = faults.map(|(loss, corrupt, reorder, duplicate, seed, on)| {
            let on = [FaultOn::In, FaultOn::Out, FaultOn::Both][on];
            FaultOptions { loss, corrupt, reorder, duplicate, seed, on }
        });
        let faults = faults.filter(|f| *f != FaultOptions::default());
        let spec = PortSpec { kind, faults, dump };
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<PortSpec>(), Ok(spec), "{}", text);
    }

    #[test]
    fn any_text_gives_a_spec_or_one_line(
        text in "(afpacket|afxdp|tap|pcap|memory|x)?:?[a-z0-9=,.:-]{0,30}(,[a-z-]{1,10}=.{0,5}){0,3}",
    ) {
        match text.parse::<PortSpec>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse::<PortSpec>(), Ok(spec)),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
