//! TLS to clients, to the server, and to both: what is served, and what is refused.

use crate::common::{LONG, connect, free_port, until};
use crate::features::{long_values, pipeline};
use crate::hits::hot;
use crate::lanes::random_clients;
use crate::same::random_requests;
use crate::servers::{Connection, Redis, Way, proxy, settings, start};
use overbank_declare::settings::{Source, Table as _};
use overbank_kv::proxy::Running;
use overbank_kv::proxy::settings::ProxySettings;
use overbank_kv::proxy::totals::Closed;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Authorities, and certificates with their keys, in files of PEM.
struct Files(TempDir);

impl Files {
    /// Makes the authorities `ca` and `other`; `server` and `client` of the first, `stranger` of
    /// the second, and `named`, which is for another name than this machine's.
    fn new() -> Files {
        let files = Files(tempfile::tempdir().expect("a directory"));
        let [ca, other] = ["ca", "other"].map(|name| {
            let mut params = CertificateParams::new(Vec::new()).expect("no names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("a certificate");
            std::fs::write(files.of(&format!("{name}.crt")), certificate.pem()).expect("a file");
            Issuer::new(params, key)
        });
        files.sign("server", &["localhost", "127.0.0.1"], &ca);
        files.sign("again", &["localhost", "127.0.0.1"], &ca);
        files.sign("client", &["client"], &ca);
        files.sign("named", &["redis.example.com"], &ca);
        files.sign("stranger", &["localhost", "127.0.0.1"], &other);
        files
    }

    fn sign(&self, name: &str, names: &[&str], issuer: &Issuer<'_, KeyPair>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, issuer).expect("a certificate");
        std::fs::write(self.of(&format!("{name}.crt")), certificate.pem()).expect("a file");
        std::fs::write(self.of(&format!("{name}.key")), key.serialize_pem()).expect("a file");
    }

    fn of(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// Returns what a client needs that trusts `ca`, and shows a certificate or none.
    fn client(&self, ca: &str, shows: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let read = |name: String| CertificateDer::from_pem_file(self.of(&name)).expect("PEM");
        roots.add(read(format!("{ca}.crt"))).expect("an authority");
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match shows {
            None => config.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.of(&format!("{name}.key")));
                let chain = vec![read(format!("{name}.crt"))];
                config.with_client_auth_cert(chain, key.expect("a key")).expect("a pair")
            }
        })
    }

    /// Has a server listen for TLS too; returns the port.
    fn secure(&self, redis: &Redis, name: &str, more: &str) -> u16 {
        let port = free_port();
        let (cert, key) = (self.of(&format!("{name}.crt")), self.of(&format!("{name}.key")));
        let line = format!(
            "CONFIG SET tls-cert-file {cert} tls-key-file {key} tls-ca-cert-file {} \
             tls-port {port} {more}",
            self.of("ca.crt")
        );
        assert_eq!(redis.connect().ask(line.trim_end()), "+OK\r\n", "{line}");
        port
    }
}

/// A connection of a client with TLS, that waits.
fn open(port: u16, config: &Arc<ClientConfig>) -> rustls::StreamOwned<ClientConnection, TcpStream> {
    let socket = connect(port);
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let tls = ClientConnection::new(config.clone(), name).expect("a client");
    rustls::StreamOwned::new(tls, socket)
}

/// Asks for one line; an error if the connection ends.
fn ask(port: u16, config: &Arc<ClientConfig>, line: &str) -> std::io::Result<String> {
    let mut stream = open(port, config);
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(String::from_utf8_lossy(&bytes[..count]).into_owned()),
    }
}

/// Listens for clients without TLS, whose bytes it brings to a port with TLS.
fn tunnel(to: u16, config: Arc<ClientConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for plain in listener.incoming() {
            let (Ok(plain), config) = (plain, config.clone()) else { return };
            std::thread::spawn(move || {
                let Ok(socket) = TcpStream::connect(("127.0.0.1", to)) else { return };
                let name = ServerName::try_from("127.0.0.1").expect("a name");
                let tls = ClientConnection::new(config, name).expect("a client");
                // Both ends see that it has ended.
                let _ = carry(&plain, &socket, tls);
                let _ = (plain.shutdown(Shutdown::Both), socket.shutdown(Shutdown::Both));
            });
        }
    });
    port
}

/// Carries bytes both ways until the other side ends. An end of the client is passed on.
fn carry(
    mut plain: &TcpStream,
    mut socket: &TcpStream,
    mut tls: ClientConnection,
) -> std::io::Result<()> {
    for stream in [plain, socket] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    let now = |result: std::io::Result<usize>| match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    };
    let (mut back, mut bytes, mut ends) = (Vec::new(), vec![0; 16 << 10], false);
    loop {
        let of_plain = if back.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let reads = if ends || tls.wants_write() { PollFlags::empty() } else { PollFlags::IN };
        let takes = if back.is_empty() { PollFlags::IN } else { PollFlags::empty() };
        let of_tls = if tls.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        let mut both =
            [PollFd::new(&plain, of_plain | reads), PollFd::new(&socket, of_tls | takes)];
        poll(&mut both, None)?;
        if !reads.is_empty() {
            match now(plain.read(&mut bytes))? {
                Some(0) => {
                    ends = true;
                    tls.send_close_notify();
                }
                Some(count) => tls.writer().write_all(&bytes[..count])?,
                None => {}
            }
        }
        while tls.wants_write() && now(tls.write_tls(&mut socket))?.is_some() {}
        if back.is_empty() {
            let ended = now(tls.read_tls(&mut socket))? == Some(0);
            tls.process_new_packets().map_err(std::io::Error::other)?;
            // No event comes for the rest.
            while let Some(count @ 1..) = now(tls.reader().read(&mut bytes))? {
                back.extend(&bytes[..count]);
            }
            if ended && back.is_empty() {
                return Ok(());
            }
        }
        if !back.is_empty()
            && let Some(count) = now(plain.write(&back))?
        {
            back.drain(..count);
        }
    }
}

/// The [`Way`] with TLS on both sides.
fn over_tls(redis: &Redis, flags: &[(&str, &str)]) -> (Running, u16) {
    let files = Files::new();
    let port = files.secure(redis, "server", "tls-auth-clients no");
    let (url, ca) = (format!("rediss://127.0.0.1:{port}"), files.of("ca.crt"));
    let (cert, key) = (files.of("server.crt"), files.of("server.key"));
    let of_tls = [("upstream", &url), ("upstream-ca", &ca), ("tls-cert", &cert), ("tls-key", &key)];
    let of_tls = of_tls.map(|(name, value)| (name, value.as_str()));
    let running = proxy(port, &[flags, &of_tls].concat());
    let port = tunnel(running.handle().address().port(), files.client("ca", None));
    (running, port)
}

/// As a type that functions take.
const OVER_TLS: Way = over_tls;

fn port(running: &Running) -> u16 {
    running.handle().address().port()
}

fn closed_by_tls(running: &Running) -> u64 {
    running.handle().totals().0.closed[Closed::Tls.index()]
}

#[test]
fn hits_are_served_with_tls_on_either_side_or_both() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let secure = files.secure(&redis, "server", "tls-auth-clients no");
    let (url, ca) = (format!("rediss://127.0.0.1:{secure}"), files.of("ca.crt"));
    let (cert, key) = (files.of("server.crt"), files.of("server.key"));
    let to_server = [("upstream", url.as_str()), ("upstream-ca", &ca)];
    let to_clients = [("tls-cert", cert.as_str()), ("tls-key", &key)];
    let mut direct = redis.connect();
    for lanes in ["shared", "dedicated"] {
        for (server, clients) in [(true, false), (false, true), (true, true)] {
            let mut flags = vec![("lanes", lanes)];
            flags.extend(if server { &to_server[..] } else { &[] });
            flags.extend(if clients { &to_clients[..] } else { &[] });
            if server {
                // The proxy has no other way.
                assert_eq!(direct.ask("CONFIG SET port 0"), "+OK\r\n");
            }
            let running = proxy(redis.port, &flags);
            let at = match clients {
                true => tunnel(port(&running), files.client("ca", None)),
                false => port(&running),
            };
            let mut client = Connection::open(at);
            client.ask("SET k one");
            assert_eq!(hot(&running, &mut client, "GET k"), "$3\r\none\r\n");
            for round in 0..100 {
                client.ask(&format!("SET k {round}"));
                assert!(client.ask("GET k").ends_with(&format!("\r\n{round}\r\n")));
            }
            hot(&running, &mut client, "GET k");
            direct.ask("SET k past");
            until("it is seen", || client.ask("GET k") == "$4\r\npast\r\n");
            drop(client);
            let (totals, core) = running.stop();
            assert!(totals.closes() && core.connects == 1, "{totals:?} {core:?}");
            direct.ask(&format!("CONFIG SET port {}", redis.port));
        }
    }
}

#[test]
fn clients_need_a_certificate_if_one_is_asked_for() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [cert, key, ca] = ["server.crt", "server.key", "ca.crt"].map(|name| files.of(name));
    let flags = [("tls-cert", cert.as_str()), ("tls-key", &key), ("tls-client-ca", &ca)];
    let running = proxy(redis.port, &flags);
    let (trusted, all) = (files.client("ca", Some("client")), port(&running));
    assert_eq!(ask(all, &trusted, "PING").expect("it is let in"), "+PONG\r\n");
    for (round, shows) in [None, Some("stranger"), None].into_iter().enumerate() {
        let error = ask(all, &files.client("ca", shows), "PING").expect_err("refused");
        assert!(error.to_string().contains("alert"), "{error}");
        until("it is counted", || closed_by_tls(&running) == round as u64 + 1);
    }
    // One that does not trust the proxy leaves.
    let error = ask(all, &files.client("other", Some("client")), "PING").expect_err("it leaves");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    until("it is counted", || closed_by_tls(&running) == 4);
    assert_eq!(ask(all, &trusted, "PING").expect("it is let in"), "+PONG\r\n");
}

/// Returns whether a proxy with these settings follows the server within a second; if not, clients
/// are closed.
fn follows(flags: &[(&str, &str)]) -> bool {
    let running = start(0, flags);
    let begun = Instant::now();
    while running.handle().totals().1.open == 0 {
        if begun.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let mut client = Connection::open(port(&running));
        client.send(&[b"GET", b"k"]);
        assert!(matches!(client.stream.read(&mut [0; 64]), Ok(0) | Err(_)), "it is served");
        until("it is counted", || closed_by_tls(&running) > 0);
        let (totals, core) = running.stop();
        assert_eq!((totals.hits, core.fills, core.open), (0, 0, 0));
        return false;
    }
    let mut client = Connection::open(port(&running));
    client.ask("SET k one");
    hot(&running, &mut client, "GET k");
    true
}

#[test]
fn a_server_is_followed_with_its_authority_its_name_and_our_certificate_alone() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [ca, other, cert, key] =
        ["ca.crt", "other.crt", "client.crt", "client.key"].map(|name| files.of(name));
    let secure = files.secure(&redis, "server", "tls-auth-clients no");
    let url = format!("rediss://127.0.0.1:{secure}");
    let (upstream, trusts) = (("upstream", url.as_str()), ("upstream-ca", ca.as_str()));
    assert!(follows(&[upstream, trusts]));
    assert!(!follows(&[upstream, ("upstream-ca", &other)]));
    assert!(!follows(&[upstream, trusts, ("upstream-name", "redis.example.com")]));
    assert!(follows(&[upstream, trusts, ("upstream-name", "localhost")]));
    // It asks for a certificate.
    let mut direct = redis.connect();
    assert_eq!(direct.ask("CONFIG SET tls-auth-clients yes"), "+OK\r\n");
    assert!(!follows(&[upstream, trusts]));
    let [strange, strange_key] = ["stranger.crt", "stranger.key"].map(|name| files.of(name));
    assert!(!follows(&[
        upstream,
        trusts,
        ("upstream-cert", &strange),
        ("upstream-key", &strange_key)
    ]));
    assert!(follows(&[upstream, trusts, ("upstream-cert", &cert), ("upstream-key", &key)]));
    // Its certificate is for another name.
    let secure = files.secure(&redis, "named", "tls-auth-clients no");
    let url = format!("rediss://127.0.0.1:{secure}");
    let upstream = ("upstream", url.as_str());
    assert!(!follows(&[upstream, trusts]));
    assert!(follows(&[upstream, trusts, ("upstream-name", "redis.example.com")]));
    // It speaks no TLS.
    let url = format!("rediss://127.0.0.1:{}", redis.port);
    assert!(!follows(&[("upstream", &url), trusts]));
}

#[test]
fn random_requests_get_the_same_bytes_over_tls() {
    random_requests(3, Duration::from_secs(10), OVER_TLS);
}

#[test]
fn clients_on_lanes_get_the_bytes_of_the_server_over_tls() {
    random_clients(3, Duration::from_secs(5), OVER_TLS);
}

#[test]
fn pipelines_and_long_values_pass_over_tls() {
    pipeline(100_000, "GET k\r\n", "$3\r\none\r\n", true, OVER_TLS);
    pipeline(100_000, "GET none\r\n", "$-1\r\n", false, OVER_TLS);
    pipeline(100_000, "SET k one\r\n", "+OK\r\n", true, OVER_TLS);
    long_values(64 << 20, OVER_TLS);
}

/// Returns the memory of this process, in MiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    (pages.unwrap_or(0) * 4096) >> 20
}

#[test]
fn a_client_that_does_not_read_is_not_read_for() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (running, port) = over_tls(&redis, &[("lanes", "dedicated")]);
    let mut direct = redis.connect();
    direct.ask(&format!("SETRANGE big {} x", (8 << 20) - 1));
    let (mut slow, mut other) = (Connection::open(port), Connection::open(port));
    let before = resident();
    slow.stream.write_all("GET big\r\n".repeat(30).as_bytes()).expect("it is read");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(other.ask("GET none"), "$-1\r\n");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 32, "{grown} MiB");
    slow.stream.shutdown(Shutdown::Write).expect("it is open");
    let (mut all, mut bytes) = (0, vec![0; 1 << 20]);
    while let Ok(count @ 1..) = slow.stream.read(&mut bytes) {
        all += count;
    }
    assert_eq!(all, ("$8388608\r\n\r\n".len() + (8 << 20)) * 30);
    drop((slow, other));
    let (totals, _) = running.stop();
    assert!(totals.closes() && totals.closed[Closed::Tls.index()] == 0, "{totals:?}");
}

#[test]
fn an_element_is_not_lost_by_a_client_that_leaves() {
    let Some(redis) = Redis::start(&[]) else { return };
    let (_running, port) = over_tls(&redis, &[]);
    let mut direct = redis.connect();
    let begun = Instant::now();
    for _ in 0..20 {
        let mut gone = Connection::open(port);
        gone.send(&[b"BLPOP", b"list", b"0"]);
        until("it waits", || direct.ask("INFO clients").contains("blocked_clients:1"));
        drop(gone);
        until("it is forgotten", || direct.ask("INFO clients").contains("blocked_clients:0"));
        assert_eq!(direct.ask("RPUSH list e"), ":1\r\n");
        assert_eq!(direct.ask("LPOP list"), "$1\r\ne\r\n");
    }
    // Its connection to the server would end by itself after five seconds.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
}

#[test]
fn ends_are_said_by_close_notify_and_need_not_be() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [cert, key] = ["server.crt", "server.key"].map(|name| files.of(name));
    let running = proxy(redis.port, &[("tls-cert", &cert), ("tls-key", &key)]);
    let config = files.client("ca", None);
    for says in [true, false] {
        let mut client = open(port(&running), &config);
        client.write_all("INCR n\r\n".repeat(1000).as_bytes()).expect("it is read");
        if says {
            client.conn.send_close_notify();
        }
        client.flush().expect("it is read");
        client.sock.shutdown(Shutdown::Write).expect("it is open");
        let mut all = Vec::new();
        // An error, if the proxy did not say that it ends.
        client.read_to_end(&mut all).expect("all replies, and an end");
        assert_eq!(all.iter().filter(|byte| **byte == b':').count(), 1000);
    }
    // Of one that does not read, the system takes so much, and rustls up to 64 KiB.
    let sent = || running.handle().totals().0.bytes_to_clients as usize;
    let asks = |len: usize| {
        let before = sent();
        let mut client = open(port(&running), &config);
        client.write_all(format!("GETRANGE big 0 {}\r\n", len - 1).as_bytes()).expect("room");
        client.conn.send_close_notify();
        client.flush().expect("it is read");
        let mut now = before;
        until("the system takes no more", || {
            std::thread::sleep(Duration::from_millis(200));
            let last = std::mem::replace(&mut now, sent());
            now == last && now > before
        });
        (client, now - before)
    };
    redis.connect().ask("SETRANGE big 67108863 x");
    let (_, taken) = asks(64 << 20);
    // One whose reply is as long gets the last of it later.
    for len in (0..8).map(|part| taken - (part << 14)) {
        let (mut client, mut all) = (asks(len).0, Vec::new());
        client.read_to_end(&mut all).expect("all, and an end");
        assert_eq!(all.len(), len + format!("${len}\r\n\r\n").len());
    }
    until("all are gone", || running.handle().totals().0.closed[Closed::ByClient.index()] >= 10);
}

#[test]
fn certificates_are_changed_for_new_connections() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let secure = files.secure(&redis, "server", "tls-auth-clients no");
    let [ca, cert, key] = ["ca.crt", "now.crt", "now.key"].map(|name| files.of(name));
    let now = |name: &str| {
        for end in ["crt", "key"] {
            let from = files.of(&format!("{name}.{end}"));
            std::fs::copy(from, files.of(&format!("now.{end}"))).expect("a file");
        }
    };
    now("server");
    let url = format!("rediss://127.0.0.1:{secure}");
    let upstream = [("upstream", url.as_str()), ("upstream-ca", &ca)];
    let flags = [&upstream[..], &[("tls-cert", &cert), ("tls-key", &key)]].concat();
    let running = proxy(secure, &flags);
    let mut old = open(port(&running), &files.client("ca", None));
    let mut bytes = [0; 7];
    let mut ping = |stream: &mut rustls::StreamOwned<ClientConnection, TcpStream>| {
        stream.write_all(b"PING\r\n").expect("it is read");
        stream.read_exact(&mut bytes).expect("a reply");
    };
    ping(&mut old);
    // The proxy's own.
    now("stranger");
    running.handle().reload_tls(settings(secure, &flags).1);
    ping(&mut old);
    assert!(ask(port(&running), &files.client("ca", None), "PING").is_err());
    assert_eq!(
        ask(port(&running), &files.client("other", None), "PING").ok().as_deref(),
        Some("+PONG\r\n")
    );
    // The server's, by the same authority, and by another.
    let mut direct = redis.connect();
    for (name, is_trusted) in [("again", true), ("stranger", false)] {
        let [cert, key] = ["crt", "key"].map(|end| files.of(&format!("{name}.{end}")));
        let line = format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}");
        assert_eq!(direct.ask(&line), "+OK\r\n");
        let connects = running.handle().totals().1.connects;
        direct.ask("CLIENT KILL TYPE normal SKIPME yes");
        let open = || running.handle().totals().1.open == 1;
        match is_trusted {
            true => until("it is followed again", || {
                running.handle().totals().1.connects > connects && open()
            }),
            false => until("it is not followed", || !open()),
        }
    }
    let other = files.of("other.crt");
    let flags = [("upstream", url.as_str()), ("upstream-ca", &other)];
    running.handle().reload_tls(settings(secure, &flags).1);
    until("it is followed again", || running.handle().totals().1.open == 1);
}

#[test]
fn bytes_that_are_no_tls_end_their_connection_alone() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [cert, key] = ["server.crt", "server.key"].map(|name| files.of(name));
    let running = proxy(redis.port, &[("tls-cert", &cert), ("tls-key", &key)]);
    let config = files.client("ca", None);
    let mut hello = Vec::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut tls = ClientConnection::new(config.clone(), name).expect("a client");
    tls.write_tls(&mut hello).expect("room");
    let mut random = rand_pcg::Pcg64::new(1, 2);
    let mut hostile: Vec<Vec<u8>> = vec![
        b"PING\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 100_000],
        // Alerts, records without content, and a record that is too long.
        b"\x15\x03\x03\x00\x02\x02\x28".to_vec(),
        b"\x17\x03\x03\x00\x00".repeat(200_000),
        b"\x14\x03\x03\x00\x01\x01".repeat(10_000),
        b"\x16\x03\x01\xff\xff".to_vec(),
        [&hello[..], b"PING\r\n"].concat(),
    ];
    for at in 0..300 {
        let mut changed = hello.clone();
        for _ in 0..=at % 3 {
            let place = rand::Rng::random_range(&mut random, 0..changed.len());
            changed[place] ^= 1 << rand::Rng::random_range(&mut random, 0..8);
        }
        hostile.push(changed);
        let mut noise = vec![0; rand::Rng::random_range(&mut random, 1..2000)];
        rand::RngCore::fill_bytes(&mut random, &mut noise);
        hostile.push(noise);
    }
    let count = hostile.len() as u64;
    for bytes in hostile {
        let mut stream = TcpStream::connect(("127.0.0.1", port(&running))).expect("it listens");
        // It may be closed before all is written.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(LONG)).expect("an option");
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
    until("all are gone", || running.handle().totals().0.clients == 0);
    // The system may say that one has left before its bytes are read.
    let closed = running.handle().totals().0.closed;
    let [by_tls, left] = [Closed::Tls, Closed::ByClient].map(|why| closed[why.index()]);
    assert!(by_tls + left == count && by_tls > left, "{by_tls} {left} {count}");
    assert_eq!(ask(port(&running), &config, "PING").expect("it serves"), "+PONG\r\n");
    assert!(!running.is_broken());
}

#[test]
fn a_byte_changed_within_a_connection_ends_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [cert, key] = ["server.crt", "server.key"].map(|name| files.of(name));
    let running = proxy(redis.port, &[("tls-cert", &cert), ("tls-key", &key)]);
    let mut client = open(port(&running), &files.client("ca", None));
    client.write_all(b"PING\r\n").expect("it is read");
    client.read_exact(&mut [0; 7]).expect("a reply");
    client.conn.writer().write_all(b"SET k wrong\r\n").expect("room");
    let mut record = Vec::new();
    client.conn.write_tls(&mut record).expect("room");
    *record.last_mut().expect("a record") ^= 1;
    client.sock.write_all(&record).expect("it is read");
    assert!(client.read(&mut [0; 64]).is_err());
    until("it is counted", || closed_by_tls(&running) == 1);
    assert_eq!(redis.connect().ask("EXISTS k"), ":0\r\n");
}

#[test]
fn a_client_that_never_finishes_its_handshake_is_closed() {
    let Some(redis) = Redis::start(&[]) else { return };
    let files = Files::new();
    let [cert, key] = ["server.crt", "server.key"].map(|name| files.of(name));
    let running = proxy(redis.port, &[("tls-cert", &cert), ("tls-key", &key)]);
    let config = files.client("ca", None);
    let mut idle = open(port(&running), &config);
    idle.write_all(b"PING\r\n").expect("it is read");
    idle.read_exact(&mut [0; 7]).expect("a reply");
    let begun = Instant::now();
    let silent = TcpStream::connect(("127.0.0.1", port(&running))).expect("it listens");
    let mut half = TcpStream::connect(("127.0.0.1", port(&running))).expect("it listens");
    half.write_all(b"\x16\x03\x01\x02").expect("it is read");
    for mut stream in [silent, half] {
        stream.set_read_timeout(Some(LONG)).expect("an option");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an end");
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
    until("both are counted", || closed_by_tls(&running) == 2);
    // One whose handshake is done may be silent for ever.
    idle.write_all(b"PING\r\n").expect("it is read");
    idle.read_exact(&mut [0; 7]).expect("a reply");
}

#[test]
fn a_server_that_never_finishes_its_handshake_is_given_up() {
    let files = Files::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("rediss://127.0.0.1:{}", listener.local_addr().expect("bound").port());
    let ca = files.of("ca.crt");
    let running = start(0, &[("upstream", &url), ("upstream-ca", &ca)]);
    let mut held = vec![listener.accept().expect("the tracking connection").0];
    let begun = Instant::now();
    let mut client = Connection::open(port(&running));
    client.send(&[b"PING"]);
    held.push(listener.accept().expect("the client's").0);
    assert!(matches!(client.stream.read(&mut [0; 64]), Ok(0) | Err(_)), "it is served");
    until("it is counted", || closed_by_tls(&running) == 1);
    held.push(listener.accept().expect("the tracking connection's next").0);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn files_are_checked_before_the_start() {
    let files = Files::new();
    let of = |flags: &[(&str, &str)]| {
        let mut source = Source::new(&[ProxySettings::SECTION]);
        flags.iter().for_each(|(name, value)| source.flag(name, [value]));
        let mut check = source.check();
        ProxySettings::read(&mut check).expect("settings").check(&mut check);
        check.finish(Some(())).map_or_else(|problems| problems.to_string(), |()| String::new())
    };
    let key = files.of("server.key");
    for (cert, what) in [
        ("none.crt", "none.crt: I/O error: No such file"),
        ("server.key", "none is there; must be a PEM file of certificates"),
    ] {
        let problem = of(&[("tls-cert", &files.of(cert)), ("tls-key", &key)]);
        assert!(problem.starts_with("--tls-cert: ") && problem.contains(what), "{problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
    let cert = files.of("server.crt");
    let wrong = of(&[("tls-cert", &cert), ("tls-key", &files.of("client.key"))]);
    assert!(wrong.contains("client.key: must be the key of the first certificate"), "{wrong}");
    let none = of(&[("tls-cert", &cert), ("tls-key", &cert)]);
    assert!(none.contains("must be a PEM file of a key without password"), "{none}");
    std::fs::write(
        files.of("bad.crt"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .expect("a file");
    let bad = files.of("bad.crt");
    let clients = [("tls-cert", cert.as_str()), ("tls-key", &key)];
    let wrong = of(&[&clients[..], &[("tls-client-ca", &bad)]].concat());
    assert!(wrong.starts_with("--tls-client-ca: ") && wrong.contains("authorities"), "{wrong}");
    let upstream = [("upstream", "rediss://localhost"), ("upstream-ca", &bad)];
    assert!(of(&upstream).starts_with("--upstream-ca: "), "{}", of(&upstream));
    assert_eq!(of(&clients), "");
}
