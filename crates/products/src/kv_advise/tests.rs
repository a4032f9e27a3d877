use super::frames::tests::frame;
use super::*;
use crate::kv_advise::record::Verdict;
use overbank_wire::resp;
use proptest::prelude::*;
use std::fmt::Write as _;

fn question() -> Question {
    let entries = ENTRIES.to_vec();
    Question { port: 6379, keys_max: 1 << 20, top: 10, entries, secret: None }
}

fn advised(inputs: &[&[u8]]) -> Result<Advice, AdviseError> {
    let mut advisor = Advisor::new(question());
    let stop = AtomicBool::new(false);
    for input in inputs {
        advisor.read("input", Cursor::new(input.to_vec()), &stop)?;
    }
    advisor.advice()
}

fn error(input: &[u8]) -> String {
    let error = advised(&[input]).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// A line of MONITOR at a time in milliseconds.
fn line(ms: u64, client: &str, words: &[&str]) -> String {
    let mut line = format!("{}.{:03}000 [0 {client}]", ms / 1000, ms % 1000);
    words.iter().for_each(|word| write!(line, " \"{word}\"").unwrap());
    line + "\n"
}

/// A capture of packets with their times in milliseconds.
fn pcap(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (ms, packet) in packets {
        let len = packet.len() as u32;
        for word in [(ms / 1000) as u32, (ms % 1000) as u32 * 1000, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

fn classes(advice: &Advice) -> [u64; 4] {
    let counts: Vec<u64> = advice.classes.iter().map(|class| class.commands).collect();
    counts.try_into().unwrap()
}

/// A hot key that is read often and written at times, and cold ones.
fn hot() -> Vec<(u64, Vec<String>)> {
    let words = |text: String| text.split(' ').map(str::to_owned).collect();
    (0..6000)
        .map(|nth| match nth % 100 {
            99 => words(format!("SET hot {nth}")),
            n if n % 10 == 7 => words(format!("GET cold:{nth}")),
            _ => words("GET hot".to_owned()),
        })
        .enumerate()
        .map(|(nth, words)| (nth as u64 / 2, words))
        .collect()
}

#[test]
fn monitor_and_capture_of_the_same_commands_give_the_same_advice() {
    let mut lines = "OK\n".to_owned();
    let mut packets = vec![(0, frame(false, 1, 99, 6, 2, b""))];
    let mut seq = 7;
    for (ms, words) in hot() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        lines += &line(ms, "127.0.0.1:5", &words);
        let mut bytes = Vec::new();
        resp::command(&words, &mut bytes);
        packets.push((ms, frame(false, 1, 99, seq, 0x18, &bytes)));
        seq += bytes.len() as u32;
    }
    let monitor = advised(&[lines.as_bytes()]).unwrap();
    let capture = advised(&[&pcap(&packets)]).unwrap();
    assert_eq!(classes(&monitor), [5940, 0, 60, 0]);
    assert_eq!((monitor.commands, monitor.clients), (6000, 1));
    assert!((monitor.seconds - 2.999).abs() < 1e-6);
    assert_eq!(monitor.peak_per_second, 2000);
    let hottest = &monitor.hot[0];
    assert_eq!((hottest.key.as_str(), hottest.reads, hottest.writes), ("hot", 5340, 60));
    // The second read of the key is filled, and the first after each write but the last.
    let size = &monitor.sizes[0];
    assert_eq!((size.hits, size.fills, size.saved), (5340 - 2 - 59, 60, 5219));
    let recommendation = &monitor.recommendation;
    assert_eq!((recommendation.verdict, recommendation.entries), (Verdict::Worth, Some(10)));
    let json = |advice: &Advice| {
        let mut json = serde_json::to_value(advice).unwrap();
        json.as_object_mut().unwrap().remove("inputs");
        json
    };
    assert_eq!(json(&monitor), json(&capture));
    let streams = capture.inputs[0].streams.unwrap();
    assert_eq!((streams.streams, streams.joined, streams.gaps, streams.not_resp), (1, 0, 0, 0));
}

#[test]
fn commands_are_classed_as_the_proxy_does() {
    let mut lines = String::new();
    for (client, words, is) in [
        ("a:1", "GET k", 0),
        ("a:1", "MGET k l", 0),
        ("a:1", "HGET h f", 0),
        ("a:1", "ZRANGE z 0 1 WITHSCORES", 1),
        ("a:1", "TTL k", 1),
        ("a:1", "XREAD BLOCK 0 STREAMS s 0", 1),
        ("a:1", "SET k v", 2),
        ("a:1", "BLPOP k 0", 2),
        ("a:1", "EVAL x 1 k", 2),
        ("a:1", "FLUSHALL", 3),
        ("a:1", "NOSUCH k", 3),
        ("a:1", "PING", 3),
        ("a:1", "MULTI", 3),
        ("a:1", "GET k", 1),
        ("b:1", "GET k", 0),
        ("a:1", "EXEC", 3),
        ("a:1", "GET k", 0),
        ("a:1", "WATCH k", 3),
        ("a:1", "GET k", 1),
        ("a:1", "UNWATCH", 3),
        ("a:1", "CLIENT TRACKING on", 3),
        ("a:1", "GET k", 1),
        ("a:1", "RESET", 3),
        ("a:1", "GET k", 0),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        lines += &line(0, client, &words);
        let one = advised(&[lines.as_bytes()]).unwrap();
        let mut wanted = classes(&one);
        wanted[is] -= 1;
        let before = &lines[..lines.trim_end().rfind('\n').map_or(0, |end| end + 1)];
        let before = advised(&[before.as_bytes()]).map_or([0; 4], |advice| classes(&advice));
        assert_eq!(before, wanted, "{words:?}");
    }
    let advice = advised(&[lines.as_bytes()]).unwrap();
    assert_eq!((advice.closing, advice.script_calls, advice.clients), (2, 0, 2));
}

#[test]
fn calls_of_scripts_are_apart_but_their_writes_count() {
    let mut lines = String::new();
    for client in ["a:1", "a:1", "a:1", "lua", "a:1", "a:1"] {
        let words = if client == "lua" { ["set", "k", "v"] } else { ["getrange", "k", "0"] };
        let words = [&words[..], if client == "lua" { &[] } else { &["1"] }].concat();
        lines += &line(1, client, &words);
    }
    let advice = advised(&[lines.as_bytes()]).unwrap();
    assert_eq!((advice.commands, advice.script_calls), (5, 1));
    assert_eq!((advice.sizes[0].hits, advice.sizes[0].fills), (2, 2));
}

#[test]
fn files_follow_one_another() {
    let first = [line(5000, "a:1", &["GET", "a"]), line(6000, "a:1", &["GET", "a"])].concat();
    let second = [line(1000, "a:1", &["GET", "a"]), line(3500, "a:1", &["GET", "a"])].concat();
    let advice = advised(&[first.as_bytes(), second.as_bytes()]).unwrap();
    assert!((advice.seconds - 3.5).abs() < 1e-9, "{}", advice.seconds);
    let commands: Vec<_> = advice.inputs.iter().map(|input| input.commands).collect();
    assert_eq!((commands, advice.clients), (vec![2, 2], 2));
    assert_eq!(advice.recommendation.verdict, Verdict::TooShort);
}

#[test]
fn bad_lines_are_counted_and_the_first_is_named() {
    let text = ["OK\n", "what\x01ever\n", &line(1, "a:1", &["PING"]), "5.0"].concat();
    let advice = advised(&[text.as_bytes()]).unwrap();
    let input = &advice.inputs[0];
    assert_eq!((input.lines, input.bad_lines, input.commands), (4, 2, 1));
    let bad = input.first_bad.as_ref().unwrap();
    assert_eq!((bad.line, bad.text.as_str()), (2, "what\\x01ever"));
}

#[test]
fn a_file_without_a_command_is_an_error_of_one_line() {
    assert!(error(b"").starts_with("input: no command in 0 lines; must be"));
    assert!(error(b"OK\nhello\n").contains("in 2 lines, line 2: hello; must be"));
    assert!(error(&pcap(&[])).contains("to TCP port 6379 in 0 packets; see --port"));
    let tls = pcap(&[
        (0, frame(true, 0, 9, 6, 2, b"")),
        (0, frame(true, 0, 9, 7, 0x18, b"\x16\x03\x01\x00\x05hello")),
    ]);
    assert!(error(&tls).contains("in 2 packets, which are TLS"), "{}", error(&tls));
    assert!(error(&pcap(&[])[..20]).contains("truncated capture"));
    assert!(matches!(Advisor::new(question()).advice(), Err(AdviseError::Stopped)));
}

#[test]
fn a_capture_that_breaks_off_counts_as_far_as_it_goes() {
    let mut file = pcap(&[
        (0, frame(false, 0, 9, 6, 2, b"")),
        (1, frame(false, 0, 9, 7, 0x18, b"PING\r\n")),
        (2, frame(false, 0, 9, 13, 0x18, b"PING\r\n")),
    ]);
    file.truncate(file.len() - 3);
    let advice = advised(&[&file]).unwrap();
    assert_eq!(advice.commands, 1);
    assert!(advice.inputs[0].error.as_ref().unwrap().contains("truncated"));
}

#[test]
fn databases_of_a_capture_are_followed() {
    let mut packets = vec![(0, frame(false, 0, 9, 6, 2, b""))];
    // A read of another database is another form.
    let text: &[u8] =
        b"GET k\r\nGET k\r\nGET k\r\nSELECT 1\r\nGET k\r\nGET k\r\nSELECT x\r\nGET k\r\n";
    packets.push((1, frame(false, 0, 9, 7, 0x18, text)));
    let advice = advised(&[&pcap(&packets)]).unwrap();
    assert_eq!((advice.sizes[0].hits, advice.sizes[0].fills), (3, 2));
}

/// Every field of the document is described.
#[test]
fn the_document_is_described() {
    let path = format!("{}/../../docs/kv-advise-json.md", env!("CARGO_MANIFEST_DIR"));
    let described = std::fs::read_to_string(path).unwrap();
    let text = [
        "bad\n".to_owned(),
        line(0, "a:1", &["GET", "k"]).repeat(3),
        line(9, "a:1", &["GET", "l"]),
    ];
    let packets =
        [(0, frame(false, 0, 9, 6, 2, b"")), (1, frame(false, 0, 9, 7, 0x18, b"PING\r\n"))];
    let advice = advised(&[text.concat().as_bytes(), &pcap(&packets)]).unwrap();
    fn fields(value: &serde_json::Value, into: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(all) => all.iter().for_each(|(name, value)| {
                into.push(name.clone());
                fields(value, into);
            }),
            serde_json::Value::Array(all) => all.iter().for_each(|value| fields(value, into)),
            _ => {}
        }
    }
    let mut names = vec![SCHEMA.to_owned()];
    fields(&serde_json::to_value(&advice).unwrap(), &mut names);
    let of = |verdict| serde_json::to_value(verdict).unwrap().as_str().unwrap().to_owned();
    use Verdict::*;
    names.extend([Worth, NotWorth, NotNeeded, TooShort].map(of));
    names.extend(advice.classes.iter().map(|class| class.class.to_owned()));
    assert!(names.len() > 70);
    for name in names {
        assert!(described.contains(&format!("`{name}`")), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_advised_on_or_refused(
        kind in 0..4u8, parts in prop::collection::vec(any::<Vec<u8>>(), 0..20),
    ) {
        let bytes = match kind {
            0 => parts.concat(),
            1 => parts.iter().flat_map(|part| {
                let text = part.escape_ascii().to_string();
                line(part.len() as u64 * 77, "a:1", &["get", &text]).into_bytes()
            }).collect(),
            2 => {
                let mut seq = 7;
                let mut packets = vec![(0, frame(false, 0, 9, 6, 2, b""))];
                for part in &parts {
                    let bytes = [b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", &part[..]].concat();
                    packets.push((u64::from(seq), frame(false, 0, 9, seq, 0x18, &bytes)));
                    seq += bytes.len() as u32;
                }
                pcap(&packets)
            }
            _ => [pcap(&[]), parts.concat()].concat(),
        };
        if let Ok(advice) = advised(&[&bytes]) {
            let sum: u64 = classes(&advice).iter().sum();
            prop_assert_eq!(sum, advice.commands);
            for size in &advice.sizes {
                prop_assert!(size.hits <= advice.classes[0].commands);
            }
        }
    }
}
