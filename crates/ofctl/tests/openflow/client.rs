//! A controller that does what a test says: blocking, one message after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use overbank_openflow::{
    Action, BUFFER_NONE, ErrorCode, FlowCommand, FlowFlags, FlowMod, Frames, Hello, Instruction,
    Message, MultipartReply, MultipartRequest, OxmMatch, PacketIn, PacketOut, Version, VersionSet,
    consts::{group, port},
    multipart::{FlowRequest, FlowStats, Reply, Request},
};

use super::bench::PATIENCE;

/// A connection to the switch.
pub struct Client {
    pub stream: TcpStream,
    pub version: Version,
    frames: Frames,
    xid: u32,
    /// Messages that came while another was waited for.
    pub unasked: Vec<Message>,
}

impl Client {
    /// Connects and says hello.
    pub fn connect(address: SocketAddr, version: Version) -> Client {
        let stream = TcpStream::connect(address).expect("it listens");
        Client::greet(stream, version)
    }

    /// Says hello on a connection.
    pub fn greet(stream: TcpStream, version: Version) -> Client {
        stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        let mut client =
            Client { stream, version, frames: Frames::new(), xid: 100, unasked: Vec::new() };
        client.send(&Message::Hello(Hello { versions: VersionSet::of(&[version]) }));
        let hello = client.next_of_any_version();
        assert!(matches!(hello, (_, Message::Hello(_))), "{hello:?}");
        // Its hello does not say that it has read ours; from the answer on we hear of what happens.
        let echo = client.ask(&Message::EchoRequest(vec![1]));
        assert_eq!(echo, Message::EchoReply(vec![1]));
        client
    }

    /// Sends a message; gives its xid.
    pub fn send(&mut self, message: &Message) -> u32 {
        self.xid += 1;
        let mut bytes = Vec::new();
        message.encode(self.version, self.xid, &mut bytes).expect("it can be written");
        self.stream.write_all(&bytes).expect("the switch reads");
        self.xid
    }

    /// The xid of the message that is sent next.
    pub fn next_xid(&self) -> u32 {
        self.xid + 1
    }

    fn next_of_any_version(&mut self) -> (u32, Message) {
        self.try_next(PATIENCE).expect("a message")
    }

    /// The next message, if one comes in time; echo requests are answered and passed over.
    pub fn try_next(&mut self, at_most: Duration) -> Option<(u32, Message)> {
        let start = Instant::now();
        loop {
            if let Some(frame) = self.frames.next_frame().expect("whole messages") {
                let header = frame.header;
                let body = frame.body().to_vec();
                let message = Message::decode(self.version, &header, &body)
                    .expect("a message that can be read");
                if let Message::EchoRequest(data) = message {
                    let mut bytes = Vec::new();
                    let reply = Message::EchoReply(data);
                    reply.encode(self.version, header.xid, &mut bytes).expect("it fits");
                    self.stream.write_all(&bytes).expect("the switch reads");
                    continue;
                }
                return Some((header.xid, message));
            }
            if start.elapsed() > at_most {
                return None;
            }
            let mut bytes = [0; 65_536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.frames.extend(&bytes[..read]),
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends and waits for the answer; what comes before it is kept in `unasked`.
    pub fn ask(&mut self, message: &Message) -> Message {
        let xid = self.send(message);
        self.answer(xid)
    }

    /// Waits for the answer to a message.
    pub fn answer(&mut self, xid: u32) -> Message {
        loop {
            let (got, message) = self.try_next(PATIENCE).expect("an answer");
            if got == xid {
                return message;
            }
            self.unasked.push(message);
        }
    }

    /// The error that a message is answered with.
    pub fn refused(&mut self, message: &Message) -> ErrorCode {
        match self.ask(message) {
            Message::Error(error) => {
                assert!(error.data.len() >= 8, "it quotes the request");
                error.code
            }
            other => panic!("no error: {other:?}"),
        }
    }

    /// Sends, and makes sure that no error comes back.
    pub fn done(&mut self, message: &Message) {
        let (sent, before) = (self.send(message), self.unasked.len());
        let barrier = self.send(&Message::BarrierRequest);
        loop {
            let (xid, message) = self.try_next(PATIENCE).expect("a barrier reply");
            match message {
                Message::BarrierReply if xid == barrier => break,
                Message::Error(error) => panic!("{xid} (sent {sent}): {}", error.code),
                other => self.unasked.push(other),
            }
        }
        assert!(self.unasked.len() >= before);
    }

    /// Waits for a message that the switch sends by itself.
    pub fn unasked<T>(&mut self, mut wanted: impl FnMut(&Message) -> Option<T>) -> T {
        for (i, message) in self.unasked.iter().enumerate() {
            if let Some(found) = wanted(message) {
                self.unasked.remove(i);
                return found;
            }
        }
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some((_, message)) = self.try_next(PATIENCE) {
                match wanted(&message) {
                    Some(found) => return found,
                    None => self.unasked.push(message),
                }
            }
        }
        panic!("it did not come; these did: {:?}", self.unasked);
    }

    /// All that has been sent to this client unasked, up to a barrier.
    pub fn drain(&mut self) -> Vec<Message> {
        self.done(&Message::EchoReply(Vec::new()));
        std::mem::take(&mut self.unasked)
    }

    /// The flows, by all the parts of the reply.
    pub fn flows(&mut self) -> Vec<FlowStats> {
        let request = Request::Flow(everything());
        let message = Message::MultipartRequest(MultipartRequest { more: false, body: request });
        let xid = self.send(&message);
        let mut all = Vec::new();
        loop {
            let reply = self.answer(xid);
            let Message::MultipartReply(MultipartReply { more, body: Reply::Flow(some) }) = reply
            else {
                panic!("{reply:?}")
            };
            all.extend(some);
            if !more {
                return all;
            }
        }
    }
}

/// A question for all flows.
pub fn everything() -> FlowRequest {
    FlowRequest {
        table: 255,
        out_port: port::ANY,
        out_group: group::ANY,
        cookie: 0,
        cookie_mask: 0,
        matching: OxmMatch::default(),
    }
}

/// A multipart request.
pub fn question(body: Request) -> Message {
    Message::MultipartRequest(MultipartRequest { more: false, body })
}

/// A flow-mod that adds to table 0.
pub fn add(priority: u16, matching: OxmMatch, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        cookie: 0,
        cookie_mask: 0,
        table: 0,
        command: FlowCommand::Add,
        idle_timeout: 0,
        hard_timeout: 0,
        priority,
        buffer_id: BUFFER_NONE,
        out_port: port::ANY,
        out_group: group::ANY,
        flags: FlowFlags::default(),
        importance: 0,
        matching,
        instructions: vec![Instruction::ApplyActions(actions)],
    }
}

/// The action that sends out of a port.
pub fn output(port: u32) -> Action {
    Action::Output { port, max_len: 0 }
}

/// The answer to a multipart request.
pub fn reply(client: &mut Client, request: Request) -> Reply {
    match client.ask(&question(request)) {
        Message::MultipartReply(reply) => reply.body,
        other => panic!("{other:?}"),
    }
}

/// A rule that sends all to the controllers.
pub fn to_controller(max_len: u16) -> Message {
    let action = overbank_openflow::Action::Output { port: port::CONTROLLER, max_len };
    Message::FlowMod(add(0, OxmMatch::default(), vec![action]))
}

/// The next packet-in.
pub fn packet_in(client: &mut Client) -> PacketIn {
    client.unasked(|message| match message {
        Message::PacketIn(packet) => Some(packet.clone()),
        _ => None,
    })
}

/// A packet-out with one output.
pub fn packet_out(buffer_id: u32, in_port: u32, to: u32, data: Vec<u8>) -> Message {
    let actions = vec![output(to)];
    Message::PacketOut(PacketOut {
        buffer_id,
        in_port,
        pipeline: OxmMatch::default(),
        actions,
        data,
    })
}
