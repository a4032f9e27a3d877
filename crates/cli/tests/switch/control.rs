//! The control socket of `overbank gateway`: raw requests, hostile ones too, and the commands.

use crate::process::{Running, must, overbank, sh, wait};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Output;

const HEADER: &str = "id,n3,teid,peer,peer_teid,qfi,ipv4,ipv6,gate,rate_up,rate_down";

struct Gateway {
    folder: tempfile::TempDir,
    running: Running,
}

impl Gateway {
    /// A gateway with session 1 of a file; `None` where the test is skipped.
    fn start(tag: &str) -> Option<Gateway> {
        if !overbank_testing::needs("root", must("id -u").trim() == "0") {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = (folder.path().join("control"), folder.path().join("s.csv"));
        let line = "1,192.0.2.1,1,198.51.100.7,0x1001,9,10.45.0.1,,,,";
        std::fs::write(&file, format!("{HEADER}\n{line}\n")).expect("written");
        let mut command = overbank();
        command.args(["gateway", "--metrics", "off", "--max-sessions", "5000", "--sessions"]);
        command.arg(&file).arg("--control").arg(&path);
        for role in ["n3", "n6"] {
            let name = format!("ob{tag}{}{role}", std::process::id());
            command.args(["--port", &format!("{role}=tap:{name}")]);
        }
        command.args(["--n3-address", "192.0.2.1", "--ue-pool", "10.45.0.0/16"]);
        let gateway = Gateway { folder, running: Running::start(&mut command) };
        wait("the control socket", || UnixStream::connect(gateway.path()).is_ok());
        Some(gateway)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    /// Sends bytes and reads to the end.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.path()).expect("it listens");
        // It may answer and close before it has read everything.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }

    /// Sends a request; returns the status code and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let len = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Length: {len}\r\n\r\n");
        let answer = self.raw(&[head.as_bytes(), body.as_bytes()].concat());
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    fn json(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.ask(method, path, body);
        (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    fn command(&self, words: &[&str]) -> Output {
        let mut command = overbank();
        command.arg("gateway").args(words).arg("--control").arg(self.path());
        command.output().expect("runs")
    }

    /// Runs a command that must succeed; returns what it prints.
    fn says(&self, words: &[&str]) -> String {
        let output = self.command(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that must fail; returns its error.
    fn fails(&self, words: &[&str]) -> String {
        let output = self.command(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn body(n: u32) -> String {
    json!({
        "id": n, "n3": "192.0.2.1", "teid": format!("{n:#x}"), "peer": "198.51.100.7",
        "peer_teid": 4096 + n, "ipv4": format!("10.45.{}.{}", n >> 8, n & 255), "rate_up": "50M",
    })
    .to_string()
}

#[test]
fn sessions_are_added_changed_and_removed() {
    let Some(gateway) = Gateway::start("ca") else { return };
    let mode = must(&format!("stat -c %a {}", gateway.path().display()));
    assert_eq!(mode.trim(), "600");
    assert_eq!(gateway.json("GET", "/ready", ""), (200, json!({ "ready": true })));
    let (status, added) = gateway.json("POST", "/sessions", &body(7));
    assert_eq!((status, &added["rate_up"], &added["teid"]), (201, &json!(50_000_000), &json!(7)));
    let (status, changed) =
        gateway.json("PATCH", "/sessions/7", r#"{"gate": "closed", "rate_up": null}"#);
    assert_eq!(
        (status, &changed["gate"], &changed["rate_up"]),
        (200, &json!("closed"), &json!(null))
    );
    let (status, shown) = gateway.json("GET", "/sessions/7", "");
    assert_eq!(
        (status, &shown["origin"], &shown["gate"]),
        (200, &json!("request"), &json!("closed"))
    );
    for by in ["address=10.45.0.7", "teid=0x7", "teid=7&origin=request", "origin=request"] {
        let (status, page) = gateway.json("GET", &format!("/sessions?{by}"), "");
        assert_eq!((status, &page["next"], &page["total"]), (200, &Value::Null, &json!(2)), "{by}");
        assert_eq!(page["sessions"].as_array().map(Vec::len), Some(1), "{by}");
        assert_eq!(page["sessions"][0]["id"], 7, "{by}");
    }
    let (_, none) = gateway.json("GET", "/sessions?teid=7&origin=file", "");
    assert_eq!(none["sessions"], json!([]));
    let (status, removed) = gateway.json("DELETE", "/sessions/7", "");
    assert_eq!((status, &removed["uplink"]["packets"]), (200, &json!(0)));
    assert_eq!(gateway.ask("GET", "/sessions/7", "").0, 404);
    let (_, status) = gateway.json("GET", "/status", "");
    assert_eq!((&status["mode"], &status["control"]["sessions"]), (&json!("gateway"), &json!(1)));
    let path = gateway.path();
    gateway.running.end("TERM");
    assert!(!path.exists());
}

#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let Some(gateway) = Gateway::start("cw") else { return };
    assert_eq!(gateway.ask("POST", "/sessions", &body(7)).0, 201);
    let with = |field: &str, value: Value| {
        let mut object: Value = serde_json::from_str(&body(8)).expect("an object");
        object[field] = value;
        object.to_string()
    };
    let long = "x".repeat(17 << 10);
    let cases: [(&str, &str, String, u16, &str); 27] = [
        ("GET", "/nothing", String::new(), 404, "no path \"/nothing\"; known: /status,"),
        ("PUT", "/sessions/7", body(7), 405, "\"/sessions/7\" has no method PUT"),
        ("GET", "/sessions/9", String::new(), 404, "there is no session 9"),
        ("GET", "/sessions/seven", String::new(), 400, "id: \"seven\": must be a number of 64"),
        ("GET", "/sessions?imsi=1", String::new(), 400, "unknown parameter \"imsi\"; known: after"),
        ("GET", "/sessions?most=0", String::new(), 400, "most: \"0\": must be from 1 to 1000"),
        ("GET", "/sessions?most=2000", String::new(), 400, "most: \"2000\": must be"),
        ("GET", "/sessions?teid=1&teid=2", String::new(), 400, "parameter teid comes twice"),
        ("GET", "/peers?after=me", String::new(), 400, "after: \"me\": must be an N3 address and"),
        ("GET", "/sessions?origin=me", String::new(), 400, "origin: \"me\": must be one of file"),
        ("GET", "/sessions?address=x", String::new(), 400, "address: \"x\": must be an address"),
        ("POST", "/sessions", "{".to_owned(), 400, "the body: EOF while parsing"),
        (
            "POST",
            "/sessions",
            "[]".to_owned(),
            400,
            "the body: invalid type: sequence, expected an",
        ),
        (
            "POST",
            "/sessions",
            with("imsi", json!(1)),
            400,
            "the body: unknown field \"imsi\"; known",
        ),
        ("POST", "/sessions", with("qfi", json!([9])), 400, "the body: invalid type: sequence"),
        ("POST", "/sessions", with("qfi", json!(-1)), 400, "the body: invalid type: integer `-1`"),
        (
            "POST",
            "/sessions",
            r#"{"id":1,"id":2}"#.to_owned(),
            400,
            "the body: field id comes twice",
        ),
        ("POST", "/sessions", with("teid", json!(0)), 400, "teid: must not be 0"),
        ("POST", "/sessions", with("n3", json!("192.0.2.9")), 400, "n3: 192.0.2.9 is not an N3"),
        (
            "POST",
            "/sessions",
            with("ipv4", json!("10.46.0.1")),
            400,
            "address 10.46.0.1 is in no UE",
        ),
        (
            "POST",
            "/sessions",
            with("teid", json!(7)),
            409,
            "TEID 0x7 at 192.0.2.1 belongs to session 7",
        ),
        ("POST", "/sessions", body(7), 409, "session 7 exists already"),
        ("POST", "/sessions", long, 413, "the body is too long; must be at most 16384 bytes"),
        ("PATCH", "/sessions/7", r#"{"id":8}"#.to_owned(), 400, "id: cannot change"),
        ("PATCH", "/sessions/1", r#"{"gate":"open"}"#.to_owned(), 409, "session 1 is of the file"),
        (
            "DELETE",
            "/sessions/1",
            String::new(),
            409,
            "session 1 is of the file of sessions: change",
        ),
        ("POST", "/import?dry-run=maybe", String::new(), 400, "dry-run: \"maybe\": must be true"),
    ];
    for (method, path, body, status, error) in cases {
        let (found, document) = gateway.json(method, path, &body);
        let text = document["error"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{method} {path}: {text}");
        assert!(text.starts_with(error), "{method} {path}: {text}\n{error}");
        assert!(!text.contains('\n'), "{text}");
    }
    // Not HTTP, half a head, half a body, a length that lies: only their own connection ends.
    let mut half = UnixStream::connect(gateway.path()).expect("it listens");
    half.write_all(b"POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{\"id\"")
        .expect("sent");
    let mut head = UnixStream::connect(gateway.path()).expect("it listens");
    head.write_all(b"GET /sess").expect("sent");
    assert!(gateway.raw(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n").contains(" 400 "));
    let lies = b"POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}";
    assert!(gateway.raw(lies).contains(" 400 "));
    let large = "POST /import HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n";
    assert!(gateway.raw(large.as_bytes()).contains(" 413 "));
    drop(half);
    let (_, page) = gateway.json("GET", "/sessions", "");
    let ids = page["sessions"].as_array().expect("a list").iter().map(|s| s["id"].as_u64());
    assert_eq!(ids.collect::<Vec<_>>(), [Some(1), Some(7)]);
    gateway.running.end("TERM");
}

#[test]
fn an_import_is_all_or_none_and_an_export_has_all() {
    let Some(gateway) = Gateway::start("ci") else { return };
    let line =
        |n: u32| format!("{n},192.0.2.1,{n},198.51.100.7,{n},,10.45.{}.{},,,,\n", n >> 8, n & 255);
    let lines: String = (2..=3000).map(line).collect();
    let csv = format!("{HEADER}\n{lines}");
    let wrong = format!("{csv}{}{}", line(1), line(2));
    let (status, refused) = gateway.json("POST", "/import", &wrong);
    assert_eq!((status, &refused["errors"][0]["line"]), (409, &json!(3001)), "{refused}");
    let (status, refused) = gateway.json("POST", "/import", &format!("{HEADER}\n1,2,3\n"));
    assert_eq!(
        (status, &refused["error"]),
        (400, &json!("line 2: 3 fields; must be 11, as the header"))
    );
    let done = |changed, kept, added, removed, dry_run| {
        let mut done = json!({ "added": added, "changed": changed, "removed": removed });
        (done["kept"], done["dry_run"]) = (json!(kept), json!(dry_run));
        done
    };
    let dry = gateway.json("POST", "/import?dry-run=true", &csv);
    assert_eq!(dry, (200, done(0, 0, 2999, 0, true)));
    assert_eq!(gateway.json("GET", "/sessions", "").1["total"], 1);
    assert_eq!(gateway.json("POST", "/import", &csv), (200, done(0, 0, 2999, 0, false)));
    let (mut after, mut ids) = (json!(0), Vec::new());
    while !after.is_null() {
        let (_, page) = gateway.json("GET", &format!("/sessions?most=999&after={after}"), "");
        let page_ids = page["sessions"].as_array().expect("a list").iter();
        ids.extend(page_ids.map(|session| session["id"].as_u64().expect("an id")));
        after = page["next"].clone();
    }
    ids.sort_unstable();
    assert_eq!(ids, (1..=3000).collect::<Vec<u64>>());
    let (status, text) = gateway.ask("GET", "/export?origin=request", "");
    let mut exported: Vec<&str> = text.lines().collect();
    assert_eq!((status, exported.len(), exported[0]), (200, 3000, HEADER));
    let again = gateway.json("POST", "/import?replace=true", &text);
    assert_eq!(again, (200, done(0, 2999, 0, 0, false)), "what is exported is imported unchanged");
    exported.truncate(2);
    let fewer = gateway.json("POST", "/import?replace=true", &exported.join("\n"));
    assert_eq!(fewer, (200, done(0, 1, 0, 2998, false)));
    assert_eq!(
        gateway.json("GET", "/check", "").1,
        json!({ "ok": true, "sessions": 2, "error": null })
    );
    gateway.running.end("TERM");
}

#[test]
fn the_commands_ask_a_running_gateway() {
    let Some(gateway) = Gateway::start("cc") else { return };
    let add = ["sessions", "add", "id=7", "n3=192.0.2.1", "teid=0x7", "peer=198.51.100.7"];
    let added = gateway.says(&[&add[..], &["peer_teid=0x2001", "ipv4=10.45.0.7"]].concat());
    assert!(added.contains("0x2001") && added.contains("10.45.0.7"), "{added}");
    let listed = gateway.says(&["sessions", "list", "--address", "10.45.0.7"]);
    assert!(listed.contains("request") && listed.ends_with("\n1 of 2 sessions\n"), "{listed}");
    let listed = gateway.says(&["sessions", "list", "--most", "1", "--format", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(
        (&listed["schema"], listed["sessions"].as_array().map(Vec::len)),
        (&json!("overbank-gateway-sessions/1"), Some(1))
    );
    let peers = gateway.says(&["peers"]);
    let found = ["198.51.100.7", "unknown", "1 of 1 peer\n"].map(|text| peers.contains(text));
    assert_eq!(found, [true; 3], "{peers}");
    let peers = gateway.says(&["peers", "--format", "json"]);
    let peers: Value = serde_json::from_str(&peers).expect("JSON");
    assert_eq!((&peers["total"], &peers["peers"][0]["sessions"]), (&json!(1), &json!(2)));
    assert!(gateway.says(&["peers", "--down"]).ends_with("\n0 of 1 peer\n"));
    gateway.says(&["sessions", "change", "7", "gate=closed"]);
    assert!(gateway.says(&["sessions", "show", "7"]).contains("closed"));
    let file = gateway.folder.path().join("import.csv");
    let file = file.to_str().expect("text");
    std::fs::write(file, gateway.says(&["sessions", "export", "--origin", "request"]))
        .expect("written");
    let done = gateway.says(&["sessions", "import", file, "--dry-run", "--replace"]);
    assert_eq!(done, "would be added 0, changed 0, removed 0, kept 1\n");
    assert_eq!(gateway.says(&["check"]), "ready; 2 sessions checked\n");
    assert!(gateway.says(&["status"]).ends_with("; 2 sessions\n"));
    gateway.says(&["sessions", "remove", "7"]);
    assert_eq!(gateway.fails(&["sessions", "show", "7"]), "overbank: there is no session 7\n");
    let error = gateway.fails(&["sessions", "add", "id"]);
    assert_eq!(error, "overbank: \"id\": must be FIELD=VALUE, such as gate=open\n");
    std::fs::write(file, format!("{HEADER}\n1,2\n3\n")).expect("written");
    let error = gateway.fails(&["sessions", "import", file]);
    assert!(error.contains("2 errors, nothing is imported\nline 2: 2 fields; must"), "{error}");
    // A socket in use is an error; one that a killed gateway left behind is not.
    let path = gateway.path();
    let again = format!(
        "{} gateway --metrics off --control {} --port n3=tap:obcca --port n6=tap:obccb \
         --n3-address 192.0.2.1 --ue-pool 10.45.0.0/16",
        overbank().get_program().display(),
        path.display()
    );
    let taken = sh(&again);
    let errors = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        !taken.status.success() && errors.contains(&format!("control {}", path.display())),
        "{errors}"
    );
    gateway.running.signal("KILL");
    wait("the gateway is gone", || UnixStream::connect(&path).is_err());
    let error = gateway.fails(&["check"]);
    assert!(error.contains("no gateway answers; start one with --control"), "{error}");
    let done = sh(&format!("{again} --duration 1"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
