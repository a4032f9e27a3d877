//! Bytes as what a controller sends to a running switch: bundles, compared with a naive twin, or a
//! stream of anything, to which every answer is a whole message.
//!
//! Input: what it is (1 byte: bundles, or a stream). A stream as it is, or steps of 3 bytes each:
//! what, which bundle with which flags, which rule.
#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use libfuzzer_sys::fuzz_target;
use overbank_ofctl::sessions::{ControlOptions, serve_connection};
use overbank_ofctl::{Setup, Switch};
use overbank_openflow::consts::{group, port};
use overbank_openflow::{
    Action, BUFFER_NONE, BundleAdd, BundleControl, BundleFailed, ErrorCode, FlowCommand, FlowFlags,
    FlowMod, FlowModFailed, Frames, Hello, Instruction, Message, OxmMatch, PortConfig, PortMod,
    PortModFailed, Version, VersionSet,
};
use overbank_switch::tables::Filter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::sync::watch;

const VERSION: Version = Version::V14;
const BUNDLES_MAX: usize = 3;
const MESSAGES_MAX: usize = 12;
const RULES_MAX: usize = 5;

/// A switch without ports, whose control plane the inputs talk to.
static SWITCH: LazyLock<Switch> = LazyLock::new(|| {
    let mut setup = Setup { megaflows: 1024, ..Setup::default() };
    setup.control.rules_max = RULES_MAX;
    overbank_ofctl::start(setup, Vec::new()).expect("a switch without ports")
});

static OPTIONS: LazyLock<ControlOptions> = LazyLock::new(|| ControlOptions {
    bundles: BUNDLES_MAX,
    bundle_messages: MESSAGES_MAX,
    buffers: 8,
    packet_ins: 8,
    events: 8,
    ..ControlOptions::default()
});

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
}

fuzz_target!(|data: &[u8]| {
    let Some((&what, rest)) = data.split_first() else { return };
    SWITCH.handle().lock().delete(&Filter::default());
    if what % 2 == 0 {
        bundles(rest);
    } else {
        let answer = said(rest);
        assert!(answer.iter().all(|(_, message)| message.is_some()), "{answer:?}");
    }
    assert!(!SWITCH.is_broken());
});

/// What the switch answers, after its hello. `None`: a message that does not read back.
fn said(bytes: &[u8]) -> Vec<(u32, Option<Message>)> {
    let hello = Message::Hello(Hello { versions: VersionSet::of(&[VERSION]) });
    let mut input = encoded(&hello, 0);
    input.extend_from_slice(bytes);
    let mut output = Vec::new();
    RUNTIME.with(|runtime| {
        let peer = Peer { input: &input, output: &mut output };
        let options = OPTIONS.clone();
        let (_stop, stopped) = watch::channel(false);
        runtime.block_on(serve_connection(peer, SWITCH.handle().clone(), options, stopped));
    });
    let mut frames = Frames::new();
    frames.extend(&output);
    let mut all = Vec::new();
    while let Some(frame) = frames.next_frame().expect("whole messages") {
        let version = Version::from_wire(frame.header.version).expect("a known version");
        all.push((frame.header.xid, Message::decode(version, &frame.header, frame.body()).ok()));
    }
    assert_eq!(frames.buffered(), 0, "a part of a message");
    assert!(matches!(all.first(), Some((_, Some(Message::Hello(_))))), "{all:?}");
    all.remove(0);
    all
}

fn encoded(message: &Message, xid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(VERSION, xid, &mut bytes).expect("a short message");
    bytes
}

/// The other end of a connection: brings all that it has, then goes away.
struct Peer<'a> {
    input: &'a [u8],
    output: &'a mut Vec<u8>,
}

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self.input.split_at(self.input.len().min(buf.remaining()));
        buf.put_slice(now);
        self.input = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A step of a bundle.
#[derive(Clone, Copy, Debug)]
enum Step {
    Add {
        priority: u16,
        output: u32,
    },
    DeleteAll,
    /// Of a port that does not exist.
    Port,
}

#[derive(Default)]
struct Bundle {
    flags: u16,
    closed: bool,
    steps: Vec<(u32, Step)>,
}

/// The naive twin: rules by priority, and the open bundles.
#[derive(Default)]
struct Twin {
    rules: BTreeMap<u16, u32>,
    open: BTreeMap<u32, Bundle>,
    answers: Vec<(u32, Result<u16, ErrorCode>)>,
}

fn bundles(input: &[u8]) {
    let mut twin = Twin::default();
    let mut bytes = Vec::new();
    for (xid, step) in (1..).zip(input.chunks_exact(3)) {
        // Mostly the same flags, or nothing would ever be committed.
        let (bundle, flags) =
            (u32::from(step[1] % 4), if step[1] < 0xf0 { 3 } else { u16::from(step[1] % 5) });
        let message = match step[0] % 16 {
            what @ 0..8 => {
                let kind = u16::from(what % 5) * 2;
                twin.control(bundle, flags, kind, xid);
                Message::BundleControl(BundleControl { bundle, kind, flags })
            }
            what => {
                let (priority, output) = (u16::from(step[2] % 8), u32::from(step[2] >> 4) + 1);
                let (inner, step) = match what {
                    8 => (delete(), Ok(Step::DeleteAll)),
                    9 => (port_mod(), Ok(Step::Port)),
                    10 => (add(255, priority, output), Err(FlowModFailed::BadTableId.into())),
                    11 => (Message::BarrierRequest, Err(BundleFailed::MsgUnsup.into())),
                    _ => (add(0, priority, output), Ok(Step::Add { priority, output })),
                };
                twin.add(bundle, flags, xid, step);
                let message = encoded(&inner, xid);
                Message::BundleAdd(BundleAdd { bundle, flags, message })
            }
        };
        bytes.extend(encoded(&message, xid));
    }
    let answers = said(&bytes).into_iter().map(|(xid, message)| match message {
        Some(Message::BundleControl(reply)) => (xid, Ok(reply.kind)),
        Some(Message::Error(error)) => (xid, Err(error.code)),
        other => panic!("{other:?}"),
    });
    assert_eq!(answers.collect::<Vec<_>>(), twin.answers);
    let handle = SWITCH.handle();
    let control = handle.lock();
    let rules = control.tables().entries().map(|entry| {
        let [overbank_switch::rule::Action::Output(output)] = entry.rule.actions[..] else {
            panic!("{}", entry.rule)
        };
        (entry.rule.priority, output)
    });
    assert_eq!(rules.collect::<BTreeMap<_, _>>(), twin.rules);
}

impl Twin {
    fn control(&mut self, id: u32, flags: u16, kind: u16, xid: u32) {
        let answer = self.controlled(id, flags, kind).map(|()| kind + 1);
        self.answers.push((xid, answer));
    }

    fn controlled(&mut self, id: u32, flags: u16, kind: u16) -> Result<(), ErrorCode> {
        if flags > 3 {
            return Err(BundleFailed::BadFlags.into());
        }
        match kind {
            0 => return self.opened(id, flags),
            6 => self.open.remove(&id).map(drop).ok_or(BundleFailed::BadId)?,
            2 | 4 => {
                let bundle = self.open.get_mut(&id).ok_or(BundleFailed::BadId)?;
                if bundle.flags != flags {
                    return Err(BundleFailed::BadFlags.into());
                }
                if kind == 4 {
                    return self.committed(id);
                }
                if std::mem::replace(&mut bundle.closed, true) {
                    return Err(BundleFailed::BundleClosed.into());
                }
            }
            _ => return Err(BundleFailed::BadType.into()),
        }
        Ok(())
    }

    fn opened(&mut self, id: u32, flags: u16) -> Result<(), ErrorCode> {
        if self.open.remove(&id).is_some() {
            return Err(BundleFailed::BundleExist.into());
        }
        if self.open.len() == BUNDLES_MAX {
            return Err(BundleFailed::OutOfBundles.into());
        }
        self.open.insert(id, Bundle { flags, ..Bundle::default() });
        Ok(())
    }

    fn committed(&mut self, id: u32) -> Result<(), ErrorCode> {
        let bundle = self.open.remove(&id).ok_or(BundleFailed::BadId)?;
        let mut rules = self.rules.clone();
        for (xid, step) in bundle.steps {
            let refused: Option<ErrorCode> = match step {
                Step::Add { priority, output } => {
                    let full = rules.len() == RULES_MAX && !rules.contains_key(&priority);
                    rules.insert(priority, output);
                    full.then_some(FlowModFailed::TableFull.into())
                }
                Step::DeleteAll => {
                    rules.clear();
                    None
                }
                Step::Port => Some(PortModFailed::BadPort.into()),
            };
            if let Some(code) = refused {
                self.answers.push((xid, Err(code)));
                return Err(BundleFailed::MsgFailed.into());
            }
        }
        self.rules = rules;
        Ok(())
    }

    fn add(&mut self, id: u32, flags: u16, xid: u32, step: Result<Step, ErrorCode>) {
        if let Err(code) = self.added(id, flags, xid, step) {
            self.answers.push((xid, Err(code)));
        }
    }

    fn added(
        &mut self,
        id: u32,
        flags: u16,
        xid: u32,
        step: Result<Step, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if !self.open.contains_key(&id) {
            self.opened(id, flags)?;
        }
        let messages: usize = self.open.values().map(|bundle| bundle.steps.len()).sum();
        let bundle = self.open.get_mut(&id).ok_or(BundleFailed::BadId)?;
        if bundle.flags != flags {
            return Err(BundleFailed::BadFlags.into());
        }
        if bundle.closed {
            return Err(BundleFailed::BundleClosed.into());
        }
        if messages == MESSAGES_MAX {
            return Err(BundleFailed::MsgTooMany.into());
        }
        bundle.steps.push((xid, step?));
        Ok(())
    }
}

fn add(table: u8, priority: u16, output: u32) -> Message {
    let output = Action::Output { port: output, max_len: 0 };
    Message::FlowMod(FlowMod {
        table,
        priority,
        instructions: vec![Instruction::ApplyActions(vec![output])],
        ..flow_mod(FlowCommand::Add)
    })
}

fn delete() -> Message {
    Message::FlowMod(flow_mod(FlowCommand::Delete))
}

fn flow_mod(command: FlowCommand) -> FlowMod {
    FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table: 0,
        command,
        idle_timeout: 0,
        hard_timeout: 0,
        priority: 0,
        buffer_id: BUFFER_NONE,
        out_port: port::ANY,
        out_group: group::ANY,
        flags: FlowFlags::default(),
        importance: 0,
        matching: OxmMatch::default(),
        instructions: Vec::new(),
    }
}

fn port_mod() -> Message {
    let (config, mask) = (PortConfig::default(), PortConfig::default());
    Message::PortMod(PortMod { port: 9, hw_addr: [0; 6], config, mask, advertise: 0 })
}
