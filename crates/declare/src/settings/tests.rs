use super::*;
use clap::Command;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

crate::choices! {
    pub enum Colour: "COLOUR" {
        Red = "red", "a warm one";
        Blue = "blue", "a cold one";
    }
}

crate::settings! {
    pub struct First: "First things" {
        name: Vec<Located<String7>>, "Names; once for each" example "a b";
        workers: usize = 1, in 1..=64, "Worker threads";
        cores: Commas<usize>, in 0..=4095, "Cores" or "those that are allowed";
        idle_time: Duration = 2.5, "Seconds until sleep";
        probe: Off<Duration> = 5, "Seconds of silence";
    }
}

crate::settings! {
    pub struct Second: "Second things" {
        colour: Colour = "red", "Colour of it all";
        metrics: Off<SocketAddr> = "127.0.0.1:9273", "Where metrics are served";
        rules: Option<PathBuf>, "A file of rules" example "rules.txt";
        keep: bool = false, "Keep it all";
        age: u32 = 300, in 1..=1_000_000, "Age";
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct String7(String);

impl SettingValue for String7 {
    const VALUE_NAME: &'static str = "NAME";

    fn accepts(_: &Range) -> String {
        "at most seven letters".to_owned()
    }

    fn read(text: &str, _: &Range) -> Result<String7, String> {
        match text.len() {
            0..=7 => Ok(String7(text.to_owned())),
            _ => Err(format!("{text:?} has more than seven letters")),
        }
    }
}

const SECTIONS: [Section; 2] = [First::SECTION, Second::SECTION];

fn source(text: &str) -> Source {
    let mut source = Source::new(&SECTIONS);
    source.text(&Arc::from("ob.toml"), text);
    source
}

fn check(source: Source) -> Result<(First, Second), Problems> {
    let mut check = source.check();
    let first = First::read(&mut check);
    let second = Second::read(&mut check);
    check.finish(first.zip(second))
}

fn problems(text: &str) -> Vec<String> {
    let problems = check(source(text)).expect_err("something is wrong");
    problems.0.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_those_of_the_table() {
    let (first, second) = check(source("")).expect("nothing is needed");
    assert!(first.name.is_empty() && first.cores.0.is_empty());
    assert_eq!((first.workers, first.idle_time), (1, Duration::from_millis(2500)));
    assert_eq!(first.probe, Off(Some(Duration::from_secs(5))));
    assert_eq!((second.colour, second.rules, second.keep), (Colour::Red, None, false));
    assert_eq!((second.metrics.0, second.age), ("127.0.0.1:9273".parse().ok(), 300));
}

#[test]
fn a_file_has_every_kind_of_value_and_flags_replace_it() {
    let text = "name = [\"a\", \"b\"]\nworkers = 2\ncores = [0, \"1, 2\"]\nidle-time = 7\n\
                probe = \"off\"\ncolour = \"blue\"\nmetrics = \"off\"\nrules = \"r.txt\"\nkeep = true";
    let (first, second) = check(source(text)).expect("right");
    assert_eq!(first.name.iter().map(|name| name.value.0.as_str()).collect::<String>(), "ab");
    assert_eq!(first.cores.0.iter().map(|core| core.value).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((first.workers, first.probe), (2, Off(None)));
    assert_eq!((second.colour, second.metrics), (Colour::Blue, Off(None)));
    assert_eq!((second.rules.as_deref(), second.keep), (Some(Path::new("r.txt")), true));

    let command = flags::add(Command::new("test"), &SECTIONS);
    let words = ["test", "--name", "x", "--name=y", "--workers=3", "--cores=4,5", "--keep"];
    let matches = command.try_get_matches_from(words).expect("flags");
    let mut source = source(text);
    flags::take(&matches, &SECTIONS, &mut source);
    assert_eq!(source.first("workers"), Some("3"));
    let (first, second) = check(source).expect("right");
    assert_eq!(first.name.iter().map(|name| name.value.0.as_str()).collect::<String>(), "xy");
    assert_eq!(first.cores.0.iter().map(|core| core.value).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((first.workers, first.probe, second.keep), (3, Off(None), true));
}

#[test]
fn every_problem_is_reported_with_its_location() {
    let text = "name = [\"a\",\n\"long, too long\"]\nworkers = 65\ncores = [0,\n\"1,x\"]\n\
                idle-time = \"off\"\nprobe = \"on\"\ncolour = \"green\"\nmetrics = 9273\nkeep = \"maybe\"\n\
                age = [1, 2]\nwokers = 2\nrules = \"\"";
    let wanted = [
        "ob.toml:2: name: \"long, too long\" has more than seven letters",
        "ob.toml:3: workers: \"65\": must be a number from 1 to 64",
        "ob.toml:5: cores: \"x\": must be a number from 0 to 4095",
        "ob.toml:6: idle-time: \"off\": must be a number of seconds from 0.001 to 31536000",
        "ob.toml:7: probe: \"on\": must be a number of seconds from 0.001 to 31536000, or off",
        "ob.toml:8: colour: \"green\": must be one of red, blue",
        "ob.toml:9: metrics: \"9273\": must be ADDRESS:PORT, such as 127.0.0.1:9273 or [::1]:9273, or off",
        "ob.toml:10: keep: \"maybe\": must be one of true, false, yes, no",
        "ob.toml:11: age: 2 values; must be one: a number from 1 to 1000000",
        "ob.toml:12: wokers: unknown setting; known: name, workers, cores, idle-time, probe, colour, \
         metrics, rules, keep, age",
        "ob.toml:13: rules: \"\": must be a path",
    ];
    assert_eq!(problems(text), wanted);
}

#[test]
fn broken_files_are_named() {
    assert!(problems("workers = = 2")[0].starts_with("ob.toml:1: not TOML: "));
    assert!(
        problems("[workers]\nn = 1")[0].starts_with("ob.toml:1: workers: a table does not fit")
    );
    let mut source = Source::new(&SECTIONS);
    source.file(Path::new("/nowhere/ob.toml"));
    let problems = check(source).expect_err("no such file").to_string();
    assert!(problems.starts_with("/nowhere/ob.toml: cannot be read: "), "{problems}");
    let mut source = Source::new(&SECTIONS);
    source.file(Path::new("/dev/zero"));
    let problems = check(source).expect_err("too long").to_string();
    assert_eq!(problems, "/dev/zero: cannot be read: longer than 1 MiB");
}

#[test]
fn settings_of_another_mode_and_repeated_values_are_refused() {
    let mut check = source("keep = true\nname = [\"a\",\n\"b\", \"a\"]").check();
    check.refuse(&Second::SECTION, "not in this mode");
    let first = First::read(&mut check).expect("readable");
    let names =
        check.distinct(first.name, |name| name.0.clone(), |name| format!("{} is taken", name.0));
    assert_eq!(names.len(), 2);
    let problems = check.finish(Some(())).expect_err("two things").to_string();
    let wanted =
        "ob.toml:1: keep: not in this mode\nob.toml:3: name: a is taken, at ob.toml:2: name";
    assert_eq!(problems, wanted);
}

#[test]
fn help_shows_every_flag_with_its_default() {
    let mut command = flags::add(Command::new("test"), &SECTIONS);
    let help = command.render_help().to_string();
    for wanted in [
        "First things:",
        "--workers <N>",
        "Worker threads [default: 1]",
        "Cores [default: those that are allowed]",
        "--metrics <ADDRESS:PORT>",
        "--name <NAME>",
        "Keep it all\n",
    ] {
        assert!(help.contains(wanted), "{wanted} is not in\n{help}");
    }
}

#[test]
fn documents_are_made_of_the_tables() {
    let text = text::example("program", &SECTIONS, &["name"]);
    assert!(text.contains("\n# Names; once for each\nname = [\"a\", \"b\"]\n"), "{text}");
    assert!(
        text.contains("\n# Cores; without it: those that are allowed\n# cores = []\n"),
        "{text}"
    );
    assert!(text.contains("\n# idle-time = 2.5\n"), "{text}");
    let with_all: String = text
        .lines()
        .map(|line| if line.contains(" = ") { line.trim_start_matches("# ") } else { "" })
        .flat_map(|line| [line, "\n"])
        .collect();
    check(source(&with_all)).expect("the example is right");
    let wanted = "\
| setting | value | default | what it does |
|---|---|---|---|
| `colour` | `red` (a warm one), `blue` (a cold one) | `red` | Colour of it all |
| `metrics` | ADDRESS:PORT, or `off` | `127.0.0.1:9273` | Where metrics are served |
| `rules` | a path |  | A file of rules |
| `keep` | `true`, `false`, `yes` or `no` | `false` | Keep it all |
| `age` | a number from 1 to 1000000 | `300` | Age |
";
    assert_eq!(text::reference(&Second::SECTION), wanted);
}
