//! Reads any bytes as a stream of OpenFlow messages. Each is a message that encodes and decodes to
//! the same, or an error with a place in it.
//!
//! Input: a stream. The version in each message's header selects the decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_openflow::{EncodeError, Frame, Frames, HEADER_LEN, Header, Message, Version};

fuzz_target!(|data: &[u8]| {
    let mut frames = Frames::new();
    // In two pieces, as a connection might deliver them.
    let (first, second) = data.split_at(data.len() / 2);
    for piece in [first, second] {
        frames.extend(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => read(frame),
                Ok(None) => break,
                Err(error) => {
                    assert!(usize::from(error.header.length) < HEADER_LEN);
                    return;
                }
            }
        }
    }
    assert!(frames.buffered() <= data.len());
});

fn read(frame: Frame<'_>) {
    let version = Version::from_wire(frame.header.version).unwrap_or(Version::V13);
    let message = match Message::decode(version, &frame.header, frame.body()) {
        Ok(message) => message,
        Err(error) => {
            assert!(error.offset <= frame.bytes.len(), "{error}");
            assert_eq!(error.to_string().lines().count(), 1);
            assert!(frame.bytes.starts_with(&error.reply(frame.bytes).data));
            return;
        }
    };
    let mut again = Vec::new();
    match message.encode(version, frame.header.xid, &mut again) {
        Ok(()) => {}
        // The written form may be longer than the older one that was read.
        Err(EncodeError::TooLong { .. }) if frame.bytes.len() > 20_000 => return,
        Err(error) => panic!("{error}: {message:?}"),
    }
    let header = Header::parse(&again).expect("a message has a header");
    if usize::from(header.length) < again.len() {
        // Likewise for a reply in several parts.
        assert!(frame.bytes.len() > 20_000, "{message:?}");
        return;
    }
    let second = Message::decode(version, &header, &again[HEADER_LEN..]);
    assert_eq!(second.as_ref(), Ok(&message));
}
