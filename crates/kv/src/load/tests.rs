use super::*;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;

/// Serves connections: each line `GET` gets a reply, after a wait.
fn server(reply: &'static [u8], wait: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(line)) = lines.next() {
                    if line == "GET" {
                        std::thread::sleep(wait);
                        // A load that has ended reads no more.
                        let _ = (&stream).write_all(reply);
                    }
                }
            });
        }
    });
    address
}

fn batches(count: u64, targets: usize, pipeline: u32) -> impl FnMut(&mut Vec<u8>) -> Option<Batch> {
    let mut numbers = 0..count;
    move |out| {
        let number = numbers.next()?;
        (0..pipeline).for_each(|_| get(number, out));
        Some(Batch { target: number as usize % targets, requests: pipeline, kind: number as u32 })
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

fn plan<'a>(targets: &'a [SocketAddr], pace: Pace, stop: &'a AtomicBool) -> Plan<'a> {
    Plan { targets, connections: 2, pace, time: Duration::from_secs(20), stop }
}

#[test]
fn every_request_gets_its_reply() {
    let targets = [(); 3].map(|()| server(b"$2\r\nhi\r\n", Duration::ZERO));
    let seen = run(&plan(&targets, Pace::Closed(9), &STOP), batches(300, 3, 16)).unwrap();
    let mut kinds: Vec<u32> = seen.done.iter().map(|done| done.kind).collect();
    kinds.sort_unstable();
    assert!(kinds.into_iter().eq(0..300) && seen.unanswered == 0);
    let requests = 300.0 * 16.0 / seen.time.as_secs_f64();
    assert!((seen.rate(Duration::ZERO) - requests).abs() < 1.0);
}

/// Two connections, each reply after 20 ms, and a request every 5 ms: requests wait, and their time
/// has it.
#[test]
fn an_open_loop_counts_from_when_a_request_was_due() {
    let targets = [server(b"+OK\r\n", Duration::from_millis(20))];
    let seen = run(&plan(&targets, Pace::Open(200.0), &STOP), batches(40, 1, 1)).unwrap();
    assert_eq!(seen.done.len(), 40);
    let last = seen.done.iter().max_by_key(|done| done.due).unwrap();
    assert_eq!(last.due, 39 * 5_000_000);
    // 19 turns of 20 ms at least, less 39 × 5 ms.
    assert!(last.took >= 180_000_000, "{last:?}");
    assert!(quantile(seen.done.iter(), 0.5) < quantile(seen.done.iter(), 0.99));
    assert_eq!(quantile([].iter(), 0.5), 0.0);
}

#[test]
fn errors_say_what_is_wrong() {
    let refused = [server(b"-ERR no\r\n", Duration::ZERO)];
    let error = run(&plan(&refused, Pace::Closed(1), &STOP), batches(1, 1, 1)).unwrap_err();
    assert!(error.to_string().ends_with("replied -ERR no"), "{error}");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(&plan(&[gone], Pace::Closed(1), &STOP), batches(1, 1, 1)).unwrap_err();
    assert!(matches!(error, LoadError::Connect { address, .. } if address == gone));
}

/// Time and Ctrl-C end it.
#[test]
fn a_load_ends_though_a_reply_does_not_come() {
    let targets = [server(b"", Duration::ZERO)];
    let plan = Plan { time: Duration::from_millis(30), ..plan(&targets, Pace::Closed(3), &STOP) };
    let seen = run(&plan, batches(9, 1, 1)).unwrap();
    assert_eq!((seen.done.len(), seen.unanswered), (0, 3));
    let stop = AtomicBool::new(true);
    let plan = Plan { time: Duration::from_secs(3600), stop: &stop, ..plan };
    assert!(run(&plan, batches(9, 1, 1)).unwrap().done.is_empty());
}

#[test]
fn requests_are_those_of_redis_benchmark() {
    let (mut got, mut expected) = (Vec::new(), Vec::new());
    get(42, &mut got);
    set(7_000_000_000_001, b"v", &mut got);
    resp::command(&[&b"GET"[..], b"key:000000000042"], &mut expected);
    resp::command(&[&b"SET"[..], b"key:000000000001", b"v"], &mut expected);
    assert_eq!(got, expected);
}
