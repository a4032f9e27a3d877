//! The same questions to a Redis server, Debian's 7.0.

use super::*;
use ::redis::{Value, parse_redis_value};
use overbank_testing::needs;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const END: &[u8] = b"$12\r\nend-of-reply\r\n";

/// A server without files, ended with the test.
struct Server {
    child: Child,
    folder: TempDir,
}

struct Connection(UnixStream);

impl Server {
    fn start() -> Option<Server> {
        let version = Program::new("redis-server").arg("--version").output();
        let is_7_0 = version.is_ok_and(|v| String::from_utf8_lossy(&v.stdout).contains("v=7.0."));
        if !needs("redis-server 7.0", is_7_0) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Program::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(folder.path().join("s"));
        command.arg("--dir").arg(folder.path()).stdout(Stdio::null());
        let server = Server { child: command.spawn().expect("it starts"), folder };
        while UnixStream::connect(server.folder.path().join("s")).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }

    fn connect(&self) -> Connection {
        let stream = UnixStream::connect(self.folder.path().join("s")).expect("it runs");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a setting");
        Connection(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Connection {
    /// Returns the bytes of all replies to some requests, and of pushes among them.
    fn replies<T: AsRef<[u8]>>(&mut self, requests: &[Vec<T>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut add = |args: &[&[u8]]| {
            bytes.extend(format!("*{}\r\n", args.len()).bytes());
            for arg in args {
                bytes.extend(format!("${}\r\n", arg.len()).bytes());
                bytes.extend_from_slice(arg);
                bytes.extend(b"\r\n");
            }
        };
        for request in requests {
            add(&request.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        }
        add(&[b"ECHO", b"end-of-reply"]);
        self.0.write_all(&bytes).expect("it runs");
        let (mut replies, mut room) = (Vec::new(), [0; 65_536]);
        while !replies.ends_with(END) {
            let len = self.0.read(&mut room).expect("it replies");
            assert!(len > 0, "it closed the connection");
            replies.extend_from_slice(&room[..len]);
        }
        replies.truncate(replies.len() - END.len());
        replies
    }

    fn line(&mut self, line: &str) -> Vec<u8> {
        self.replies(&[line.split(' ').collect()])
    }

    fn value(&mut self, line: &str) -> Value {
        parse_redis_value(&self.line(line)).expect("RESP")
    }
}

#[test]
fn the_table_is_that_of_redis_7_0() {
    let Some(server) = Server::start() else { return };
    let mut connection = server.connect();
    let reply = connection.line("COMMAND");
    let mut commands = reply::commands(&reply).expect("its own");
    commands.sort_by(|a, b| a.name.cmp(&b.name));
    let line = |command: &Command| {
        let is_set = |nth: &usize| command.flags >> nth & 1 == 1;
        let flags: Vec<&str> =
            (0..flags::NAMES.len()).filter(is_set).map(|nth| flags::NAMES[nth]).collect();
        let flags = if flags.is_empty() { "-".to_owned() } else { flags.join(",") };
        let specs: String = command.specs.iter().map(|spec| format!(" {spec}")).collect();
        format!("{} {} {flags}{specs}\n", command.name, command.arity)
    };
    let table: String = commands.iter().map(line).collect();
    if table != TABLE {
        let path = std::env::temp_dir().join("redis-7.0.txt");
        std::fs::write(&path, table).expect("written");
        panic!("redis-7.0.txt differs from the server's table; that is in {}", path.display());
    }
    connection.line("HELLO 3");
    assert_eq!(
        reply::commands(&connection.line("COMMAND")).map(|mut commands| {
            commands.sort_by(|a, b| a.name.cmp(&b.name));
            commands
        }),
        Ok(commands),
        "RESP3"
    );
}

/// Returns a value's items, of a map as pairs one after the other.
fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) | Value::Set(items) => items,
        _ => &[],
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    items(value).chunks_exact(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
}

/// Makes requests of COMMAND DOCS.
struct Maker {
    random: Pcg64Mcg,
    /// Type of the keys.
    group: String,
    /// Number of keys that the request has said.
    keys: Option<usize>,
    /// Free texts are words that mean something elsewhere.
    is_tricky: bool,
    args: Vec<String>,
}

const GROUPS: [&str; 8] =
    ["string", "list", "set", "sorted-set", "hash", "stream", "hyperloglog", "geo"];

impl Maker {
    fn make(&mut self, argument: &Value) {
        let flags: Vec<String> =
            field(argument, "flags").map(items).unwrap_or_default().iter().map(text).collect();
        let has = |flag: &str| flags.iter().any(|other| other == flag);
        let kind = field(argument, "type").map(text).unwrap_or_default();
        let is_counted = kind == "key" && self.keys.is_some();
        if has("optional") && !is_counted && self.random.random() {
            return;
        }
        let token = field(argument, "token").map(text);
        let count = match self.keys {
            Some(count) if is_counted && has("multiple") => count,
            _ if has("multiple") => self.random.random_range(1..4),
            _ => 1,
        };
        for nth in 0..count {
            if nth == 0 || has("multiple_token") {
                self.args.extend(token.clone());
            }
            let nested = field(argument, "arguments").map(items).unwrap_or_default();
            match &*kind {
                "pure-token" => (),
                "block" => nested.iter().for_each(|argument| self.make(argument)),
                "oneof" => {
                    if let Some(argument) = nested.choose(&mut self.random).cloned() {
                        self.make(&argument);
                    }
                }
                _ => {
                    let name = field(argument, "name").map(text).unwrap_or_default();
                    let arg = self.simple(&kind, &name);
                    self.args.push(arg);
                }
            }
        }
    }

    fn simple(&mut self, kind: &str, name: &str) -> String {
        let mut one = |words: &[&str]| (*words.choose(&mut self.random).expect("some")).to_owned();
        match (kind, name) {
            ("key", _) => {
                let group = one(&GROUPS);
                let group = if GROUPS.contains(&&*self.group) { &self.group } else { &group };
                format!("key:{group}:{}", self.random.random_range(0..4))
            }
            (_, "numkeys") => {
                let count = self.random.random_range(1..4);
                self.keys = Some(count);
                count.to_string()
            }
            (_, "unit") => "m".to_owned(),
            (_, "id" | "ID" | "lastid" | "start" | "end") => one(&["0", "1", "1-1", "-", "+", "2"]),
            ("integer" | "unix-time", _) => one(&["0", "1", "2", "100"]),
            ("double", _) => one(&["0", "1", "1.5"]),
            _ if self.is_tricky => {
                one(&["STORE", "get", "streams", "KEYS", "set", "x\0y", "1", "replace"])
            }
            _ => one(&["a", "b", "c", "1", "g", "u8"]),
        }
    }
}

/// Returns name, documentation and group of each command with arguments.
fn documented(connection: &mut Connection) -> Vec<(String, Value, String)> {
    let mut found = Vec::new();
    for pair in items(&connection.value("COMMAND DOCS")).chunks_exact(2) {
        let group = field(&pair[1], "group").map(text).unwrap_or_default();
        let subcommands = field(&pair[1], "subcommands").map(items).unwrap_or_default();
        for pair in [pair].into_iter().chain(subcommands.chunks_exact(2)) {
            found.push((text(&pair[0]), pair[1].clone(), group.clone()));
        }
    }
    found
}

fn made(
    random: &mut Pcg64Mcg,
    name: &str,
    docs: &Value,
    group: &str,
    is_tricky: bool,
) -> Vec<String> {
    let args = name.split('|').map(str::to_owned).collect();
    let (random_seed, group) = (random.random(), group.replace("bitmap", "string"));
    let random = Pcg64Mcg::seed_from_u64(random_seed);
    let mut maker = Maker { random, group, keys: None, is_tricky, args };
    let arguments = field(docs, "arguments").map(items).unwrap_or_default();
    arguments.iter().for_each(|argument| maker.make(argument));
    maker.args
}

/// Returns the keys of a request, and those that it writes.
fn ours(commands: &Commands, args: &[String]) -> (BTreeSet<String>, BTreeSet<String>, Keys) {
    let (bytes, ranges) = packed(args);
    let request = Request::new(&bytes, &ranges);
    let (mut all, mut written) = (BTreeSet::new(), BTreeSet::new());
    let keys = commands.find(&request).keys(&request, |index, access| {
        all.insert(args[index].clone());
        written.extend(access.writes().then(|| args[index].clone()));
    });
    (all, written, keys)
}

#[test]
fn keys_are_those_of_command_getkeysandflags() {
    let Some(server) = Server::start() else { return };
    let mut connection = server.connect();
    let own = Commands::of_reply(&connection.line("COMMAND")).expect("its own");
    let tables = [&*Commands::builtin(), &own];
    let mut random = Pcg64Mcg::seed_from_u64(11);
    let mut without: BTreeSet<String> = tables[0]
        .commands
        .iter()
        .filter(|command| command.specs.iter().any(|spec| !spec.is_no_key))
        .map(|command| command.name.clone())
        .collect();
    // Not documented.
    without.retain(|name| name != "pfdebug" && name != "restore-asking");
    for (name, docs, group) in documented(&mut connection) {
        for nth in 0..60 {
            let is_tricky = nth % 2 == 1;
            let args = made(&mut random, &name, &docs, &group, is_tricky);
            let mut request = vec!["COMMAND".to_owned(), "GETKEYSANDFLAGS".to_owned()];
            request.extend(args.iter().cloned());
            let reply = connection.replies(&[request]);
            // Errors: no keys, or a wrong request.
            let Ok(Value::Array(keys)) = parse_redis_value(&reply) else { continue };
            without.remove(&name);
            for commands in &tables {
                let (all, written, known) = ours(commands, &args);
                let mut theirs = BTreeSet::new();
                for key in &keys {
                    let [key, flags] = items(key) else { panic!("{key:?}") };
                    let writes =
                        items(flags).iter().any(|f| ["RW", "OW", "RM"].contains(&&*text(f)));
                    assert!(!writes || written.contains(&text(key)), "{args:?}: {written:?}");
                    theirs.insert(text(key));
                }
                assert!(theirs.is_subset(&all), "{args:?}: {theirs:?}, not {all:?}");
                // Streams and identifiers may differ in number; MIGRATE … KEYS has an empty key.
                let is_more = name.starts_with("xread") || name == "migrate";
                assert!(is_tricky || is_more || theirs == all, "{args:?}: {theirs:?}, not {all:?}");
                assert!(known != Keys::Unknown, "{args:?}");
            }
        }
    }
    assert!(without.is_empty(), "no request of {without:?}");
}

/// Requests that fill each key.
fn filled() -> Vec<Vec<String>> {
    let mut requests = vec![vec!["FLUSHALL".to_owned()]];
    for nth in 0..3 {
        for line in [
            "SET key:string:N 1",
            "RPUSH key:list:N 1 2 a",
            "SADD key:set:N 1 2 a",
            "ZADD key:sorted-set:N 1 a 2 b",
            "HSET key:hash:N a 1 b 2",
            "XADD key:stream:N 1-1 a b",
            "XGROUP CREATE key:stream:N g 0",
            "PFADD key:hyperloglog:N a b c",
            "GEOADD key:geo:N 1 1 a 1 1 b",
        ] {
            let line = line.replace('N', &nth.to_string());
            requests.push(line.split(' ').map(str::to_owned).collect());
        }
    }
    requests
}

/// What a server says by CLIENT TRACKING to have changed has been reported as written.
#[test]
fn no_key_changes_that_is_not_reported_as_written() {
    let Some(server) = Server::start() else { return };
    let (mut connection, mut tracking) = (server.connect(), server.connect());
    tracking.line("HELLO 3");
    tracking.line("CLIENT TRACKING ON BCAST");
    let commands = Commands::of_reply(&connection.line("COMMAND")).expect("its own");
    let mut random = Pcg64Mcg::seed_from_u64(12);
    let (filled, mut changes) = (filled(), BTreeSet::new());
    for (name, docs, group) in documented(&mut connection) {
        for nth in 0..40 {
            let args = made(&mut random, &name, &docs, &group, nth % 4 == 3);
            let (bytes, ranges) = packed(&args);
            let request = Request::new(&bytes, &ranges);
            let class = commands.find(&request).class(&request);
            let is_run =
                matches!(class, Class::Cacheable(_) | Class::Read | Class::Write | Class::Blocking);
            if !is_run || name == "migrate" {
                continue;
            }
            connection.replies(&filled);
            tracking.line("PING");
            // Nothing blocks inside of a transaction.
            let words = |word: &str| vec![word.to_owned()];
            connection.replies(&[words("MULTI"), args.clone(), words("EXEC")]);
            let pushes = String::from_utf8_lossy(&tracking.line("PING")).into_owned();
            let (_, written, _) = ours(&commands, &args);
            for key in pushes.lines().filter(|line| line.starts_with("key:")) {
                assert!(written.contains(key), "{args:?} wrote {key}, not only {written:?}");
                changes.insert(name.clone());
            }
        }
    }
    let missing: Vec<&str> = commands
        .commands
        .iter()
        .filter(|c| c.has(flags::WRITE) && !c.specs.is_empty() && !changes.contains(&c.name))
        .map(Command::name)
        .collect();
    println!("without a change: {missing:?}");
    assert!(changes.len() > 80, "{changes:?}");
}

#[test]
fn absent_values_have_the_null_that_the_class_names() {
    let Some(server) = Server::start() else { return };
    let mut connection = server.connect();
    let commands = Commands::builtin();
    for (name, kind) in KINDS {
        let Kind::Cacheable { args_min, null, .. } = kind else { continue };
        let mut args = vec![name.to_string(), "absent".to_owned()];
        args.resize(*args_min, "0".to_owned());
        let reply = String::from_utf8(connection.replies(&[args])).expect("no bytes");
        let found = match () {
            () if reply.contains("$-1\r\n") => Null::Bulk,
            () if reply.contains("*-1\r\n") => Null::Array,
            () => Null::Never,
        };
        assert_eq!(found, *null, "{name}: {reply}");
        assert!(
            !reply.starts_with('-') && commands.get(None, name.as_bytes()).is_some(),
            "{reply}"
        );
    }
}

/// What the guarantees rest on where Redis does not do as it is documented.
#[test]
fn redis_is_as_the_comments_say() {
    let Some(server) = Server::start() else { return };
    let mut connection = server.connect();
    connection.line("GEOADD g 1 1 a");
    connection.line("GEORADIUS g 1 1 5 km STORE x STORE y");
    assert_eq!(connection.line("EXISTS y"), b":1\r\n");
    assert_eq!(
        connection.line("COMMAND GETKEYS GEORADIUS g 1 1 5 km STORE x STORE y"),
        connection.line("COMMAND GETKEYS MGET g x")
    );
    connection.line("RPUSH l 1");
    connection.line("SORT l STORE\0x y");
    assert_eq!(connection.line("TYPE y"), b"+list\r\n", "a zero byte ends a word");
    connection.line("ACL SETUSER u on >p +@all ~*");
    assert!(connection.line("HELLO 3 AUTH u p WRONG").starts_with(b"-ERR"));
    assert_eq!(connection.line("ACL WHOAMI"), b"$1\r\nu\r\n");
}
