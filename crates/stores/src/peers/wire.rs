//! What a node and the first of the peers send each other: frames of a length and that many bytes.
//!
//! ```text
//!   length, 4 bytes, big-endian │ version │ a ToFirst or a ToNode
//! ```
//!
//! Batches, snapshots and messages travel as bytes of [`mod@crate::bytes`]: the first node keeps
//! and passes on what it does not read. Any bytes are read or refused. A length takes no memory
//! before its bytes have come.

use std::io::{Error, ErrorKind, Result};

use overbank_cluster::etcd;
use overbank_cluster::{Member, NodeId, Partition, Sequence};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::bytes::{self, BytesError};

/// Longest frame: a snapshot of half a million keys fits.
pub(crate) const FRAME_MAX: usize = 32 << 20;
/// Longest frame of a connection that has not named its node, and of a request to the register.
pub(crate) const SHORT_MAX: usize = 64 << 10;

/// Bytes that are copied as a whole: a list of bytes would be read and written one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Blob, D::Error> {
        Ok(Blob(<&[u8]>::deserialize(from)?.to_vec()))
    }
}

/// From a node to the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToFirst {
    /// Before anything else: its name, and what must be equal at all nodes.
    Hello { cluster: String, node: NodeId, equal: Vec<(String, String)> },
    /// A request to the register.
    Etcd(etcd::Request),
    /// Appends a batch if the last one is `expected`.
    Append { partition: Partition, expected: Sequence, batch: Blob },
    /// Asks for the batches from `from` on.
    Fetch { partition: Partition, from: Sequence },
    /// Keeps a snapshot as of `sequence`.
    Put { partition: Partition, sequence: Sequence, snapshot: Blob },
    /// Asks for the last snapshot.
    Get { partition: Partition },
    /// Passes a message on, to a node or to all others.
    Send { to: Option<NodeId>, message: Blob },
}

/// From the first one to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    /// The node's run.
    Welcome(Member),
    /// Why there is none.
    Refused(String),
    /// A reply of the register, or a change of it.
    Etcd(etcd::Reply),
    /// A batch was appended.
    Batch { partition: Partition, sequence: Sequence, batch: Blob },
    /// A batch was not: the last one is another.
    NotAppended { partition: Partition, last: Sequence },
    /// Batches without a gap; `last` is the end of the log.
    Fetched { partition: Partition, batches: Vec<(Sequence, Blob)>, last: Sequence },
    /// The batches that were asked for are gone.
    Purged { partition: Partition, first: Sequence },
    /// The last snapshot.
    Snapshot { partition: Partition, snapshot: Option<Blob> },
    /// A message of another node.
    Message(Blob),
}

fn damaged(error: BytesError) -> Error {
    Error::new(ErrorKind::InvalidData, error)
}

/// Returns a frame.
///
/// # Errors
/// It is too long.
pub(crate) fn frame<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let body = bytes::write(value).map_err(damaged)?;
    let too_long = || Error::new(ErrorKind::InvalidData, format!("{} bytes", body.len()));
    let len = u32::try_from(body.len()).ok().filter(|len| *len as usize <= FRAME_MAX);
    let len = len.ok_or_else(too_long)?;
    Ok([&len.to_be_bytes()[..], &body].concat())
}

/// Reads a frame of at most `max` bytes.
///
/// # Errors
/// The connection has ended, the frame is too long, or it cannot be read.
pub(crate) async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> Result<(T, usize)> {
    let len = from.read_u32().await? as usize;
    if len > max {
        let what = format!("a frame of {len} bytes; must be at most {max}");
        return Err(Error::new(ErrorKind::InvalidData, what));
    }
    let mut body = Vec::new();
    if from.take(len as u64).read_to_end(&mut body).await? < len {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok((bytes::read(&body).map_err(damaged)?, len))
}

/// Writes a frame.
///
/// # Errors
/// It is too long, or the connection has ended.
pub(crate) async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> Result<()> {
    to.write_all(&frame(value)?).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_now<T: DeserializeOwned>(bytes: &[u8], max: usize) -> Result<(T, usize)> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read(&mut &*bytes, max))
    }

    fn frames() -> Vec<Vec<u8>> {
        let member = Member { node: NodeId(3), incarnation: 9 };
        let lease = etcd::Lease { member, nth: 1 };
        let value = etcd::Value::Members(vec![(member, etcd::State::Live)]);
        let (key, partition) = (etcd::Key::Members, Partition(7));
        let txn = etcd::Request::Txn {
            compare: vec![(key, 4)],
            key,
            value: value.clone(),
            lease: Some(lease),
        };
        let watched = etcd::Reply::Watch { revision: 5, key, value: Some(value) };
        let equal = vec![("a".to_owned(), "b".to_owned())];
        let to_first = [
            ToFirst::Hello { cluster: "gateway".to_owned(), node: NodeId(3), equal },
            ToFirst::Etcd(txn),
            ToFirst::Append { partition, expected: 9, batch: Blob(vec![1, 2, 3]) },
            ToFirst::Fetch { partition, from: 10 },
            ToFirst::Put { partition, sequence: 9, snapshot: Blob(vec![4]) },
            ToFirst::Get { partition },
            ToFirst::Send { to: None, message: Blob(vec![0; 300]) },
        ];
        let to_node = [
            ToNode::Welcome(member),
            ToNode::Refused("why".to_owned()),
            ToNode::Etcd(watched),
            ToNode::Batch { partition, sequence: 10, batch: Blob(vec![1, 2, 3]) },
            ToNode::NotAppended { partition, last: 11 },
            ToNode::Fetched {
                partition,
                batches: vec![(1, Blob(vec![9])), (2, Blob(vec![]))],
                last: 2,
            },
            ToNode::Purged { partition, first: 5 },
            ToNode::Snapshot { partition, snapshot: Some(Blob(vec![7])) },
            ToNode::Message(Blob(vec![1])),
        ];
        for value in &to_first {
            let bytes = frame(value).expect("short");
            let (read, len) = read_now::<ToFirst>(&bytes, FRAME_MAX).expect("a frame");
            assert_eq!((&read, len), (value, bytes.len() - 4));
        }
        for value in &to_node {
            let bytes = frame(value).expect("short");
            assert_eq!(&read_now::<ToNode>(&bytes, FRAME_MAX).expect("a frame").0, value);
        }
        let to_first = to_first.iter().map(|value| frame(value).expect("short"));
        to_first.chain(to_node.iter().map(|value| frame(value).expect("short"))).collect()
    }

    #[test]
    fn frames_are_read_as_they_are_written() {
        frames();
    }

    #[test]
    fn a_length_takes_no_memory_and_is_bounded() {
        let text =
            |bytes: &[u8], max| read_now::<ToFirst>(bytes, max).expect_err("refused").to_string();
        let long = [0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(text(&long, SHORT_MAX), "a frame of 4294967295 bytes; must be at most 65536");
        // Announced in full, and not there.
        let start = [&(FRAME_MAX as u32).to_be_bytes()[..], &[1, 2, 3]].concat();
        assert!(read_now::<ToFirst>(&start, FRAME_MAX).is_err());
        assert!(frame(&ToNode::Message(Blob(vec![0; FRAME_MAX]))).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            which in any::<prop::sample::Index>(),
        ) {
            let _ = read_now::<ToFirst>(&bytes, FRAME_MAX);
            let _ = read_now::<ToNode>(&bytes, FRAME_MAX);
            let frames = frames();
            let mut frame = frames[which.index(frames.len())].clone();
            let at = at.index(frame.len());
            frame[at] ^= bytes.first().copied().unwrap_or(1);
            let _ = read_now::<ToFirst>(&frame, FRAME_MAX);
            let _ = read_now::<ToNode>(&frame, FRAME_MAX);
            let _ = read_now::<ToNode>(&frame[..at], FRAME_MAX);
        }
    }
}
