//! A controller that sends rules without waiting, and reads them back.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use overbank_openflow::consts::{group, port};
use overbank_openflow::multipart::{FlowRequest, Reply, Request};
use overbank_openflow::{
    Action, BUFFER_NONE, FlowCommand, FlowFlags, FlowMod, Frames, Hello, Instruction, Message,
    MultipartReply, MultipartRequest, Oxm, OxmField, OxmMatch, Version, VersionSet,
};

const VERSION: Version = Version::V13;
/// Longest silence of a switch.
const PATIENCE: Duration = Duration::from_secs(120);
const PRIORITY: u16 = 100;

/// Destination address and port of a rule.
fn place(rule: u32) -> (Ipv4Addr, u16) {
    (Ipv4Addr::from(0x0a00_0000 + rule), (rule % 50_000) as u16)
}

/// Returns rules as `ovs-ofctl` reads them.
pub fn text(rules: u32) -> String {
    let mut text = String::new();
    for (address, port) in (0..rules).map(place) {
        writeln!(text, "priority={PRIORITY},udp,nw_dst={address},tp_dst={port},actions=output:1")
            .expect("memory takes text");
    }
    text
}

/// A connection to a switch.
pub struct Client {
    stream: UnixStream,
    frames: Frames,
    xid: u32,
}

impl Client {
    /// Connects and exchanges hellos.
    pub fn connect(socket: &Path) -> Result<Client> {
        let stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Client { stream, frames: Frames::new(), xid: 0 };
        client.send(&Message::Hello(Hello { versions: VersionSet::of(&[VERSION]) }))?;
        match client.next()? {
            (_, Message::Hello(_)) => Ok(client),
            (_, other) => bail!("expected a hello, got {other:?}"),
        }
    }

    /// Removes all rules.
    pub fn clear(&mut self) -> Result<()> {
        let mut all = flow_mod(OxmMatch::default(), vec![]);
        all.command = FlowCommand::Delete;
        all.table = 255;
        let bytes = self.encode(&Message::FlowMod(all))?;
        self.send_and_wait(&bytes)
    }

    /// Returns the messages that add rules.
    pub fn flow_mods(&mut self, rules: u32) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (address, udp) in (0..rules).map(place) {
            let exact = |(field, value): (OxmField, u128)| Oxm::exact(field, value);
            let fields = [
                (OxmField::EthType, 0x0800),
                (OxmField::IpProto, 17),
                (OxmField::Ipv4Dst, u32::from(address).into()),
                (OxmField::UdpDst, udp.into()),
            ];
            let matching: OxmMatch = fields.map(exact).to_vec().into();
            let message =
                Message::FlowMod(flow_mod(matching, vec![Action::Output { port: 1, max_len: 0 }]));
            bytes.extend(self.encode(&message)?);
        }
        Ok(bytes)
    }

    /// Sends messages and waits until all are done. Fails if one is refused.
    pub fn send_and_wait(&mut self, messages: &[u8]) -> Result<()> {
        self.stream.write_all(messages)?;
        self.ask(&Message::BarrierRequest).map(drop)
    }

    /// Returns how many rules the switch says that it holds.
    pub fn count(&mut self) -> Result<u32> {
        match self.ask(&multipart(Request::Aggregate(everything())))? {
            Message::MultipartReply(MultipartReply { body: Reply::Aggregate(sum), .. }) => {
                sum.flows.context("aggregate statistics without a number of flows")
            }
            other => bail!("expected aggregate statistics, got {other:?}"),
        }
    }

    /// Asks for the statistics of all rules; returns the replies, undecoded, without their headers.
    pub fn dump(&mut self) -> Result<Vec<u8>> {
        /// Offset of the flag for more replies in the body of a reply.
        const FLAGS: usize = 3;
        let sent = self.send(&multipart(Request::Flow(everything())))?;
        let mut all = Vec::new();
        loop {
            let (header, body) = self.frame()?;
            if header.xid != sent {
                continue;
            }
            all.extend_from_slice(&body);
            match body.get(FLAGS) {
                Some(0) => return Ok(all),
                Some(_) => {}
                None => bail!("a reply of {} bytes", body.len()),
            }
        }
    }

    /// Sends a request and returns its answer. Fails on an error that answers any message.
    fn ask(&mut self, message: &Message) -> Result<Message> {
        let sent = self.send(message)?;
        loop {
            match self.next()? {
                (_, Message::Error(error)) => bail!("the switch refused a message: {}", error.code),
                (xid, answer) if xid == sent => return Ok(answer),
                _ => {}
            }
        }
    }

    fn send(&mut self, message: &Message) -> Result<u32> {
        let bytes = self.encode(message)?;
        self.stream.write_all(&bytes)?;
        Ok(self.xid)
    }

    fn encode(&mut self, message: &Message) -> Result<Vec<u8>> {
        self.xid += 1;
        let mut bytes = Vec::new();
        message.encode(VERSION, self.xid, &mut bytes)?;
        Ok(bytes)
    }

    fn next(&mut self) -> Result<(u32, Message)> {
        let (header, body) = self.frame()?;
        Ok((header.xid, Message::decode(VERSION, &header, &body)?))
    }

    fn frame(&mut self) -> Result<(overbank_openflow::Header, Vec<u8>)> {
        let mut bytes = [0; 1 << 16];
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                return Ok((frame.header, frame.body().to_vec()));
            }
            match self.stream.read(&mut bytes).context("no answer from the switch")? {
                0 => bail!("the switch closed the connection"),
                read => self.frames.extend(&bytes[..read]),
            }
        }
    }
}

fn everything() -> FlowRequest {
    FlowRequest {
        table: 255,
        out_port: port::ANY,
        out_group: group::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: OxmMatch::default(),
    }
}

fn multipart(body: Request) -> Message {
    Message::MultipartRequest(MultipartRequest { more: false, body })
}

fn flow_mod(matching: OxmMatch, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table: 0,
        command: FlowCommand::Add,
        idle_timeout: 0,
        hard_timeout: 0,
        priority: PRIORITY,
        buffer_id: BUFFER_NONE,
        out_port: port::ANY,
        out_group: group::ANY,
        flags: FlowFlags::default(),
        importance: 0,
        matching,
        instructions: vec![Instruction::ApplyActions(actions)],
    }
}
