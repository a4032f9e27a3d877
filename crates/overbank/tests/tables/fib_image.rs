//! Images: what goes in comes out, and a file with any byte changed, or of any other length, is
//! refused with what and where.

use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Barrier;

use overbank::fib::*;
use overbank::file::{Damage, FileError};
use overbank::isa::Isa;
use overbank::memory::Pages;
use tempfile::TempDir;

fn filled<K: Key, V: Value>(
    buckets: usize,
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
) -> Writer<K, V> {
    let mut writer = Writer::new(&Config::buckets(buckets).seed(5)).unwrap();
    let mut number = 0;
    while writer.insert(key(number), value(number)).is_ok() {
        number += 1;
    }
    writer
}

fn round_trip<K: Key, V: Value>(key: impl Fn(u64) -> K, value: impl Fn(u64) -> V) {
    let folder = TempDir::new().unwrap();
    // Blocks of 4096 buckets: less than one, exactly one, and some.
    for buckets in [2, 4096, 9001] {
        let writer = filled(buckets, &key, &value);
        let path = folder.path().join("fib");
        writer.save(&path).unwrap();
        let other = Config::buckets(3).seed(1).isa(Some(Isa::Portable));
        let loaded = Writer::<K, V>::load(&path, &other).unwrap();
        assert!(loaded.iter().eq(writer.iter()), "in the same slots");
        assert_eq!((loaded.len(), loaded.slots()), (writer.len(), writer.slots()));
        assert_eq!(loaded.stats().second, writer.stats().second);
        let reader = loaded.reader();
        assert_eq!((reader.len(), reader.isa()), (writer.len(), Isa::Portable));
        assert!(writer.iter().all(|(key, value)| reader.lookup(key) == Some(value)));
    }
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["fib"], "nothing else is left");
}

#[test]
fn every_kind_comes_back() {
    round_trip(|n| MacAddr::new(n * 77).unwrap(), |n| n as u16);
    round_trip(|n| MacAddr::new(n * 77).unwrap(), |n| n);
    round_trip(|n| n << 40 | n, |n| n as u32);
    round_trip(|n| MacVlan::new(MacAddr::new(n).unwrap().to_bytes(), n as u16), |n| n as u16);
    round_trip(|n| u128::from(n) << 64 | 9, |n| n as u16);
    round_trip(|n| u128::from(n) << 64 | 9, |n| !n);
    round_trip(|n| n as u32, |n| n as u32);
    round_trip(|n| Ipv6Addr::from(u128::from(n) << 100 | 1), |n| n as u16);
    round_trip(|n| [n as u8, (n >> 8) as u8, (n >> 16) as u8, 0xff, 1, 2, 3, 4, n as u8], |n| n);
    round_trip(Narrow, |n| n as u16);
}

/// A caller's own key: 20 bits, and words of more are not for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Narrow(u64);
impl Key for Narrow {
    const BITS: usize = 20;
    fn to_words(self) -> [u64; 2] {
        [self.0, 0]
    }
    fn from_words([low, high]: [u64; 2]) -> Self {
        assert!(low < 1 << 20 && high == 0, "{low:x} {high:x}");
        Narrow(low)
    }
}

#[test]
fn a_key_is_not_made_of_bits_that_it_does_not_have() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("fib");
    // The same sizes: three bytes, here with all their bits.
    let full = |n: u64| [n as u8, (n >> 8) as u8, 0xf0];
    filled(6, full, |n| n as u16).save(&path).unwrap();
    let error = Writer::<Narrow, u16>::load(&path, &Config::buckets(2)).unwrap_err();
    assert!(matches!(error, FibImageError::Misplaced { .. }), "{error}");
}

fn small(folder: &TempDir) -> (PathBuf, Vec<u8>) {
    let path = folder.path().join("small");
    filled(6, |n| MacAddr::new(n * 77).unwrap(), |n| n as u16).save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    (path, bytes)
}

fn load(path: &PathBuf) -> Result<Writer<MacAddr, u16>, FibImageError> {
    Writer::load(path, &Config::buckets(2))
}

#[test]
fn damage_at_any_byte_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, bytes) = small(&folder);
    assert!(load(&path).is_ok());
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            fs::write(&path, &damaged).unwrap();
            let error = load(&path).unwrap_err();
            let FibImageError::File(FileError::Damaged { what, at: place, .. }) = &error else {
                panic!("{error}")
            };
            match at {
                0..8 => assert_eq!(
                    (*what, *place),
                    (Damage::Magic("an image of a forwarding table"), 0)
                ),
                8..64 => assert_eq!((*what, *place), (Damage::Header, 0)),
                _ => assert_eq!((*what, *place), (Damage::Block(0), 64)),
            }
            assert!(error.to_string().contains("small: "), "{error}");
        }
    }
}

#[test]
fn another_length_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, mut bytes) = small(&folder);
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = load(&path).unwrap_err();
        let expected = if length < 64 { 64 } else { bytes.len() as u64 };
        let found = length as u64;
        assert!(
            matches!(&error, FibImageError::File(FileError::Damaged { what: Damage::Length { found: f, expected: e }, .. })
                if (*f, *e) == (found, expected)),
            "{error}"
        );
    }
    bytes.push(0);
    fs::write(&path, &bytes).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("its header says"));
}

/// Rewrites the checksums of the header and the first block, so that only what the numbers mean can
/// be wrong.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
    let sum = xxh3_64(&bytes[..56]);
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    let length = u32::from_le_bytes(bytes[64..68].try_into().unwrap()) as usize;
    let block = xxh3_64_with_seed(&bytes[76..76 + length], sum);
    bytes[68..76].copy_from_slice(&block.to_le_bytes());
    bytes
}

#[test]
fn a_file_that_was_forged_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, bytes) = small(&folder);
    assert_eq!(sealed(bytes.clone()), bytes);
    let refused = |at: usize, change: &[u8]| {
        let mut forged = bytes.clone();
        forged[at..at + change.len()].copy_from_slice(change);
        fs::write(&path, sealed(forged)).unwrap();
        load(&path).unwrap_err().to_string()
    };
    assert!(
        refused(8, &[2])
            .contains("format 2 of an image of a forwarding table: this program reads format 1")
    );
    assert!(refused(12, &[8]).contains("keys and values of 8 and 2 bytes, not 6 and 2"));
    let numbers = "numbers do not agree";
    for (at, change) in [(16, [0; 8]), (16, [0xff; 8]), (24, [5; 8]), (32, [0xff; 8]), (48, [1; 8])]
    {
        assert!(refused(at, &change).contains(numbers), "{at}");
    }
    assert!(refused(40, &[9]).contains("does not belong there"), "another seed");
    assert!(refused(76, &[0xff]).contains("does not belong there"), "an eighth slot");
    // The first bucket is full: 7 entries of 8 bytes. The same key twice:
    assert_eq!(bytes[76], 0x7f);
    let first = bytes[77..83].to_vec();
    assert!(refused(85, &first).contains("bucket 0 has an entry that does not belong there"));

    // Two blocks. The header tells 513 entries less than the first one has, which is as long as
    // the second one's buckets and all but 4 bytes of its head, so that the length is right.
    filled(8192, |n| MacAddr::new(n * 77).unwrap(), |n| n as u16).save(&path).unwrap();
    let mut forged = fs::read(&path).unwrap();
    let length = u32::from_le_bytes(forged[64..68].try_into().unwrap()) as usize;
    let entries = (length - 4096) / 8;
    forged[32..40].copy_from_slice(&(entries as u64 - 513).to_le_bytes());
    forged.truncate(76 + length + 4);
    fs::write(&path, sealed(forged)).unwrap();
    let error = load(&path).unwrap_err();
    let place = 76 + length as u64;
    assert!(
        matches!(&error, FibImageError::File(FileError::Damaged { what: Damage::Block(1), at, .. }) if *at == place),
        "{error}"
    );
}

/// The first block is read before a table is made: this one would need 32 pages of 1 GiB.
#[test]
fn damage_is_found_before_there_is_a_table() {
    let folder = TempDir::new().unwrap();
    let (path, mut bytes) = small(&folder);
    let buckets = 1u64 << 29;
    bytes[16..24].copy_from_slice(&buckets.to_le_bytes());
    bytes[32..40].copy_from_slice(&[0; 8]);
    fs::write(&path, &sealed(bytes)[..64]).unwrap();
    // All that follows is a hole.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(64 + 12 * (buckets / 4096) + buckets).unwrap();
    let config = Config::buckets(2).pages(Pages::Gigabyte { required: true });
    let error = Writer::<MacAddr, u16>::load(&path, &config).unwrap_err();
    assert!(
        matches!(error, FibImageError::File(FileError::Damaged { what: Damage::Block(0), .. })),
        "{error}"
    );
}

/// The last to end stays, whole; nothing else does.
#[test]
fn saves_to_one_file_at_a_time_do_not_meet() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("fib");
    let writers = [1u64, 2].map(|which| filled(20_000, |n| n * 77, move |n| n * 2 + which));
    for _ in 0..20 {
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            for writer in &writers {
                scope.spawn(|| {
                    start.wait();
                    writer.save(&path).unwrap();
                });
            }
        });
        let loaded = Writer::<u64, u64>::load(&path, &Config::buckets(2)).unwrap();
        assert!(writers.iter().any(|writer| loaded.iter().eq(writer.iter())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

/// A file with the temporary name belongs to its owner and stays.
#[cfg(unix)]
#[test]
fn a_link_under_the_temporary_name_is_not_followed() {
    let folder = TempDir::new().unwrap();
    let (path, other) = (folder.path().join("fib"), folder.path().join("other"));
    fs::write(&other, b"precious").unwrap();
    let partial = |n| folder.path().join(format!("fib.{}.{n}.partial", std::process::id()));
    // Other tests save as well, so that the next number is not known.
    for n in 0..1000 {
        std::os::unix::fs::symlink(&other, partial(n)).unwrap();
    }
    filled(2, |n| n, |n| n).save(&path).unwrap();
    assert_eq!(fs::read(&other).unwrap(), b"precious");
    assert!(path.symlink_metadata().unwrap().is_file());
    assert!(Writer::<u64, u64>::load(&path, &Config::buckets(2)).is_ok());
}

/// A key in both of its buckets, each of which it may be in.
#[test]
fn a_forged_file_with_a_key_twice_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("twice");
    // Of two buckets, all keys may be in either.
    filled(2, |n| MacAddr::new(n * 77).unwrap(), |n| n as u16).save(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!((bytes[76], bytes[133], bytes.len()), (0x7f, 0x7f, 64 + 12 + 2 * (1 + 7 * 8)));
    bytes.copy_within(77..83, 134);
    fs::write(&path, sealed(bytes)).unwrap();
    let error = load(&path).unwrap_err().to_string();
    assert!(error.contains("has an entry that does not belong there"), "{error}");
}

#[test]
fn refusals_of_the_system_are_reported() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("no").join("fib");
    let writer = filled(2, |n| n, |n| n);
    let error = writer.save(&missing).unwrap_err();
    assert!(error.to_string().contains("cannot create: "), "{error}");
    let error = Writer::<u64, u64>::load(&missing, &Config::buckets(2)).unwrap_err();
    assert!(error.to_string().contains("fib: cannot open: "), "{error}");
    // A folder is in the way of the last step: the old state stays, nothing is left behind.
    let path = folder.path().join("taken");
    fs::create_dir(&path).unwrap();
    let error = writer.save(&path).unwrap_err();
    assert!(error.to_string().contains("cannot rename: "), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // An image is replaced by the next one.
    let path = folder.path().join("fib");
    fs::write(&path, b"something else").unwrap();
    writer.save(&path).unwrap();
    assert!(Writer::<u64, u64>::load(&path, &Config::buckets(2)).is_ok());
}

/// A MAC and VLAN take 60 bits of 64: numbers that cannot be such are not read as some.
#[test]
fn keys_that_a_kind_does_not_have_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("numbers");
    for (top, fits) in [(0, true), (1 << 60, false), (1 << 63, false)] {
        let mut writer = Writer::<u64, u16>::new(&Config::buckets(2)).unwrap();
        writer.insert(top | 5, 7).unwrap();
        writer.save(&path).unwrap();
        let loaded = Writer::<MacVlan, u16>::load(&path, &Config::buckets(2));
        match loaded {
            Ok(_) => assert!(fits, "{top:x}"),
            Err(FibImageError::Misplaced { .. }) => assert!(!fits),
            Err(error) => panic!("{error}"),
        }
    }
}
