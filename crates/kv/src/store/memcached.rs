//! memcached as a store: its text protocol, a batch at a time over one connection.
//!
//! ```text
//!   get NAME␍␊                     ▶  VALUE NAME FLAGS LENGTH␍␊ value ␍␊ END␍␊, or END␍␊
//!   set NAME 0 0 LENGTH␍␊ value ␍␊ ▶  STORED␍␊
//!   delete NAME␍␊                  ▶  DELETED␍␊ or NOT_FOUND␍␊
//! ```
//!
//! `SERVER_ERROR …` refuses one question; anything else ends the connection. Names: `key.rs`.
//! Values of other programs are read whatever their flags.
//!
//! Questions are sent before the answers are read. memcached takes them as long as its answers fit
//! into the buffers of the connection; past that, each side would wait for the other. So a batch is
//! sent in parts, and the answers of each are read before the next.
//!
//! **What is left open.** memcached ends no connection on request. A write of unknown outcome, on a
//! connection that was given up because memcached did not answer in time, may still be done when it
//! goes on; then it may undo a later write of the same key, and the device may have the older
//! value. memcached also forgets values when it wants room, which the device does not learn: it
//! answers with the value until the key is written or evicted there. For values that matter, use
//! Redis.

use super::{Backend, resolve};
use crate::key::memcached_name;
use overbank_netcache::agent::{Answer, Ask};
use overbank_wire::netcache::{Key, VALUE_MAX};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Bytes of questions, and of the longest answers to them, that are sent before answers are read.
const PART: usize = 64 << 10;
/// Longest line of an answer.
const LINE_MAX: u64 = 1024;

pub struct Memcached {
    place: String,
    timeout: Duration,
    connection: Option<BufReader<TcpStream>>,
}

impl Memcached {
    pub fn new(place: &str, timeout: Duration) -> Result<Memcached, String> {
        let is_address = place.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
        });
        if !is_address {
            return Err("must be memcached://HOST:PORT".to_owned());
        }
        Ok(Memcached { place: place.to_owned(), timeout, connection: None })
    }
}

/// Writes a question.
fn question(key: Key, ask: &Ask, to: &mut Vec<u8>) {
    let name = memcached_name(key);
    match ask {
        Ask::Read => to.extend([b"get ", &name[..], b"\r\n"].concat()),
        Ask::Write(None) => to.extend([b"delete ", &name[..], b"\r\n"].concat()),
        Ask::Write(Some(value)) => {
            let len = value.len().to_string();
            to.extend([b"set ", &name[..], b" 0 0 ", len.as_bytes(), b"\r\n"].concat());
            to.extend([value, &b"\r\n"[..]].concat());
        }
    }
}

fn wrong(line: &str) -> io::Error {
    io::Error::other(format!("it answers {line:?}"))
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        None if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        None => Err(wrong(&String::from_utf8_lossy(&line))),
    }
}

/// Reads the answer to a question.
fn answer(key: Key, ask: &Ask, from: &mut impl BufRead) -> io::Result<Answer> {
    let first = line(from)?;
    let words: Vec<&str> = first.split(' ').collect();
    match (ask, &words[..]) {
        (_, ["SERVER_ERROR", ..]) => Ok(Answer::Failed),
        (Ask::Read, ["END"]) => Ok(Answer::Read(None)),
        (Ask::Read, ["VALUE", name, _, len]) if name.as_bytes() == memcached_name(key) => {
            let len: usize = len.parse().map_err(|_| wrong(&first))?;
            // A longer one is of another program, and fits into no message.
            let is_long = len > VALUE_MAX;
            let mut value = vec![0; if is_long { 0 } else { len }];
            if is_long {
                io::copy(&mut from.take(len as u64), &mut io::sink())?;
            } else {
                from.read_exact(&mut value)?;
            }
            let end = (line(from)?, line(from)?);
            match (end.0.as_str(), end.1.as_str()) {
                ("", "END") if is_long => Ok(Answer::Failed),
                ("", "END") => Ok(Answer::Read(Some(value.into()))),
                _ => Err(wrong(&end.0)),
            }
        }
        (Ask::Write(Some(_)), ["STORED"]) | (Ask::Write(None), ["DELETED" | "NOT_FOUND"]) => {
            Ok(Answer::Written)
        }
        _ => Err(wrong(&first)),
    }
}

impl Backend for Memcached {
    fn connect(&mut self) -> Result<(), String> {
        self.connection = None;
        let mut why = "no address".to_owned();
        for address in resolve(&self.place)? {
            let connect = || {
                let stream = TcpStream::connect_timeout(&address, self.timeout)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.timeout))?;
                stream.set_write_timeout(Some(self.timeout))?;
                io::Result::Ok(stream)
            };
            match connect() {
                Ok(stream) => {
                    self.connection = Some(BufReader::new(stream));
                    return Ok(());
                }
                Err(error) => why = format!("{address}: {error}"),
            }
        }
        Err(why)
    }

    fn batch(&mut self, batch: &[(Key, Ask)], answers: &mut Vec<Answer>) -> Result<(), String> {
        let Some(connection) = &mut self.connection else { return Err("not connected".to_owned()) };
        let mut rest = batch;
        while !rest.is_empty() {
            let (mut text, mut len) = (Vec::new(), 0);
            while let Some((key, ask)) = rest.get(len)
                && text.len() + len * VALUE_MAX < PART
            {
                question(*key, ask, &mut text);
                len += 1;
            }
            let (part, later) = rest.split_at(len);
            let mut ask = || {
                connection.get_mut().write_all(&text)?;
                for (key, ask) in part {
                    answers.push(answer(*key, ask, connection)?);
                }
                io::Result::Ok(())
            };
            if let Err(error) = ask() {
                self.connection = None;
                return Err(format!("{}: {error}", self.place));
            }
            rest = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server says, by question.
    fn read(ask: &Ask, text: &[u8]) -> Result<Answer, String> {
        let mut from = text;
        let answer = answer(u128::from_be_bytes(*b"key\0\0\0\0\0\0\0\0\0\0\0\0\0"), ask, &mut from);
        let answer = answer.map_err(|error| error.to_string())?;
        assert!(from.is_empty(), "{}", String::from_utf8_lossy(from));
        Ok(answer)
    }

    #[test]
    fn answers_are_read_or_refused() {
        let (put, delete) = (Ask::Write(Some([1].into())), Ask::Write(None));
        let long = format!("VALUE key 0 1409\r\n{}\r\nEND\r\n", "x".repeat(1409));
        let value = Answer::Read(Some((*b"v\r\nw").into()));
        for (ask, text, is) in [
            (&Ask::Read, "END\r\n", Answer::Read(None)),
            (&Ask::Read, "VALUE key 7 4\r\nv\r\nw\r\nEND\r\n", value),
            (&Ask::Read, &long, Answer::Failed),
            (&Ask::Read, "SERVER_ERROR out of memory\r\n", Answer::Failed),
            (&put, "STORED\r\n", Answer::Written),
            (&put, "SERVER_ERROR out of memory storing object\r\n", Answer::Failed),
            (&delete, "DELETED\r\n", Answer::Written),
            (&delete, "NOT_FOUND\r\n", Answer::Written),
        ] {
            assert_eq!(read(ask, text.as_bytes()), Ok(is), "{text}");
        }
        for (ask, text) in [
            (&Ask::Read, "VALUE other 0 1\r\nv\r\nEND\r\n"),
            (&Ask::Read, "VALUE key 0 x\r\nv\r\nEND\r\n"),
            (&Ask::Read, "VALUE key 0 3\r\nv\r\nEND\r\n"),
            (&Ask::Read, "STORED\r\n"),
            (&Ask::Read, "END"),
            (&Ask::Read, ""),
            (&put, "NOT_STORED\r\n"),
            (&put, "ERROR\r\n"),
            (&delete, "END\r\n"),
        ] {
            assert!(read(ask, text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        /// Also those of a server that goes mad: an answer or an error, from a bounded memory.
        #[test]
        fn any_bytes_are_an_answer_or_an_error(
            start in proptest::sample::select(vec!["", "VALUE key 0 ", "SERVER_ERROR", "END"]),
            rest in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
            len in 0..30usize,
        ) {
            let text = [start.as_bytes(), len.to_string().as_bytes(), b"\r\n", &rest].concat();
            for text in [&text[..], &rest[..]] {
                let key = u128::from_be_bytes(*b"key\0\0\0\0\0\0\0\0\0\0\0\0\0");
                if let Ok(Answer::Read(Some(value))) = answer(key, &Ask::Read, &mut &*text) {
                    proptest::prop_assert!(value.len() <= VALUE_MAX && text.ends_with(b"END\r\n") || text.len() > value.len());
                }
            }
        }
    }

    #[test]
    fn addresses_are_checked() {
        let wrong = |place| Memcached::new(place, Duration::from_secs(1)).err();
        assert!(
            ["", "host", "host:", ":11211", "host:0", "host:65536"]
                .iter()
                .all(|p| wrong(p).is_some())
        );
        assert_eq!(wrong("localhost:11211"), None);
    }
}
