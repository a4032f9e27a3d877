//! Bytes from a broken or hostile peer: random ones, and samples with bytes changed, cut off or
//! doubled. None panics; each is a message that reads back, or an error with a place in it.

use crate::common::{check, encode, samples};
use overbank_openflow::{DecodeError, HEADER_LEN, Header, Message, Version};
use proptest::prelude::*;

/// Every sample of every version as bytes.
fn corpus() -> &'static [(Version, Vec<u8>)] {
    static CORPUS: std::sync::OnceLock<Vec<(Version, Vec<u8>)>> = std::sync::OnceLock::new();
    CORPUS.get_or_init(|| {
        let of = |version| {
            samples(version).into_iter().map(move |s| (version, encode(&s.message, version)))
        };
        Version::ALL.into_iter().flat_map(of).collect()
    })
}

/// Sets the length in the header to what is there.
fn mend(bytes: &mut [u8]) {
    let length = u16::try_from(bytes.len()).expect("short");
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
}

fn judge(version: Version, bytes: &[u8]) -> Result<Message, DecodeError> {
    let result = check(version, bytes);
    if let Err(error) = &result {
        assert!(error.offset <= bytes.len(), "{error}");
        let text = error.to_string();
        assert!(!text.is_empty() && text.lines().count() == 1, "{text}");
        let quoted = error.reply(bytes).data;
        assert!(bytes.starts_with(&quoted) && quoted.len() <= 64);
    }
    result
}

#[test]
fn samples_read_back_and_end_nowhere_else() {
    for (version, bytes) in corpus() {
        judge(*version, bytes).unwrap();
        for end in HEADER_LEN..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            mend(&mut cut);
            let _ = judge(*version, &cut);
        }
    }
}

/// Every byte of every sample with every value that it could have, one at a time: reasons, flags,
/// lengths and types that a version does not have.
#[test]
fn every_value_of_every_byte_is_read_or_refused() {
    for (version, bytes) in corpus() {
        // The first hundred bytes have all the fixed parts.
        for at in 1..bytes.len().min(100) {
            let mut bytes = bytes.clone();
            for value in 0..=255 {
                bytes[at] = value;
                mend(&mut bytes);
                let _ = judge(*version, &bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn changed_bytes_never_panic(
        sample in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
        double in prop::option::weighted(0.2, (any::<prop::sample::Index>(), 1..40usize)),
    ) {
        let (version, bytes) = sample.get(corpus());
        let mut bytes = bytes.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            // The version stays, and the type mostly: else most of what follows is not looked at.
            if at != 0 && (at != 1 || value % 8 == 0) {
                bytes[at] = value;
            }
        }
        if let Some((at, len)) = double {
            let at = at.index(bytes.len());
            let piece = bytes[at..(at + len).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        if let Some(end) = cut {
            bytes.truncate(HEADER_LEN + end.index(bytes.len() - HEADER_LEN + 1));
        }
        if bytes.len() < HEADER_LEN {
            bytes.resize(HEADER_LEN, 0);
        }
        mend(&mut bytes);
        let _ = judge(*version, &bytes);
    }

    #[test]
    fn lengths_and_types_within_are_not_believed(
        sample in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        value in prop_oneof![Just(0u16), Just(1), Just(3), Just(4), Just(7), Just(8), Just(0xffff), any::<u16>()],
    ) {
        let (version, bytes) = sample.get(corpus());
        let mut bytes = bytes.clone();
        let at = HEADER_LEN + at.index((bytes.len() - HEADER_LEN).max(1));
        if let Some(place) = bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        let _ = judge(*version, &bytes);
    }

    #[test]
    fn random_bodies_never_panic(
        version in prop::sample::select(Version::ALL.to_vec()),
        kind in 0..40u8,
        body in prop::collection::vec(prop_oneof![Just(0u8), 0..32u8, any::<u8>()], 0..300),
    ) {
        let length = (HEADER_LEN + body.len()) as u16;
        let header = Header { version: version.wire(), kind, length, xid: 3 };
        let _ = judge(version, &[&header.to_bytes()[..], &body].concat());
    }
}
