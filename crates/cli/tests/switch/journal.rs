//! `overbank gateway --journal`: what was answered is there after kill -9, on a full disk, and
//! after damage.

use crate::process::{Running, must, overbank, wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Place {
    folder: tempfile::TempDir,
    tag: &'static str,
}

impl Place {
    fn new(tag: &'static str) -> Option<Place> {
        let is_root = must("id -u").trim() == "0";
        let folder = tempfile::tempdir().expect("a folder");
        overbank_testing::needs("root", is_root).then_some(Place { folder, tag })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.at("journal/sessions.journal")
    }

    /// The command of a gateway with its journal.
    fn command(&self) -> Command {
        let mut command = overbank();
        command.args(["gateway", "--metrics", "off", "--format", "json", "--journal"]);
        command.arg(self.at("journal")).arg("--control").arg(self.at("control"));
        for role in ["n3", "n6"] {
            let name = format!("ob{}{}{role}", self.tag, std::process::id());
            command.args(["--port", &format!("{role}=tap:{name}")]);
        }
        command.args(["--n3-address", "192.0.2.1", "--ue-pool", "10.45.0.0/16"]);
        command
    }

    fn start(&self) -> Running {
        let running = Running::start(&mut self.command());
        wait("the control socket", || UnixStream::connect(self.at("control")).is_ok());
        running
    }

    /// Runs a gateway that must not start; returns its errors.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.command().args(words).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Sends a request; `None`: there was no whole answer.
fn ask(control: &Path, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(control).ok()?;
    let len = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: {len}\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?))
}

fn body(id: u32, key: u32) -> String {
    let (n3, peer) = ("192.0.2.1", "198.51.100.7");
    let ipv4 = format!("10.45.{}.{}", key >> 8, key & 255);
    let session = json!({ "id": id, "n3": n3, "teid": key, "peer": peer, "peer_teid": id,
                          "ipv4": ipv4, "rate_up": 1000 });
    session.to_string()
}

/// State of a session: its rate, if it is there.
type State = Option<u64>;

/// What one client was answered, by session, and what it last asked for.
#[derive(Default)]
struct Client {
    answered: BTreeMap<u32, State>,
    asked: Option<(u32, State)>,
    turns: u64,
}

impl Client {
    /// Adds, changes and removes sessions until the gateway is gone.
    fn run(&mut self, control: &Path, first: u32, answers: &AtomicUsize) {
        loop {
            self.turns += 1;
            let n = first + (self.turns * 7 % 40) as u32;
            let state = self.answered.get(&n).copied().flatten();
            let rate = 1000 + self.turns;
            let (after, answer) = match state {
                None => (Some(1000), ask_noted(self, n, Some(1000), control, "POST", &body(n, n))),
                Some(_) if self.turns.is_multiple_of(3) => {
                    (None, ask_noted(self, n, None, control, "DELETE", ""))
                }
                Some(_) => {
                    let change = json!({ "rate_up": rate }).to_string();
                    (Some(rate), ask_noted(self, n, Some(rate), control, "PATCH", &change))
                }
            };
            let Some((status, document)) = answer else { return };
            assert!(status < 300, "{status}: {document}");
            self.answered.insert(n, after);
            self.asked = None;
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn ask_noted(
    client: &mut Client,
    id: u32,
    after: State,
    control: &Path,
    method: &str,
    body: &str,
) -> Option<(u16, Value)> {
    client.asked = Some((id, after));
    let path = if method == "POST" { "/sessions".to_owned() } else { format!("/sessions/{id}") };
    ask(control, method, &path, body)
}

#[test]
fn what_was_answered_outlives_kill_9() {
    let Some(place) = Place::new("jk") else { return };
    let control = place.at("control");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::default()).collect();
    let mut rested = 0;
    for round in 0..6 {
        let mut running = place.start();
        let answers = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (nth, client) in clients.iter_mut().enumerate() {
                let (control, answers) = (&control, &answers);
                let first = 1 + 100 * nth as u32;
                scope.spawn(move || client.run(control, first, answers));
            }
            wait("answers", || answers.load(Ordering::Relaxed) > 300 + 37 * round);
            running.child.kill().expect("it runs");
        });
        drop(running);
        let running = place.start();
        for client in &mut clients {
            let asked = client.asked.take();
            for id in client.answered.keys().copied().chain(asked.map(|(id, _)| id)) {
                let (status, found) =
                    ask(&control, "GET", &format!("/sessions/{id}"), "").expect("it answers");
                let found = (status == 200).then(|| found["rate_up"].as_u64().expect("a rate"));
                let answered = client.answered.get(&id).copied().flatten();
                let pending = asked.filter(|(of, _)| *of == id).map(|(_, state)| state);
                assert!(
                    found == answered || Some(found) == pending,
                    "session {id}: {found:?}, answered {answered:?}, asked {pending:?}"
                );
                if let Some((of, _)) = asked.filter(|(of, _)| *of == id) {
                    client.asked = Some((of, found));
                }
            }
            if let Some((id, state)) = client.asked.take() {
                // One that was never there has freed nothing.
                if state.is_some() || client.answered.contains_key(&id) {
                    client.answered.insert(id, state);
                }
            }
        }
        // What was freed rests: no other session has it.
        let mut freed = clients.iter().flat_map(|client| &client.answered);
        let Some((freed, _)) = freed.find(|(_, state)| state.is_none()) else { continue };
        let (status, error) =
            ask(&control, "POST", "/sessions", &body(9000, *freed)).expect("it answers");
        assert_eq!(status, 409);
        assert!(error["error"].as_str().expect("a line").contains("rests for"), "{error}");
        rested += 1;
        running.end("TERM");
    }
    assert!(rested > 0, "sessions are removed");
}

#[test]
fn damage_a_second_gateway_and_conflicts_are_named() {
    let Some(place) = Place::new("jd") else { return };
    let control = place.at("control");
    let running = place.start();
    for id in 1..=3 {
        let (status, answer) = ask(&control, "POST", "/sessions", &body(id, id)).expect("answers");
        assert_eq!(status, 201, "{answer}");
    }
    let (_, status) = ask(&control, "GET", "/status", "").expect("answers");
    assert_eq!(status["control"]["journal"]["changes"], 3, "{status}");
    let second = place.fails(&[]);
    assert!(second.contains("journal: another gateway uses this journal; stop it"), "{second}");
    running.end("TERM");

    // A file of sessions that wants the address of one of the journal.
    let file = place.at("s.csv");
    let header = "id,n3,teid,peer,peer_teid,ipv4";
    let line = "8,192.0.2.1,8,198.51.100.7,8,10.45.0.2";
    fs::write(&file, format!("{header}\n{line}\n")).expect("written");
    let words = ["--sessions", file.to_str().expect("text")];
    let errors = place.fails(&words);
    for wanted in [
        "s.csv:2: address 10.45.0.2 belongs to session 2; session 8 needs another",
        "s.csv were checked beside those of the journal",
    ] {
        assert!(errors.contains(wanted), "{wanted}: {errors}");
    }
    // Other settings than those that its sessions were added with.
    let errors = place.fails(&["--check", "--max-sessions", "2"]);
    assert!(errors.contains("journal: 1 of its sessions do not fit the settings"), "{errors}");
    let errors = place.fails(&["--node", "1"]);
    assert!(errors.contains("--journal: a cluster has its sessions in its log"), "{errors}");

    // A torn frame is cut off, with its bytes.
    let whole = fs::read(place.file()).expect("there");
    fs::write(place.file(), [&whole[..], b"frame 00000"].concat()).expect("written");
    let running = place.start();
    let cut = running.seen.iter().find(|line| line.contains("cut the last frame off"));
    assert!(cut.is_some_and(|line| line.contains("bytes=11")), "{:?}", running.seen);
    running.end("TERM");
    assert_eq!(fs::read(place.file()).expect("there"), whole);
    // Damage before the last frame stays, and is named.
    let mut damaged = whole.clone();
    damaged[60] ^= 1;
    fs::write(place.file(), &damaged).expect("written");
    for words in [&[][..], &["--check"]] {
        let errors = place.fails(words);
        assert!(errors.contains("sessions.journal: byte 27: frame 1 is damaged"), "{errors}");
        assert!(errors.contains("put a copy of the file back, or move it away"), "{errors}");
    }
    assert_eq!(fs::read(place.file()).expect("there"), damaged);
}

#[test]
fn a_full_disk_refuses_a_change_by_name() {
    let Some(place) = Place::new("jf") else { return };
    let (control, disk) = (place.at("control"), place.at("journal"));
    fs::create_dir(&disk).expect("made");
    let disk = disk.display();
    must(&format!("mount -t tmpfs -o size=64k tmpfs {disk}"));
    let running = place.start();
    let refused = (1..2000).find_map(|id| {
        let (status, answer) = ask(&control, "POST", "/sessions", &body(id, id)).expect("answers");
        assert!(status == 201 || status == 503, "{status}: {answer}");
        (status == 503).then(|| (id, answer["error"].as_str().expect("a line").to_owned()))
    });
    let (id, error) = refused.expect("the disk is small");
    assert!(error.starts_with("not kept, and not done: "), "{error}");
    assert!(error.contains("cannot write: No space left on device"), "{error}");
    let (status, _) = ask(&control, "GET", &format!("/sessions/{id}"), "").expect("answers");
    assert_eq!(status, 404);
    must(&format!("mount -o remount,size=256k {disk}"));
    let (status, _) = ask(&control, "POST", "/sessions", &body(id, id)).expect("answers");
    assert_eq!(status, 201);
    drop(running);
    let running = place.start();
    let (_, list) = ask(&control, "GET", "/sessions?most=1", "").expect("answers");
    assert_eq!(list["total"], id);
    running.end("TERM");
    must(&format!("umount {disk}"));
}
