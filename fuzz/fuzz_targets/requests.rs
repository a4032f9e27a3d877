//! Any text as a request of the gateway's control socket: JSON objects and CSV lists that add,
//! change and remove sessions, and parameters of listings.
//!
//! Input: which request (1 byte), then its body, or its parameters. Every answer is one of JSON (an
//! export: CSV) with a status that says what happened, and each session is found by its keys
//! afterwards. An export can be imported again without a change.
#![no_main]

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use overbank_declare::counters::Exposition;
use overbank_gateway::journal::Kept;
use overbank_gateway::prefix::Prefix;
use overbank_gateway::{GatewayControl, Setup, Tunable, file, http, start};
use overbank_runtime::{ConfiguredPort, Options, Running};
use overbank_service::endpoints::Documents;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tower::ServiceExt;

/// Most sessions: small, so that the limit is met.
const SESSIONS_MAX: usize = 8;

static GATEWAY: LazyLock<Running<GatewayControl>> = LazyLock::new(|| {
    let pools =
        ["10.45.0.0/16", "2001:db8::/48"].map(|text| Prefix::parse(text).expect("a prefix"));
    let setup = Setup {
        tunable: Tunable { pools: pools.into_iter().collect(), ..Tunable::default() },
        run: Options { workers: 1, ..Options::default() },
        n3: [[192, 0, 2, 1].into()].into(),
        teid_secret: None,
        max_sessions: SESSIONS_MAX,
        seed: 1,
        kept: Kept::default(),
        journal: None,
        sessions: Vec::new(),
        interfaces: [None, None],
        cluster: None,
    };
    let ports = [1, 2].map(|number| ConfiguredPort { number, spec: None, port: None });
    start(&setup, ports.into()).expect("a gateway without ports")
});

struct NoDocuments;

impl Documents for NoDocuments {
    fn metrics(&self) -> Exposition {
        Exposition::new()
    }

    fn status(&self) -> serde_json::Result<Vec<u8>> {
        Ok(b"{}".to_vec())
    }
}

struct Rig {
    runtime: Runtime,
    router: Router,
    _stop: watch::Sender<bool>,
}

thread_local! {
    static RIG: Rig = Rig::new();
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    RIG.with(|rig| rig.check(which, rest));
    assert!(!GATEWAY.is_broken());
});

impl Rig {
    fn new() -> Rig {
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let handle = GATEWAY.handle().clone();
        let router = http::router(handle, None, Arc::new(NoDocuments), stopped);
        Rig { runtime: runtime.expect("a runtime"), router, _stop: stop }
    }

    /// Asks; returns the status and the text of the answer.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_vec()));
        // Such a path does not come from a connection.
        let Ok(request) = request else {
            return (StatusCode::BAD_REQUEST, r#"{"error":""}"#.to_owned());
        };
        self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request).await.expect("an answer");
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("whole").to_bytes();
            (status, String::from_utf8(body.to_vec()).expect("text"))
        })
    }

    fn check(&self, which: u8, rest: &[u8]) {
        let text = String::from_utf8_lossy(rest);
        let of_uri = |base: &str| format!("{base}?{}", text.replace(char::is_whitespace, "+"));
        let (method, path) = match which % 10 {
            0 => ("POST", "/sessions".to_owned()),
            1 => ("PATCH", "/sessions/1".to_owned()),
            2 => ("DELETE", format!("/sessions/{}", rest.len() % 4)),
            3 => ("POST", "/import".to_owned()),
            4 => ("POST", "/import?replace=true".to_owned()),
            5 => ("POST", "/import?dry-run=true".to_owned()),
            6 => ("GET", of_uri("/sessions")),
            7 => ("GET", of_uri("/export")),
            8 => ("POST", of_uri("/sessions/1/move")),
            _ => ("PUT", format!("/{}", text.replace(char::is_whitespace, "+"))),
        };
        let before = GATEWAY.handle().lock().sessions().totals();
        let (status, answer) = self.ask(method, &path, rest);
        assert!(status != StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
        let after = GATEWAY.handle().lock().sessions().totals();
        if status.is_success() && path.starts_with("/export") {
            assert!(file::parse(&answer).is_ok(), "{answer}");
        } else {
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let error = answer["error"].as_str();
            assert_eq!(error.is_none(), status.is_success(), "{status} {answer}");
            assert!(error.is_none_or(|error| !error.contains('\n')), "{answer}");
        }
        if !status.is_success() || which % 10 == 5 {
            let changes = |t: overbank_gateway::sessions::SessionTotals| {
                (t.sessions, t.added, t.changed, t.removed)
            };
            assert_eq!(changes(before), changes(after), "{method} {path}: {answer}");
        }
        let (_, checked) = self.ask("GET", "/check", b"");
        assert!(checked.contains("\"ok\":true"), "{checked}");
        assert!(after.sessions as usize <= SESSIONS_MAX);
        let (_, export) = self.ask("GET", "/export", b"");
        let (status, again) = self.ask("POST", "/import?dry-run=true", export.as_bytes());
        let again: Value = serde_json::from_str(&again).expect("JSON");
        assert_eq!((status, again["kept"].as_u64()), (StatusCode::OK, Some(after.sessions)));
        // What was freed rests: now and then the next inputs find all free.
        if which >= 250 {
            self.ask("POST", "/import?replace=true", format!("{}\n", file::header()).as_bytes());
            GATEWAY.handle().lock().sessions_mut().0.tick(u64::MAX);
        }
    }
}
