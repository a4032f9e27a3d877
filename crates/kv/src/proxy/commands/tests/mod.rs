//! Fixtures as tables, any bytes, hostile replies; [`server`] compares with a real Redis.

mod server;

use super::*;
use proptest::prelude::*;
use std::ops::Range;

/// Bytes of a request and where its arguments are.
fn packed<T: AsRef<[u8]>>(args: &[T]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    for arg in args {
        let start = bytes.len();
        bytes.extend_from_slice(arg.as_ref());
        ranges.push(start..bytes.len());
    }
    (bytes, ranges)
}

/// Returns a request's keys, those written in capitals, and what is known of them.
fn keys_of(commands: &Commands, line: &str) -> (String, Keys) {
    let (bytes, ranges) = packed(&line.split(' ').collect::<Vec<_>>());
    let request = Request::new(&bytes, &ranges);
    let mut found = Vec::new();
    let keys = commands.find(&request).keys(&request, |index, access| {
        let key = String::from_utf8_lossy(request.arg(index).expect("in range")).into_owned();
        found.push(if access.writes() { key.to_uppercase() } else { key });
    });
    (found.join(" "), keys)
}

/// Words of a line; `_` is an empty one.
fn class_of(commands: &Commands, line: &str) -> (String, bool) {
    let args: Vec<&str> = line.split(' ').map(|arg| if arg == "_" { "" } else { arg }).collect();
    let (bytes, ranges) = packed(&args);
    let request = Request::new(&bytes, &ranges);
    let command = commands.find(&request);
    (format!("{:?}", command.class(&request)), command.is_shareable(&request))
}

#[test]
fn keys_are_where_each_command_has_them() {
    use Keys::{Known, Unknown, WritesKnown};
    let commands = Commands::builtin();
    for (line, wanted, keys) in [
        ("get a", "a", Known),
        ("MSET a 1 b 2", "A B", Known),
        ("del a b", "A B", Known),
        ("set a 1", "A", Known),
        ("set a 1 get", "A", Known),
        ("bitfield a get u8 0", "a", Known),
        ("bitfield a get u8 0 incrby u8 0 1", "A", Known),
        ("sort a", "a", Known),
        ("sort a by x* get # limit 0 1 store b store c", "a B C", WritesKnown),
        ("sort a store\0x b", "a B", Known),
        ("sort_ro a by x", "a", WritesKnown),
        ("georadius a 1 1 1 m store b STOREDIST c", "a B C", Known),
        ("georadius a 1 1 1 m store b store c", "a B C", Known),
        ("georadiusbymember a m 1 m asc store b", "a B", Known),
        ("migrate h 1 a 0 9", "A", Known),
        ("migrate h 1 _ 0 9 auth keys keys a b", "_ KEYS A B", Known),
        ("eval s 2 a b c", "A B", Known),
        ("eval s 0 a", "", Known),
        ("eval s 9 a b", "A B", Known),
        ("eval s x a b", "", Unknown),
        ("eval s -1 a b", "", Unknown),
        ("eval s 01 a b", "", Unknown),
        ("eval_ro s 1 a b", "a", Known),
        ("xread count 1 block 5 streams a b 0 0", "a b", Known),
        ("xreadgroup count 1 group streams c streams a 1", "A", Known),
        ("zunionstore a 2 b c weights 1 2", "A b c", Known),
        ("blmpop 0 2 a b left", "A B", Known),
        ("blpop a b 0", "A B", Known),
        ("sintercard 2 a b limit 1", "a b", Known),
        ("object encoding a", "a", Known),
        ("memory usage a", "a", Known),
        ("xgroup create a g $", "A", Known),
        ("pfcount a b", "A B", Known),
        ("bitop and a b c", "A b c", Known),
        ("copy a b db 3", "a B", Known),
        ("publish a b", "", Known),
        ("spublish a b", "", Known),
        ("rename a", "A", Known),
        ("junk a", "", Unknown),
        ("xgroup new a", "", Unknown),
        ("flushall", "", Unknown),
        ("set\0 a 1", "", Unknown),
    ] {
        assert_eq!(keys_of(&commands, line), (wanted.to_owned(), keys), "{line}");
        let (_, known) = keys_of(&commands, &line.to_lowercase());
        assert_eq!(known, keys);
    }
}

#[test]
fn classes_are_those_of_the_documents() {
    let commands = Commands::builtin();
    for (line, wanted, is_shareable) in [
        ("get a", "Cacheable(Bulk)", true),
        ("GeT a", "Cacheable(Bulk)", true),
        ("exists a", "Cacheable(Never)", true),
        ("exists a b", "Read", true),
        ("get a b", "Read", true),
        ("zrange a 0 -1 withscores", "Cacheable(Never)", true),
        ("ttl a", "Read", true),
        ("keys *", "Read", false),
        ("sort a", "Read", true),
        ("sort a by b", "Read", false),
        ("sort a store b", "Write", true),
        ("bitfield a get u8 0", "Read", true),
        ("pfcount a", "Write", true),
        ("set a 1", "Write", true),
        ("move a 3", "Write", true),
        ("copy a b", "Write", true),
        ("copy a b DB 1", "Write", true),
        ("eval s 1 a", "Script { is_read_only: false }", false),
        ("fcall_ro f 1 a", "Script { is_read_only: true }", false),
        ("evalsha s many a", "Close", false),
        ("multi", "Multi", false),
        ("exec", "Exec", false),
        ("discard", "Discard", false),
        ("watch a", "Watch", false),
        ("unwatch", "Unwatch", false),
        ("reset", "Reset", false),
        ("select 3", "Select(Some(3))", false),
        ("select -3", "Select(None)", false),
        ("auth p", "Auth", false),
        ("acl setuser a", "Acl", false),
        ("acl whoami", "Other", false),
        ("client tracking on", "ClientTracking(true)", false),
        ("client TRACKING\0x on", "ClientTracking(true)", false),
        ("client tracking off", "ClientTracking(false)", false),
        ("client reply skip", "ClientReply(Skip)", false),
        ("client reply off\0", "ClientReply(Off)", false),
        ("client reply x", "Other", false),
        ("client setname x", "ClientSet", false),
        ("client new x", "Other", false),
        ("client", "Other", false),
        ("ping", "Ping", false),
        ("ssubscribe a", "Subscribe", false),
        ("punsubscribe", "Unsubscribe", false),
        ("publish a b", "Other", false),
        ("blpop a 0", "Blocking", false),
        ("blmpop 0 x a left", "Close", false),
        ("wait 1 0", "Blocking", false),
        ("xread streams a 0", "Read", false),
        ("xread block 0 streams a 0", "Blocking", false),
        ("xreadgroup group g c streams a >", "Write", false),
        ("monitor", "Monitor", false),
        ("script debug yes", "Monitor", false),
        ("script load x", "Other", false),
        ("psync ? -1", "Sync", false),
        ("replconf ack 1", "Sync", false),
        ("quit", "Quit", false),
        ("flushall", "Close", false),
        ("swapdb 0 1", "Close", false),
        ("debug reload", "Close", false),
        ("slaveof no one", "Close", false),
        ("cluster replicate x", "Close", false),
        ("cluster slots", "Other", false),
        ("module load x", "Close", false),
        ("module list", "Other", false),
        ("restore a 0 v", "Write", true),
        ("restore a 0 v replace", "Close", false),
        ("restore-asking a 0 v", "Write", false),
        ("config set a b", "Close", false),
        ("config get a", "Other", false),
        ("function flush", "Close", false),
        ("xgroup new a", "Close", false),
        ("xgroup create a g $", "Write", true),
        ("junk", "Close", false),
        ("_", "Close", false),
        ("del", "Close", false),
    ] {
        assert_eq!(class_of(&commands, line), (wanted.to_owned(), is_shareable), "{line}");
    }
    let hello = |line: &str| class_of(&commands, line).0;
    let wanted = "Hello(Hello { version: Some(3), auth: Some(([117], [112])), name: Some([110]), \
                  is_malformed: false })";
    assert_eq!(hello("hello 3 AUTH u p SetName n"), wanted);
    assert!(
        hello("hello 3 auth u p wrong")
            .contains("auth: Some(([117], [112])), name: None, is_malformed: true")
    );
    assert!(hello("hello").contains("version: None, auth: None, name: None, is_malformed: false"));
    let none = Request::new(b"", &[]);
    assert_eq!(commands.find(&none).class(&none), Class::Other);
}

#[test]
fn tables_of_names_are_of_known_commands() {
    let table = table();
    // Newer than the table.
    let newer = ["client|setinfo", "waitaof"];
    let names = KINDS.iter().map(|k| k.0).chain(RULES.iter().map(|r| r.0));
    for name in names.chain(SPECS.iter().map(|s| s.0)).chain(READ_TOO) {
        assert!(table.contains_key(name) || newer.contains(&name), "{name}");
    }
    for (name, specs) in SPECS {
        specs.iter().for_each(|text| assert!(Spec::read(text).is_some(), "{name}: {text}"));
    }
}

/// A reply that lists one command, in RESP2, with these elements behind the name.
fn reply_of(name: &str, elements: &str) -> Vec<u8> {
    let count = 1 + elements.split(' ').filter(|word| !word.starts_with('+')).count();
    let mut reply = format!("*1\r\n*{count}\r\n${}\r\n{name}\r\n", name.len());
    elements.split(' ').for_each(|word| reply += &format!("{word}\r\n"));
    reply.into_bytes()
}

#[test]
fn servers_before_7_0_have_what_the_table_adds() {
    let of = |name, elements: &str| Commands::of_reply(&reply_of(name, elements)).expect("right");
    // As Redis 6 lists them: six elements, no subcommands, no flag of blocking commands.
    let commands = of("zunionstore", ":-4 *2 +write +movablekeys :0 :0 :0");
    assert_eq!(keys_of(&commands, "zunionstore a 2 b c"), ("A b c".to_owned(), Keys::Known));
    let commands = of("blpop", ":-3 *1 +write :1 :-2 :1");
    assert_eq!(class_of(&commands, "blpop a 0").0, "Blocking");
    let commands = of("xgroup", ":-2 *1 +write :2 :2 :1");
    assert_eq!(keys_of(&commands, "xgroup create a g $"), ("A".to_owned(), Keys::Known));
    // Commands that the table lacks.
    let commands = of("m.set", ":-3 *1 +write :2 :-1 :2");
    assert_eq!(keys_of(&commands, "M.SET x a y b"), ("A B".to_owned(), Keys::Known));
    assert_eq!(class_of(&commands, "m.set x a").0, "Write");
    let (wrong, missing) = (class_of(&commands, "m.set x"), class_of(&commands, "get a b"));
    assert_eq!((&*wrong.0, &*missing.0), ("Other", "Read"), "arity counts if it is the server's");
    let commands = of("m.get", ":-2 *1 +readonly :1 :1 :1");
    assert_eq!(class_of(&commands, "m.get a").0, "Read");
    let commands = of("m.any", ":-2 *1 +write :0 :0 :0");
    assert_eq!(class_of(&commands, "m.any a").0, "Close");
    let commands = of("m.move", ":-2 *2 +write +movablekeys :0 :0 :0");
    assert_eq!(keys_of(&commands, "m.move a").1, Keys::Unknown);
    let commands = of("m.some", ":-2 *2 +write +movablekeys :1 :1 :1");
    assert_eq!(keys_of(&commands, "m.some a b"), ("A".to_owned(), Keys::Unknown));
    assert_eq!(class_of(&commands, "m.some a b").0, "Close");
    let commands = of("m.some", ":-2 *2 +readonly +movablekeys :1 :1 :1");
    assert_eq!(keys_of(&commands, "m.some a b"), ("a".to_owned(), Keys::WritesKnown));
    let commands = of("m.two", ":-2 *1 +write :2 :3 :1");
    assert_eq!(keys_of(&commands, "m.two x a b y"), ("A B".to_owned(), Keys::Known));
    // The number of arguments may be anything.
    for arity in [i64::MIN, i64::MAX, 0] {
        class_of(&of("get", &format!(":{arity} *0 :1 :1 :1")), "get a");
    }
}

#[test]
fn hostile_replies_have_errors_of_one_line() {
    let long = "x".repeat(10_000);
    for reply in [
        &b""[..],
        b"*1\r\n",
        b"*2147483647\r\n",
        b"*9223372036854775807\r\n",
        b"$-1\r\n",
        b":1\r\n",
        b"-NOPERM no\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n*0\r\n",
        b"hello",
        &b"*1\r\n".repeat(100_000),
        &reply_of("", ":1 *0 :1 :1 :1"),
        &reply_of("a", ":1 :0 :1 :1 :1"),
        &reply_of("a", ":1 *0 :1 :1 :99999999999"),
        &reply_of("a\n\nb", ":x"),
        &reply_of(&long, "*0 *0 *0 *0 *0"),
        &reply_of("a\n\nb", ":1 :0 :1 :1 :1"),
    ] {
        let error = Commands::of_reply(reply).expect_err("wrong").to_string();
        assert!(error.starts_with("COMMAND: ") && error.lines().count() == 1, "{error}");
        assert!(error.len() < 200, "{error}");
    }
}

fn any_arg() -> impl Strategy<Value = Vec<u8>> {
    let words = TABLE.split([' ', '\n', '|', ':', '@']).map(|word| word.as_bytes().to_vec());
    let numbers =
        ["0", "1", "2", "-1", "9223372036854775807", "-9223372036854775808", "", "-", "+1"];
    let numbers = numbers.map(|number| number.as_bytes().to_vec());
    let words: Vec<Vec<u8>> = words.chain(numbers).collect();
    prop_oneof![prop::sample::select(words), prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #[test]
    fn any_request_has_a_class_and_keys_in_range(
        nth in 0usize..400, mut args in prop::collection::vec(any_arg(), 0..12), named: bool,
    ) {
        let commands = Commands::builtin();
        if let (true, Some(line)) = (named, TABLE.lines().nth(nth)) {
            let name = line.split(' ').next().unwrap_or_default();
            args.splice(0..0, name.split('|').map(|part| part.as_bytes().to_vec()));
        }
        let told = |args: &[Vec<u8>]| {
            let (bytes, ranges) = packed(args);
            let request = Request::new(&bytes, &ranges);
            let command = commands.find(&request);
            let mut found = Vec::new();
            let keys = command.keys(&request, |index, access| found.push((index, access)));
            assert!(found.iter().all(|(index, _)| (1..args.len()).contains(index)));
            let class = format!("{:?}", command.class(&request));
            (command.name().to_owned(), class, command.is_shareable(&request), found, keys)
        };
        let before = told(&args);
        args.iter_mut().take(2).for_each(|arg| arg.make_ascii_uppercase());
        let after = told(&args);
        prop_assert_eq!((before.0, before.2), (after.0, after.2));
        prop_assert_eq!((before.3, before.4), (after.3, after.4));
    }

    #[test]
    fn any_bytes_are_a_reply_or_an_error(bytes: Vec<u8>, cut in 0usize..200, value: u8) {
        let _ = Commands::of_reply(&bytes);
        let mut reply = reply_of("m.get", ":-2 *1 +readonly :1 :1 :1 *0 *0 *1 *2 +flags *1 +RO *0");
        let at = cut % reply.len();
        reply[at] = value;
        if let Ok(commands) = Commands::of_reply(&reply) {
            class_of(&commands, "m.get a b");
        }
    }

    #[test]
    fn any_specification_has_keys_in_range(
        begin: i32, to: (i32, i32, i32), form in 0..4, small: bool,
        args in prop::collection::vec(any_arg(), 0..12),
    ) {
        let of = |number: i32| if small { number % 8 } else { number };
        let find = match form {
            0 | 1 => Find::Range { last: of(to.0), step: of(to.1), limit: of(to.2) },
            _ => Find::Number { number: of(to.0), first: of(to.1), step: of(to.2) },
        };
        let begin = match form {
            0 | 2 => Begin::Index(of(begin)),
            _ => Begin::Keyword("get".to_owned(), of(begin)),
        };
        let spec = Spec { begin, find, ..Spec::legacy(1, 1, 1, Access::Both) };
        let (bytes, ranges) = packed(&args);
        let request = Request::new(&bytes, &ranges);
        let specs = std::slice::from_ref(&spec);
        Rule::Specs.keys(specs, false, &request, |index, _| assert!(index < args.len()));
        prop_assert_eq!(Spec::read(&spec.to_string()), Some(spec));
    }
}
