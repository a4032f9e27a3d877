//! The process of the servers: an agent of the product for each partition, over values that follow
//! from their keys.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};

use overbank_kv::agent::{AgentTotals, Dropped, Running, Setup};
use overbank_kv::store::{Answers, Store};
use overbank_netcache::Protocol;
use overbank_netcache::agent::{Answer, Ask, Settings, Value};
use overbank_wire::netcache::{Key, PORT};

use super::super::rack::cold;

/// Bytes that the kernel keeps of what an agent has not read yet.
const RECEIVE_BYTES: usize = 1 << 20;

/// Agents on consecutive addresses.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    pub first: Ipv4Addr,
    pub count: u16,
    pub device: Option<Ipv4Addr>,
    /// Requests a second of each.
    pub rate: u32,
    pub value_len: usize,
}

/// Values that were written; the others follow from their keys.
struct Values {
    written: HashMap<Key, Value>,
    len: usize,
}

impl Store for Values {
    fn ask(&mut self, number: u64, key: Key, ask: Ask, answers: &mut Answers) {
        let answer = match ask {
            Ask::Read => {
                let written = self.written.get(&key).cloned();
                Answer::Read(written.unwrap_or_else(|| cold(key, self.len)))
            }
            Ask::Write(value) => {
                self.written.insert(key, value);
                Answer::Written
            }
        };
        answers.push((number, answer));
    }

    fn answers(&mut self, _answers: &mut Answers) {}
}

/// What all agents of a process have counted: the numbers of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Agents that serve.
    pub(super) serving: u64,
    /// Requests above the rate.
    pub(super) dropped: u64,
}

impl Count {
    fn add(self, totals: &AgentTotals) -> Count {
        Count {
            serving: self.serving + totals.serving,
            dropped: self.dropped + totals.dropped[Dropped::Rate.index()],
        }
    }

    fn line(self) -> String {
        format!("{} {}\n", self.serving, self.dropped)
    }

    pub(super) fn parse(line: &str) -> Option<Count> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (serving, dropped) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        numbers.next().is_none().then_some(Count { serving, dropped })
    }
}

impl Servers {
    /// Serves until `asked` ends; answers each line of it with the counts.
    ///
    /// # Errors
    /// An address is unavailable, or a stream fails.
    pub fn serve(&self, asked: impl BufRead, mut answers: impl Write) -> io::Result<()> {
        let mut all = Vec::new();
        for nth in 0..u32::from(self.count) {
            let address = Ipv4Addr::from_bits(self.first.to_bits().saturating_add(nth));
            let setup = Setup {
                listen: SocketAddr::from((address, PORT)),
                device: self.device.map(|device| SocketAddr::from((device, PORT))),
                receive_bytes: RECEIVE_BYTES,
                machine: Settings::default(),
                protocol: Protocol::Stamps,
                rate: Some(self.rate),
            };
            let values = Values { written: HashMap::new(), len: self.value_len };
            let running = Running::start(&setup, |_| Ok(Box::new(values)));
            all.push(running.map_err(io::Error::other)?);
        }
        for line in asked.lines() {
            line?;
            if all.iter().any(Running::is_broken) {
                return Err(io::Error::other("an agent's thread has ended"));
            }
            let totals = all.iter().map(|agent| agent.handle().totals());
            let count = totals.fold(Count::default(), |sum, of| sum.add(&of));
            answers.write_all(count.line().as_bytes())?;
            answers.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_serve_until_they_are_not_asked_any_more() {
        let first = Ipv4Addr::new(127, 8, 7, 1);
        let servers = Servers { first, count: 3, device: None, rate: 1, value_len: 9 };
        let mut said = Vec::new();
        servers.serve(&b"\n\n"[..], &mut said).unwrap();
        let said = String::from_utf8(said).unwrap();
        let last = said.lines().last().and_then(Count::parse);
        assert!(last.is_some_and(|count| count.serving <= 3 && count.dropped == 0), "{said}");
        assert_eq!(said.lines().count(), 2);
        // Addresses of others.
        let first = Ipv4Addr::new(192, 0, 2, 1);
        let error = Servers { first, ..servers }.serve(&b""[..], io::sink()).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1:8779"), "{error}");
    }

    #[test]
    fn counts_are_read_or_refused() {
        let count = Count { serving: 128, dropped: 7 };
        assert_eq!(Count::parse(&count.line()), Some(count));
        assert!(["", "1", "1 x", "1 2 3"].iter().all(|line| Count::parse(line).is_none()));
    }
}
