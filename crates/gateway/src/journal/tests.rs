//! A journal beside a naive twin; cut, damaged, shared, and on a full disk.

use super::frame::{HEAD, put_rest, put_session};
use super::*;
use crate::session::tests::session;
use crate::session::{Gate, Key, Session};
use crate::sessions::REST_MS;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use tempfile::TempDir;

/// Sessions, and each freed key with its last owner and the end of its rest.
#[derive(Clone, Debug, Default, PartialEq)]
struct Twin {
    sessions: BTreeMap<u64, Session>,
    freed: HashMap<Key, (u64, u64)>,
}

impl Twin {
    fn edit(&mut self, id: u64, after: Option<Session>, unix_ms: u64) -> Edit {
        let before = self.sessions.remove(&id);
        if let Some(before) = before {
            self.freed.extend(before.keys().map(|key| (key, (id, unix_ms + REST_MS))));
        }
        if let Some(after) = after {
            self.freed.retain(|key, _| after.keys().all(|had| had != *key));
            self.sessions.insert(id, after);
        }
        Edit::new(id, before.as_ref(), after)
    }

    fn check(&self, kept: &Kept) {
        let sessions: BTreeMap<u64, Session> =
            kept.sessions.iter().map(|(id, session)| (*id, *session)).collect();
        assert_eq!(sessions, self.sessions);
        let rests = kept.rests.iter();
        let rests: HashMap<Key, (u64, u64)> =
            rests.map(|(key, rest)| (*key, (rest.owner, rest.until_unix_ms))).collect();
        assert_eq!(rests, self.freed);
    }

    /// Frames of all that is there, one line each.
    fn frames(&self) -> Vec<String> {
        let mut frames = Vec::new();
        for (key, (owner, until_unix_ms)) in &self.freed {
            let rest = Rest { owner: *owner, until_unix_ms: *until_unix_ms };
            frames.push(String::new());
            put_rest(frames.last_mut().expect("pushed"), *key, rest);
        }
        for session in self.sessions.values() {
            frames.push(String::new());
            put_session(frames.last_mut().expect("pushed"), session);
        }
        frames
    }
}

fn open(folder: &TempDir) -> (Journal, Kept) {
    let (journal, Found { kept, cut }) = Journal::open(folder.path()).expect("whole");
    assert_eq!(cut, 0);
    (journal, kept)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Three frames: the twin after the second, and where the third begins.
fn three(folder: &TempDir) -> (Twin, u64, Twin) {
    let (mut journal, _) = open(folder);
    let mut twin = Twin::default();
    let edits = [1, 2, 3].map(|n| twin.edit(n, Some(session(n as u16)), 1_000));
    journal.append(&edits, 1_000).expect("written");
    let moved = Session { teid: 77, gate: Gate::Closed, rate_up: Some(5_000), ..session(2) };
    let edits = [twin.edit(2, Some(moved), 2_000), twin.edit(1, None, 2_000)];
    journal.append(&edits, 2_000).expect("written");
    let (before, at) = (twin.clone(), journal.totals.bytes);
    let edits = [twin.edit(4, Some(session(4)), 3_000), twin.edit(3, None, 3_000)];
    journal.append(&edits, 3_000).expect("written");
    (before, at, twin)
}

#[test]
fn a_torn_last_frame_is_cut_off() {
    let folder = folder();
    let (before, at, after) = three(&folder);
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).expect("there");
    after.check(&open(&folder).1);
    for len in at as usize..whole.len() {
        fs::write(&path, &whole[..len]).expect("written");
        before.check(&read(folder.path()).expect("whole frames").expect("a journal"));
        assert_eq!(fs::read(&path).expect("there").len(), len, "looked at alone");
        let (mut journal, Found { kept, cut }) = Journal::open(folder.path()).expect("cut");
        assert_eq!(cut, len as u64 - at);
        before.check(&kept);
        // It goes on from there.
        let mut twin = before.clone();
        let edit = twin.edit(9, Some(session(9)), 4_000);
        journal.append(&[edit], 4_000).expect("written");
        drop(journal);
        twin.check(&open(&folder).1);
    }
}

/// A flip in the last frame takes this frame at most, one before it takes nothing: it is an error.
#[test]
fn damage_before_the_last_frame_is_an_error() {
    let folder = folder();
    let (before, last, _) = three(&folder);
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).expect("there");
    for at in 0..whole.len() {
        for bit in [0, 3, 6] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            fs::write(&path, &damaged).expect("written");
            let opened = Journal::open(folder.path());
            if at as u64 >= last {
                before.check(&opened.expect("cut").1.kept);
                continue;
            }
            let error = opened.expect_err("damaged").to_string();
            assert_eq!(fs::read(&path).expect("there"), damaged, "untouched");
            let frame = if at < MAGIC.len() { "byte 0: must begin" } else { "is damaged: its sum" };
            assert!(error.contains("sessions.journal: byte ") && error.contains(frame), "{error}");
        }
    }
    fs::write(&path, b"").expect("written");
    assert!(matches!(Journal::open(folder.path()), Err(JournalError::Damaged { at: 0, .. })));
}

#[test]
fn frames_that_contradict_each_other_are_errors() {
    let folder = folder();
    let first = frame::frame(3, 0, |lines| lines.push_str("-1\n"));
    let at = MAGIC.len() + first.len();
    for (frame, place, what) in [
        (frame::frame(5, 0, |_| {}), at, "frame 5, must be frame 4"),
        (frame::frame(4, 0, |l| l.push_str("-1\n*2\n")), at + HEAD + 3, "must be +SESSION, -ID"),
        (frame::frame(4, 0, |l| l.push_str("+1,x\n")), at + HEAD, "2 fields; must be 11"),
        (frame::frame(4, 0, |l| l.push_str("~1,2,3\n")), at + HEAD, "\"3\": must be an address"),
        (frame::frame(4, 0, |l| l.push_str("~1,2\n")), at + HEAD, "must be +SESSION"),
    ] {
        fs::write(folder.path().join(FILE), format!("{MAGIC}{first}{frame}")).expect("written");
        let error = Journal::open(folder.path()).map(drop).expect_err("wrong").to_string();
        assert!(error.contains(&format!("byte {place}: {what}")), "{error}");
    }
}

#[test]
fn one_process_has_a_journal() {
    let folder = folder();
    let (journal, _) = open(&folder);
    let error = Journal::open(folder.path()).map(drop).expect_err("taken");
    assert!(matches!(error, JournalError::Locked(_)), "{error}");
    drop(journal);
    open(&folder);
    let missing = Journal::open(&folder.path().join("a/b")).map(drop).expect_err("no folder");
    assert!(missing.to_string().contains("cannot make the journal's directory"), "{missing}");
}

/// A file system of 64 KiB; unmounted when it is dropped.
struct Small(TempDir);

impl Small {
    fn new() -> Option<Small> {
        let folder = folder();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(folder.path());
        let done = mount.output().is_ok_and(|output| output.status.success());
        overbank_testing::needs("root, to mount a tmpfs", done).then_some(Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_changes_and_keeps_the_others() {
    let Some(small) = Small::new() else { return };
    let (mut journal, _) = open(&small.0);
    let (mut twin, mut refused) = (Twin::default(), 0);
    let blocker = small.0.path().join("blocker");
    for round in 0..400_u16 {
        match round {
            0 => fs::write(&blocker, vec![0; 45_000]).expect("there is room"),
            200 => fs::remove_file(&blocker).expect("it is there"),
            _ => {}
        }
        let mut after = twin.clone();
        let n = 1 + round % 30;
        let edits = [n, n + 100].map(|n| after.edit(u64::from(n), Some(session(n)), 0));
        let edits: Vec<Edit> = edits.into_iter().chain([after.edit(7, None, 0)]).collect();
        match journal.append(&edits, 0) {
            Ok(()) => twin = after,
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("cannot write: No space left"), "{error}");
                assert!(!journal.is_suspect(), "it was cut back");
            }
        }
        if journal.is_large() {
            let mut frames = twin.frames().into_iter();
            let _ = journal.rewrite(0, || frames.next());
        }
    }
    assert!(refused > 0 && journal.totals.failed == refused, "{:?}", journal.totals);
    assert!(journal.totals.rewritten > 0, "{:?}", journal.totals);
    drop(journal);
    twin.check(&open(&small.0).1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_journal_is_its_twin(
        groups in prop::collection::vec(
            (prop::collection::vec((1u16..40, 0u8..4, 1000u64..9_000_000), 1..12), 0..12), 1..60)
    ) {
        let folder = folder();
        let (mut journal, _) = open(&folder);
        let (mut twin, mut unix_ms) = (Twin::default(), 1_700_000_000_000);
        for (edits, then) in groups {
            unix_ms += 7;
            let edit = |(n, what, rate): (u16, u8, u64)| {
                let after = match what {
                    0 => None,
                    1 => Some(session(n)),
                    2 => Some(Session { rate_up: Some(rate), ipv4: None, ..session(n) }),
                    // Another key of the same session.
                    _ => Some(Session { teid: 1000 + u32::from(n), qfi: None, ..session(n) }),
                };
                twin.edit(u64::from(n), after, unix_ms)
            };
            let edits: Vec<Edit> = edits.into_iter().map(edit).collect();
            journal.append(&edits, unix_ms).expect("written");
            let live: u64 = twin.sessions.values().map(frame::bytes_of).sum();
            if journal.totals.rewritten == 0 {
                prop_assert_eq!(journal.live, live);
            }
            if then == 0 || journal.is_large() {
                let mut frames = twin.frames().into_iter();
                journal.rewrite(unix_ms, || frames.next()).expect("written");
                prop_assert!(!journal.is_large() && !journal.is_suspect());
            }
            if then == 1 {
                drop(journal);
                let kept;
                (journal, kept) = open(&folder);
                twin.check(&kept);
                prop_assert_eq!(journal.live, live);
            }
        }
        drop(journal);
        twin.check(&open(&folder).1);
    }
}
